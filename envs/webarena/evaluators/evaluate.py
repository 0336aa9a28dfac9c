"""Scores a finished episode: the product (0 or 1) of its task's evaluators, each run once, in the task's order."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from envs.webarena.evaluators.judge import Judge, NoJudge, NoVerdict
from envs.webarena.evaluators.program_html import LastPage, Lookup, member_role, post_url, program_html
from envs.webarena.evaluators.string_match import string_match
from envs.webarena.evaluators.url_match import RULE, url_match

Rules = Literal["upstream", "strict"]
KINDS = ("string_match", "url_match", "program_html")
PURE_HELPERS: Mapping[str, Lookup] = {"reddit_get_post_url": post_url, "gitlab_get_project_memeber_role": member_role}
"""Helper functions of tasks that send no request of their own to a site."""


@dataclass(frozen=True)
class Scored:
    """A score, 0 or 1, and why. ``verdict``: False, with score 0, if only a judge could decide it and did not."""

    score: float
    verdict: bool = True
    why: str = ""


@dataclass(frozen=True)
class Evaluator:
    """Scores episodes by ``rules`` (upstream's or corrected ones), a judge and the ``helpers`` that tasks may call."""

    rules: Rules = "upstream"
    judge: Judge = field(default_factory=NoJudge)
    helpers: Mapping[str, Lookup] = field(default_factory=lambda: PURE_HELPERS)

    def score(self, record: Mapping[str, Any], answer: str, page: LastPage) -> Scored:
        """Score an episode by its ``answer`` and last page. ValueError for an unknown evaluator, locator or helper."""
        rubric, score, missing = record["eval"], 1.0, ""
        strict, kinds = self.rules == "strict", checked(record)
        ended_at = page.url() if "url_match" in kinds else ""  # before any other evaluator goes elsewhere
        for kind in kinds:
            try:
                if kind == "string_match":
                    score *= string_match(record, answer, self.judge, strict=strict)
                elif kind == "url_match":
                    rule = rubric.get("url_note", RULE)
                    score *= url_match(rubric["reference_url"], ended_at, rule=rule, strict=strict)
                else:
                    score *= program_html(rubric["program_html"], page, self.helpers)
            except NoVerdict as error:
                missing = str(error)
        if missing and score:
            return Scored(0.0, verdict=False, why=missing)
        return Scored(score)


def checked(record: Mapping[str, Any]) -> list[str]:
    """Return the names of a task's evaluators (``eval_types``). Raises ValueError for an unknown one."""
    kinds = list(record["eval"]["eval_types"])
    if unknown := [kind for kind in kinds if kind not in KINDS]:
        raise ValueError(f"task {record.get('task_id')}: unknown evaluator {unknown[0]!r}, expected {', '.join(KINDS)}")
    return kinds


def needs_judge(record: Mapping[str, Any]) -> bool:
    """Whether some answers to the task cannot be scored by rules alone (``fuzzy_match``)."""
    answers = record["eval"].get("reference_answers") or {}
    return "string_match" in record["eval"]["eval_types"] and "fuzzy_match" in answers
