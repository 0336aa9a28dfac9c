"""Rules of IFEval's instructions (Zhou et al. 2023), each a function of a text and the instruction's arguments.

They are the published ones, but sentences and words in capitals are counted by regular expressions, without NLTK."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

_TITLES = r"(?<!\bMr)(?<!\bMs)(?<!\bDr)(?<!\bSt)(?<!\bMrs)(?<!\be\.g)(?<!\bi\.e)(?<!\b[A-Z])"
_SENTENCE_END = re.compile(_TITLES + r"[.!?]+[\"')\]\u201d\u2019*]*(?=\s|$)")


def _compares(count: int, arguments: Mapping[str, Any], threshold: str, relation: str = "relation") -> bool:
    limit = arguments[threshold]
    return count < limit if arguments[relation] == "less than" else count >= limit


def _language(text: str) -> str:
    """Language of a text, as a code; empty if none can be detected, which counts as any."""
    langdetect = detector()
    try:
        return str(langdetect.detect(text))
    except langdetect.LangDetectException:
        return ""


def detector() -> Any:
    """The module langdetect, seeded so that results repeat. Raises ModuleNotFoundError with the package to install."""
    try:
        import langdetect
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError("IFEval needs langdetect: pip install 'lemur-ray[instruct]'") from error
    langdetect.DetectorFactory.seed = 0
    return langdetect


def _paragraphs(text: str, arguments: Mapping[str, Any]) -> bool:
    parts = re.split(r"\s?\*\*\*\s?", text)
    empty = [place for place, part in enumerate(parts) if not part.strip()]
    return {*empty} <= {0, len(parts) - 1} and len(parts) - len(empty) == arguments["num_paragraphs"]


def _first_word(text: str, arguments: Mapping[str, Any]) -> bool:
    parts, place = text.split("\n\n"), arguments["nth_paragraph"]
    count = sum(bool(part.strip()) for part in parts)
    if place > count or not (paragraph := parts[place - 1].strip()):
        return False
    word = re.split(r"[.,?!'\"]", paragraph.split()[0].lstrip("'").lstrip('"'))[0].lower()
    return count == arguments["num_paragraphs"] and word == arguments["first_word"].lower()


def _highlights(text: str, arguments: Mapping[str, Any]) -> bool:
    single = [one for one in re.findall(r"\*[^\n\*]*\*", text) if one.strip("*").strip()]
    double = [one for one in re.findall(r"\*\*[^\n\*]*\*\*", text) if one[2:-2].strip()]
    return len(single) + len(double) >= arguments["num_highlights"]


def _postscript(text: str, arguments: Mapping[str, Any]) -> bool:
    marker = arguments["postscript_marker"].strip()
    known = {"P.P.S": r"\s*p\.\s?p\.\s?s.*$", "P.S.": r"\s*p\.\s?s\..*$"}
    return bool(re.search(known.get(marker, rf"\s*{marker.lower()}.*$"), text.lower(), re.MULTILINE))


def _two_responses(text: str, arguments: Mapping[str, Any]) -> bool:
    parts = [part.strip() for part in text.split("******")]
    responses = [part for part in parts if part]
    return all(parts[1:-1]) and len(responses) == 2 and responses[0] != responses[1]


def _is_json(text: str, arguments: Mapping[str, Any]) -> bool:
    bare = text.strip()
    for fence in ("```json", "```Json", "```JSON", "```"):
        bare = bare.removeprefix(fence)
    try:
        json.loads(bare.removesuffix("```").strip())
    except (ValueError, RecursionError):
        return False
    return True


def _sentences(text: str) -> int:
    *parts, rest = _SENTENCE_END.split(text)
    return sum(bool(part.strip()) for part in parts) + bool(rest.strip())


def _bullets(text: str) -> int:
    return sum(len(re.findall(mark, text, re.MULTILINE)) for mark in (r"^\s*\*[^\*].*$", r"^\s*-.*$"))


def _sections(name: str, text: str) -> int:
    return len(re.findall(rf"\s?{name}\s?\d+\s?", text))


def _letters(text: str, arguments: Mapping[str, Any]) -> bool:
    return _compares(text.lower().count(arguments["letter"].lower()), arguments, "let_frequency", "let_relation")


def _capitals(text: str, arguments: Mapping[str, Any]) -> bool:
    count = sum(word.isupper() for word in re.findall(r"\w+(?:-\w+)*", text))
    return _compares(count, arguments, "capital_frequency", "capital_relation")


def _matches(word: str, text: str) -> int:
    return len(re.findall(word, text, re.IGNORECASE))


_ANSWERS = ("My answer is yes.", "My answer is no.", "My answer is maybe.")
RULES: Mapping[str, Callable[[str, Mapping[str, Any]], bool]] = {
    "keywords:existence": lambda t, a: all(_matches(word, t) for word in a["keywords"]),
    "keywords:frequency": lambda t, a: _compares(_matches(a["keyword"].strip(), t), a, "frequency"),
    "keywords:forbidden_words": lambda t, a: not any(_matches(rf"\b{word}\b", t) for word in a["forbidden_words"]),
    "keywords:letter_frequency": _letters,
    "language:response_language": lambda t, a: _language(t) in ("", a["language"]),
    "length_constraints:number_sentences": lambda t, a: _compares(_sentences(t), a, "num_sentences"),
    "length_constraints:number_paragraphs": _paragraphs,
    "length_constraints:number_words": lambda t, a: _compares(len(re.findall(r"\w+", t)), a, "num_words"),
    "length_constraints:nth_paragraph_first_word": _first_word,
    "detectable_content:number_placeholders": lambda t, a: len(re.findall(r"\[.*?\]", t)) >= a["num_placeholders"],
    "detectable_content:postscript": _postscript,
    "detectable_format:number_bullet_lists": lambda t, a: _bullets(t) == a["num_bullets"],
    "detectable_format:constrained_response": lambda t, a: any(answer in t for answer in _ANSWERS),
    "detectable_format:number_highlighted_sections": _highlights,
    "detectable_format:multiple_sections": lambda t, a: _sections(a["section_spliter"].strip(), t) >= a["num_sections"],
    "detectable_format:json_format": _is_json,
    "detectable_format:title": lambda t, a: any(one.strip("<>").strip() for one in re.findall(r"<<[^\n]+>>", t)),
    "combination:two_responses": _two_responses,
    "combination:repeat_prompt": lambda t, a: t.strip().lower().startswith(a["prompt_to_repeat"].strip().lower()),
    "startend:end_checker": lambda t, a: t.strip().strip('"').lower().endswith(a["end_phrase"].strip().lower()),
    "startend:quotation": lambda t, a: len(t.strip()) > 1 and t.strip()[0] == t.strip()[-1] == '"',
    "change_case:capital_word_frequency": _capitals,
    "change_case:english_capital": lambda t, a: t.isupper() and _language(t) in ("", "en"),
    "change_case:english_lowercase": lambda t, a: t.islower() and _language(t) in ("", "en"),
    "punctuation:no_comma": lambda t, a: "," not in t,
}  # fmt: skip
"""Instruction id -> whether a text follows it, given its arguments."""
