"""Reads the letter of the option that a written reply chooses, as a person would.

An announced letter takes precedence, the last one over earlier ones and over what the reply takes back; then a letter
set apart at the start; then one that is chosen, confirmed or inferred; then the only one that is not ruled out."""

import re

from lemur_ray.grading.announced_answers import CUE, FILLER, announced, is_spurious, plain

_CHOOSE = re.compile(
    r"\bI(?:'d|'ll|\s+would|\s+will|\s+have\s+to|'m)?\s+(?:choose|pick|select|go(?:ing)?\s+with|say|answer)\s+"
    rf"(?:with\s+)?(?:{FILLER}\s+)*",
    re.IGNORECASE,
)
_HENCE = re.compile(
    r"\b(?:(?:so|hence|therefore|thus)\b[,:]?\s*(?:it\s+(?:is|must\s+be|has\s+to\s+be)\s+)?|it\s+(?:must|should|has\s+to|can\s+only)"
    r"\s+be\s+|(?:which|that|this)\s+leaves\s+(?:us\s+with\s+)?|leaving\s+)(?:only\s+)?",
    re.IGNORECASE,
)
_RIGHT = (
    r"(?:(?:is|was|would\s+be|must\s+be|seems|looks)?\s*(?:the\s+|an?\s+)?(?:only\s+|most\s+|clearly\s+)?"
    r"(?:correct|right|best|true|accurate)|(?:is|was|would\s+be|must\s+be|seems|looks)\s+(?:the\s+|an?\s+|my\s+)?"
    r"(?:only\s+)?answer)\b"
)
_WRONG = (
    r"(?:is|are|was|can|cannot|could|does|do|would|must|should|seems|looks)?\s*(?:also\s+|both\s+|all\s+|clearly\s+)?"
    r"(?:be\s+)?(?:not\b|n't\b|isn't\b|aren't\b|can't\b|cannot\b|doesn't\b|incorrect\b|wrong\b|false\b|ruled\s+out|"
    r"eliminated|excluded|impossible\b|out\b)"
)
_VERDICT = (
    r"(?<![\w'])\(?([{letters}])(?:\W+is)?[\s).:|=\u2013\u2014-]+"
    r"(?i:(yes|true|correct|right|\u2713|\u2714|\u2705)|no|false|incorrect|wrong|\u2717|\u2718|\u274c)\ufe0f?"
    r"(?=\s*(?:[|.;\n]|$|,\s*\(?[{letters}]\b))"
)
"""An option and its verdict, in a table or a list; a group has the verdict of a right one."""
_DENYING = r"(?:not|neither|nor|isn't|except|unlike|eliminate|exclude|rule\s+out|reject|than|wasn't)"
_HYPOTHETICAL = re.compile(r"\b(?:was|would)\b", re.IGNORECASE)
_CORRECTION = re.compile(
    r"(?:^|[.!?\n])\W{0,20}(?:(?:oh|no|but|hmm)\W{1,20}){0,5}(?:wait|hold\s+on)\b|\b(?:that's|that\s+(?:is|was))\s+(?:wrong|incorrect)\b",
    re.IGNORECASE,
)
"""Where a reply takes back what it announced before."""
_OPINION = re.compile(
    r"I(?:'d|\s+would)?\s+(?:think|believe|guess|suppose|say|choose|chose|pick|select|go\s+with)\s+"
    rf"(?:that\s+)?(?:it(?:'s|\s+is|\s+must\s+be|\s+should\s+be)\s+)?(?:{FILLER}\s+)*",
    re.IGNORECASE,
)
"""Words between an announcement and the answer, as in "the answer is I think (B)"."""


def chosen_letter(reply: str, letters: str) -> str | None:
    """The capital letter, one of ``letters``, of the option that a reply chooses; None for none or several."""
    text = plain(reply)
    for correction in [*_CORRECTION.finditer(text)][-1:]:
        behind = text[correction.end() :]
        if letter := _announced_letter(behind, letters) or _concluded_letter(behind, letters):
            return letter
    own = CUE.sub(lambda match: "not " if is_spurious(match) else match[0], text)
    for read in (_announced_letter, _marked_letter, _first_letter, _concluded_letter):
        letter = read(text if read is _announced_letter else own, letters)
        if letter is not None:
            return letter or None
    return _only_letter(own, letters) or _announced_letter(text, letters, spurious=True) or None


def _named(letters: str) -> str:
    """Regular expression of one of the letters as the name of an option."""
    return rf"(?:option|choice|answer|letter|statement)?\s*[\"'(\[$]*([{letters}])[\"')\]$]*(?![\w'])"


