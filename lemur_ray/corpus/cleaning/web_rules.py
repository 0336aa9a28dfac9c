"""Rules for web pages: C4 (arXiv 1910.10683), FineWeb (arXiv 2406.17557) and Gopher's repetition rules (2112.11446).

C4's rule about lines without final punctuation is left out, as in FineWeb, because it drops lists and code."""

import re

import numpy as np

_BOILERPLATE = re.compile(
    r"javascript|terms of use|privacy policy|cookie policy|uses cookies|use of cookies|use cookies", re.IGNORECASE
)
"""C4 removes lines with these words."""
_SENTENCE_END = re.compile(r"[.!?][\"')\]\u201d\u2019]*(?=\s|$)")
_MIN_SENTENCES = 3
_FINAL = tuple(".?!\"'\u201d\u2019")
_MIN_FINAL_LINES = 0.12
_SHORT_LINE, _MAX_SHORT_LINES = 30, 0.67
_MAX_DUPLICATE_CHARACTERS = 0.01
_MAX_LINES_PER_WORD = 0.3
_MAX_REPEATED = {"line": (0.3, 0.2), "paragraph": (0.3, 0.2)}
"""Unit -> maximum fraction of units, and of characters, that repeat an earlier one."""
_MAX_TOP = {2: 0.20, 3: 0.18, 4: 0.16}
"""n -> maximum fraction of characters in the most frequent n-gram of words."""
_MAX_COVERED = {5: 0.15, 6: 0.14, 7: 0.13, 8: 0.12, 9: 0.11, 10: 0.10}
"""n -> maximum fraction of characters in n-grams of words that occurred before."""


def without_boilerplate(text: str) -> str:
    """The text without its lines about cookies, terms of use and JavaScript."""
    if not _BOILERPLATE.search(text):
        return text
    return "\n".join(line for line in text.split("\n") if not _BOILERPLATE.search(line))


def web_rule(text: str) -> str | None:
    """Name of the first web rule that the text violates, None if it passes all. text: not empty."""
    if "{" in text:
        return "curly_bracket"
    if "lorem ipsum" in text.lower():
        return "lorem_ipsum"
    if sum(1 for _ in _SENTENCE_END.finditer(text)) < _MIN_SENTENCES:
        return "few_sentences"
    words = text.split()
    lines = [line for line in map(str.strip, text.split("\n")) if line]
    if sum(line.endswith(_FINAL) for line in lines) <= _MIN_FINAL_LINES * len(lines):
        return "few_final_punctuation"
    if sum(len(line) <= _SHORT_LINE for line in lines) > _MAX_SHORT_LINES * len(lines):
        return "short_lines"
    if _repeated(lines)[1] > _MAX_DUPLICATE_CHARACTERS * sum(map(len, lines)):
        return "duplicate_lines"
    if text.count("\n") > _MAX_LINES_PER_WORD * len(words):
        return "list"
    return _repetition_rule(text, lines, words)


def _repeated(units: list[str]) -> tuple[int, int]:
    """(number of units that repeat an earlier one, their characters)."""
    distinct = set(units)
    if len(distinct) == len(units):
        return 0, 0
    return len(units) - len(distinct), sum(map(len, units)) - sum(map(len, distinct))


def _repetition_rule(text: str, lines: list[str], words: list[str]) -> str | None:
    paragraphs = [part for part in map(str.strip, re.split(r"\n{2,}", text)) if part]
    for name, units in (("line", lines), ("paragraph", paragraphs)):
        number, characters = _repeated(units)
        most_units, most_characters = _MAX_REPEATED[name]
        if number > most_units * len(units) or characters > most_characters * len(text):
            return f"repeated_{name}s"
    numbers = {word: i for i, word in enumerate(dict.fromkeys(words), 1)}
    ids = np.array([numbers[word] for word in words], np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    ends = np.cumsum([len(word) + 1 for word in words])
    grams = ids ^ (ids >> np.uint64(29))
    for n in range(2, 11):
        if len(words) < n:
            return None
        grams = grams[:-1] * np.uint64(0xD6E8FEB86659FD93) + ids[n - 1 :]
        if n in _MAX_TOP and _top_characters(grams, ends, n) > _MAX_TOP[n] * len(text):
            return f"frequent_{n}_gram"
        if n in _MAX_COVERED:
            covered = _covered_characters(grams, ends, n)
            if not covered:  # then no longer n-gram repeats either
                return None
            if covered > _MAX_COVERED[n] * len(text):
                return f"repeated_{n}_grams"
    return None


def _top_characters(grams: np.ndarray, ends: np.ndarray, n: int) -> int:
    """Characters of the most frequent n-gram's occurrences, 0 if none repeats. ends: of each word and its blank."""
    ordered = np.sort(grams)
    first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]]))
    counts = np.diff(np.concatenate([first, [len(ordered)]]))
    top = int(counts.argmax())
    if counts[top] < 2:
        return 0
    at = int((grams == ordered[first[top]]).argmax())
    begin = int(ends[at - 1]) if at else 0
    return int(counts[top]) * (int(ends[at + n - 1]) - begin - 1)


def _covered_characters(grams: np.ndarray, ends: np.ndarray, n: int) -> int:
    """Characters of all words that are part of an n-gram which occurred earlier in the text."""
    _, first = np.unique(grams, return_index=True)
    if len(first) == len(grams):
        return 0
    repeats = np.ones(len(grams), bool)
    repeats[first] = False
    change = np.zeros(len(ends) + 1, np.int64)
    np.add.at(change, np.flatnonzero(repeats), 1)
    np.add.at(change, np.flatnonzero(repeats) + n, -1)
    covered = np.cumsum(change[:-1]) > 0
    return int(np.diff(ends, prepend=0)[covered].sum())
