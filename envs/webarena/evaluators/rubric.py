"""Checks before an episode that a task's ``eval`` section can be scored.

Rejects everything that an evaluator would reject after an episode, or would silently ignore (a misspelled key)."""

from collections.abc import Mapping, Sequence
from typing import Any

from envs.webarena.evaluators.evaluate import checked
from envs.webarena.evaluators.program_html import CONTENTS, is_script, read_call
from envs.webarena.evaluators.string_match import RULES
from envs.webarena.evaluators.url_match import RULE
from lemur_ray.config import did_you_mean

NOT_AVAILABLE = "N/A"
_KEYS = ("eval_types", "reference_answers", "reference_url", "program_html", "reference_answer_raw_annotation")
_NOTES = ("note", "annotation")
"""Endings of other allowed keys of a rubric, which hold text for people, such as the judge's ``string_note``."""
_TARGET_KEYS = ("url", "locator", "required_contents", "prep_actions")


def check_rubric(record: Mapping[str, Any]) -> None:
    """Raise ValueError if the task cannot be scored; the message has its id, the value and what was expected."""
    kinds = checked(record)
    try:
        _check(record["eval"], kinds)
    except ValueError as error:
        raise ValueError(f"task {record.get('task_id')}: {error}") from None


def _check(rubric: Mapping[str, Any], kinds: Sequence[str]) -> None:
    if not kinds:
        raise ValueError("eval_types is empty, so every episode would be solved: expected one evaluator or more")
    for key in rubric:
        if key not in _KEYS and not key.endswith(_NOTES):
            raise ValueError(f"unknown key {key!r} in eval{did_you_mean(key, _KEYS)}")
    if "string_match" in kinds:
        _check_answers(rubric.get("reference_answers"))
    if "url_match" in kinds:
        if not isinstance(url := rubric.get("reference_url"), str) or not url.strip():
            raise ValueError(f"url_match without an address: reference_url is {url!r}")
        if (rule := rubric.get("url_note", RULE)) != RULE:
            raise ValueError(f"url_note {rule!r}: expected {RULE!r}")
    targets = rubric.get("program_html") or []
    if not isinstance(targets, list) or ("program_html" in kinds and not targets):
        raise ValueError(f"program_html without targets: it is {_excerpt(targets)}")
    for target in targets:
        _check_target(target)


def _check_answers(answers: Any) -> None:
    if not isinstance(answers, Mapping) or not answers:
        raise ValueError(f"string_match without reference answers: they are {_excerpt(answers)}")
    for rule, wanted in answers.items():
        if rule not in RULES:
            raise ValueError(f"unknown rule {rule!r} among its reference answers{did_you_mean(str(rule), RULES)}")
        if rule == "exact_match" or (rule == "fuzzy_match" and isinstance(wanted, str)):
            _check_text(rule, wanted)
            if rule == "fuzzy_match" and wanted != NOT_AVAILABLE:
                raise ValueError(f"fuzzy_match: {_excerpt(wanted)}, expected {NOT_AVAILABLE!r} or a list of texts")
        else:
            _check_texts(rule, wanted)


def _check_target(target: Any) -> None:
    if not isinstance(target, Mapping):
        raise ValueError(f"program_html: a target is {_excerpt(target)}, expected an object with url and locator")
    if unknown := [key for key in target if key not in _TARGET_KEYS]:
        raise ValueError(f"unknown key {unknown[0]!r} in program_html{did_you_mean(unknown[0], _TARGET_KEYS)}")
    url: Any = target.get("url")
    locator, contents = target.get("locator"), target.get("required_contents")
    _check_text("url of program_html", url)
    if url.startswith("func:"):
        read_call(url.removeprefix("func:"))
    elif url != "last" and not is_address(url):
        raise ValueError(f"url of program_html: {_excerpt(url)}, expected an address, last or func:")
    if not isinstance(locator, str):
        raise ValueError(f"locator: {_excerpt(locator)}, expected a text")
    if locator.startswith("func:"):
        read_call(locator.removeprefix("func:"))
    elif locator.strip() and not is_script(locator):
        raise ValueError(f"unknown locator {_excerpt(locator)}: expected none, a script on document, or func:")
    if not isinstance(contents, Mapping) or not contents or set(contents) - set(CONTENTS):
        keys = sorted(contents) if isinstance(contents, Mapping) else contents
        raise ValueError(f"unknown required contents {_excerpt(keys)}: expected {' or '.join(CONTENTS)}")
    for rule, wanted in contents.items():
        (_check_text if rule == "exact_match" else _check_texts)(rule, wanted)
    if "prep_actions" in target:
        _check_texts("prep_actions", target["prep_actions"])


def is_address(text: str) -> bool:
    """Whether a text is a web URL, or starts as a placeholder (__SHOPPING__) does."""
    return text.startswith(("http://", "https://", "__"))


def _check_text(what: str, value: Any) -> None:
    if not isinstance(value, str):
        raise ValueError(f"{what}: a {type(value).__name__}, expected a text")


def _check_texts(what: str, value: Any) -> None:
    if not isinstance(value, list) or not value or not all(isinstance(one, str) for one in value):
        raise ValueError(f"{what}: {_excerpt(value)}, expected a list of texts")


def _excerpt(value: Any) -> str:
    return repr(value)[:80]