def _announced_letter(text: str, letters: str, spurious: bool = False) -> str | None:
    """The letter that is announced last, in the present if one is; empty for several, None without any."""
    one, last = f"[{letters}]", {True: "", False: ""}
    for match, sentence in announced(text, spurious):
        rest = sentence[opinion.end() :] if (opinion := _OPINION.match(sentence)) else sentence
        if (hit := re.match(_named(letters), rest, re.IGNORECASE)) and not _is_article(rest, hit.start(1)):
            if re.match(
                rf"\s*(?:,|/|or|and|&)\s*(?:or\s+|and\s+)?(?:option\s+)?\(?{one}\)?(?![\w'])", rest[hit.end() :]
            ):
                return ""
            wrong = re.match(rf"\s*(?:{_WRONG})", rest[hit.end() :], re.IGNORECASE)
            negated = re.search(rf"\b{_DENYING}\s*$", match[0], re.IGNORECASE)
            if not wrong and not negated:
                last[_HYPOTHETICAL.search(match[0]) is not None] = hit[1].upper()
    return last[False] or last[True] or None


def _marked_letter(text: str, letters: str) -> str | None:
    """The only option that is right in a list or table with verdicts on three or more; a reply that is one letter, also
    a small one; else None."""
    if alone := re.fullmatch(rf"\W*([{letters.lower()}])\W*", text):
        return alone[1].upper()
    verdicts = dict(re.findall(_VERDICT.format(letters=letters), text))
    right = [letter for letter, mark in verdicts.items() if mark]
    return right[0] if len(verdicts) > 2 and len(right) == 1 else None


def _first_letter(text: str, letters: str) -> str | None:
    """The letter that is set apart at the start; empty if more letters follow and nothing else, None without any."""
    one = f"[{letters}]"
    if hit := re.match(rf"\W*({one})(?=\W*$|[^\w\s',-]|\s*\n|\s+[-\u2013\u2014])", text):
        rest = re.sub(r"^[\s).:\]]+", "", text[hit.end() :])
        if (
            rest
            and re.fullmatch(rf"(?:\W|\b(?:and|or)\b|\b{one}\b)*", rest)
            and re.search(rf"\b(?!{hit[1]}){one}\b", rest)
        ):
            return ""
        listed = re.search(rf"(?:^|[\s(])(?!{hit[1]})({one})\s?[).:]", rest)
        denied = re.match(rf"(?:{_WRONG})", rest, re.IGNORECASE)
        verdict = re.search(rf"(?:^|[\s(])({one})\)?\s*[).:]?\s*(?:{_RIGHT})", rest, re.IGNORECASE)
        if not denied and not (listed and verdict):
            return hit[1]
    return None


def _concluded_letter(text: str, letters: str) -> str | None:
    """The letter that is chosen, confirmed, inferred or set apart in a line; empty for several, None without any."""
    one = f"[{letters}]"
    for pattern in (
        rf"{_CHOOSE.pattern}{_named(letters)}",
        rf"(?<![\w'])\(?({one})\)?\s*[).:]?\s*(?:{_RIGHT})",
        rf"{_HENCE.pattern}{_named(letters)}(?=\s*(?:[.,;!]|$|\n))",
        rf"(?:^|\n)\W*({one})\W*$",
        rf"(?:^|\n)\(?({one})[).]\s[^\n]*$",
    ):
        hits = [m for m in re.finditer(pattern, text, re.IGNORECASE) if m[1] in letters and _stands(text, m)]
        if hits:
            return hits[-1][1] if len({m[1] for m in hits}) == 1 or pattern[0] == "\\" else ""
    return None


def _only_letter(text: str, letters: str) -> str | None:
    """The only letter that is not ruled out; None for none or several."""
    one = f"[{letters}]"
    rest = re.sub(
        rf"\b(?i:{_DENYING})\s+(?:option\s+|choice\s+)?\(?{one}\)?(?![\w'])(?:\s+(?:or|nor|and)\s+\(?{one}\)?(?![\w']))*",
        " ",
        text,
    )
    rest = re.sub(rf"\(?{one}\)?(?:(?:\s*,|\s+and|\s*,\s*and|\s+or)\s+\(?{one}\)?)*[).:]?\s*(?:{_WRONG})", " ", rest)
    bare = {m[1] for m in re.finditer(rf"(?<![\w'])\(?({one})\)?(?![\w'-])", rest) if _stands(rest, m)}
    return bare.pop() if len(bare) == 1 else None


def _is_article(text: str, at: int) -> bool:
    """Whether the letter at ``at`` is the article "a" or "A", or the pronoun "I", before a word."""
    return text[at] in "aAiI" and bool(re.match(r".\s+(?!(?:is|as|and|or|but|because|since)\b)[a-z]", text[at:]))


def _stands(text: str, match: re.Match[str]) -> bool:
    """Whether a matched letter names an option: no article, and "I" only in brackets or after a name of options."""
    at = match.start(1)
    before, behind = text[:at], text[at + 1 : at + 2]
    if match[1] == "I" and behind not in (")", "."):
        return False
    return not _is_article(text, at) or before.endswith("(")
