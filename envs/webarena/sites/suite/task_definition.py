"""Defines a task of the stand-in suite: its question, its scoring rules, and the expert's steps.

``SuiteTask.record`` converts it to WebArena's format, with placeholders in URLs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from envs.webarena.sites.suite.steps import Step

Rubric = Mapping[str, Any]


@dataclass(frozen=True)
class SuiteTask:
    """A task of the stand-in suite. ``template``: its question, with {{name}} for ``names``; ``rubric``: its scoring
    rules; ``plan``: steps that solve it; ``start``: URL of its first page."""

    site: str
    start: str
    template: str
    names: Mapping[str, str | int]
    rubric: Rubric
    plan: tuple[Step, ...]

    @property
    def intent(self) -> str:
        text = self.template
        for name, value in self.names.items():
            text = text.replace("{{" + name + "}}", str(value))
        return text

    def record(self, task_id: int, template_id: int) -> dict[str, Any]:
        """The task as a JSON record with all fields of WebArena's, under the given numbers of task and template."""
        return {
            "sites": [self.site],
            "task_id": task_id,
            "require_login": True,
            "storage_state": f"./.auth/{self.site}_state.json",
            "start_url": self.start,
            "geolocation": None,
            "intent_template": self.template,
            "instantiation_dict": dict(self.names),
            "intent": self.intent,
            "require_reset": False,
            "eval": dict(self.rubric),
            "intent_template_id": template_id,
        }


def _eval(kinds: Sequence[str], answers: Any = None, url: str = "", targets: Sequence[Any] = (), **more: str) -> Rubric:
    rubric: dict[str, Any] = {"eval_types": list(kinds), "reference_answers": answers, "reference_url": url}
    return {**rubric, "program_html": list(targets), **more}


def says_exactly(answer: str) -> Rubric:
    """Return rules that accept exactly this answer, ignoring case."""
    return _eval(["string_match"], {"exact_match": answer}, string_note="", reference_answer_raw_annotation=answer)


def mentions(*parts: str) -> Rubric:
    """Return rules that accept an answer which contains all ``parts``."""
    noted = {"string_note": "", "reference_answer_raw_annotation": ", ".join(parts)}
    return _eval(["string_match"], {"must_include": list(parts)}, **noted)


def ends_at(url: str, *parts: str, targets: Sequence[Mapping[str, Any]] = ()) -> Rubric:
    """Rules that accept an episode that ends at ``url``, if its answer has all ``parts`` and all ``targets`` match."""
    kinds = [*(["string_match"] if parts else []), "url_match", *(["program_html"] if targets else [])]
    noted = {"string_note": "", "reference_answer_raw_annotation": ", ".join(parts)} if parts else {}
    answers = {"must_include": list(parts)} if parts else None
    return _eval(kinds, answers, url, targets, **noted, url_note="GOLD in PRED")


def page_holds(*targets: Mapping[str, Any]) -> Rubric:
    """Return rules that accept an episode after which all ``targets`` (see ``target``) match."""
    return _eval(["program_html"], targets=targets)


def target(url: str, *parts: str, locator: str = "", exactly: str = "") -> dict[str, Any]:
    """Return a target of ``program_html``: the page at ``url`` (a URL, ``last`` or ``func:``) must contain all
    ``parts``, or equal ``exactly``, in the value of the script ``locator``, or in its source without one."""
    wanted: dict[str, Any] = {"exact_match": exactly} if exactly else {"must_include": list(parts)}
    return {"url": url, "locator": locator, "required_contents": wanted}
