"""Reads the answer of a written reply as a person would: a letter, a number, a word of a few, a list, brackets.

Each function takes the reply and the form of the answer, and returns the answer or None. An announced answer ("the
answer is ...", ``\\boxed{...}``, ``#### ...``) takes precedence, the last one over earlier ones; then an answer set
apart at the start or in the last line; then the only candidate that the reply does not rule out. Knows no benchmark.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal, InvalidOperation
from itertools import pairwise

_BOXED = re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_TAG = re.compile(r"<(/?)(?:final[_ ]?)?answer>", re.IGNORECASE)
_LATEX_TEXT = re.compile(r"\\(?:text|textbf|mathrm|mathbf)\s*\{([^{}]*)\}")
_FILLER = (
    r"(?:therefore|thus|then|hence|clearly|definitely|likely|probably|indeed|actually|simply|just|most|be|now|still|"
    r"the|an?(?=\s+(?:option|choice|letter))|correct|right|best|option|choice|letter|answer|statement)"
)
_NOUN = (
    r"(?:(?:final|correct|right|best|true|my|likely|accurate|appropriate)\s+){0,3}(?:answer|option|choice|response)"
    r"|(?:correct|right|best|true|accurate|appropriate|missing|possible)\s+(?:one|statement|letter|reading|completion|"
    r"result|value|word|order|pick|match)|solution"
)
_VERB = (
    r"(?:is|are|was|=|:|would\s+be|would\s+have\s+to\s+be|must\s+be|should\s+be|has\s+to\s+be|will\s+be|->|=>"
    r"|\u2192|\u2014|\u2013)"
)
_CUE = re.compile(
    rf"\b(?:{_NOUN})(?:\s+(?:here|to\s+[^.:\n]{{1,60}}?|for\s+[^.:\n]{{1,40}}?|in\s+this\s+case))?"
    rf"(?:\s*{_VERB}|\s+-)(?:\s*:)?(?:\s+{_FILLER}\b)*\s*(?::\s*)?",
    re.IGNORECASE,
)
"""Announcement of an answer, up to the answer itself."""
_CHOOSE = re.compile(
    r"\bI(?:'d|'ll|\s+would|\s+will|\s+have\s+to|'m)?\s+(?:choose|pick|select|go(?:ing)?\s+with|say|answer)\s+"
    rf"(?:with\s+)?(?:{_FILLER}\s+)*",
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
_DENYING = r"(?:not|neither|nor|isn't|except|unlike|eliminate|exclude|rule\s+out|reject|than|wasn't)"
_SENTENCE_END = re.compile(r"(?<=[^\d\W])[.!?](?=\s|$)|(?<=\d)[.!?](?=\s|$)|(?<=[)\]*\"'$}])[.!?](?=\s|$)|\n")


_SPURIOUS = re.compile(
    r"(?:\b(?:wrong|incorrect|worst|least|common|popular|second|initial|first|earlier|tempting)(?:[ \t-]+\w+)?|"
    r"\b(?:students|people|others|some|many)\s+(?:\w+\s+)?(?:say|think|believe|claim|assume|guess)(?:\s+that)?"
    r"(?:\s+(?:the|its))?)[ \t-]+$",
    re.IGNORECASE,
)
"""What precedes the announcement of an answer that is not the reply's own."""
_HYPOTHETICAL = re.compile(r"\b(?:was|would)\b", re.IGNORECASE)
_CORRECTION = re.compile(
    r"(?:^|[.!?\n])\W*(?:(?:oh|no|but|hmm)\W+)*(?:wait|hold\s+on)\b|\b(?:that's|that\s+(?:is|was))\s+(?:wrong|incorrect)\b",
    re.IGNORECASE,
)
"""Where a reply takes back what it announced before."""
_OPINION = re.compile(
    r"I(?:'d|\s+would)?\s+(?:think|believe|guess|suppose|say|choose|chose|pick|select|go\s+with)\s+"
    rf"(?:that\s+)?(?:it(?:'s|\s+is|\s+must\s+be|\s+should\s+be)\s+)?(?:{_FILLER}\s+)*",
    re.IGNORECASE,
)
"""Words between an announcement and the answer, as in "the answer is I think (B)"."""
_EMPHASIS = re.compile(r"(?<=[\d)])\*(?=[\d($])|(?<=\S )\*(?= \S)|([*`]+|(?<!\w)_+|_+(?!\w))")
"""Markdown emphasis, in its group; outside of it the sign of a product."""


def plain(reply: str) -> str:
    """The reply without Markdown emphasis, answer tags and LaTeX around texts; boxed answers are announced in words."""
    text = _EMPHASIS.sub(lambda match: "" if match[1] else match[0], reply)
    text = _LATEX_TEXT.sub(r" \1 ", text.replace("\u2212", "-").replace("\u2019", "'"))
    text = _BOXED.sub(lambda match: f"\nanswer: {match[1]}\n", text)
    return _TAG.sub(lambda match: "\n" if match[1] else "\nanswer: ", text).strip()


def announced(text: str, spurious: bool = False) -> Iterator[tuple[re.Match[str], str]]:
    """Each announcement of an answer in a plain text, with the rest of its sentence. ``spurious``: those of wrong
    answers, of earlier ones and of other people's, instead of the reply's own."""
    for match in _CUE.finditer(text):
        if _is_spurious(match) == spurious:
            rest = text[match.end() :].lstrip()
            yield match, (rest[: end.start()] if (end := _SENTENCE_END.search(rest)) else rest).strip()


def _is_spurious(match: re.Match[str]) -> bool:
    return bool(_SPURIOUS.search(match.string[max(0, match.start() - 60) : match.start()]))


def chosen_letter(reply: str, letters: str) -> str | None:
    """The capital letter, one of ``letters``, of the option that a reply chooses; None for none or several."""
    text = plain(reply)
    for correction in [*_CORRECTION.finditer(text)][-1:]:
        behind = text[correction.end() :]
        if letter := _announced_letter(behind, letters) or _concluded_letter(behind, letters):
            return letter
    own = _CUE.sub(lambda match: "not " if _is_spurious(match) else match[0], text)
    for letter in (_announced_letter(text, letters), _first_letter(own, letters), _concluded_letter(own, letters)):
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


def _first_letter(text: str, letters: str) -> str | None:
    """The letter that is set apart at the start; None without any."""
    one = f"[{letters}]"
    if hit := re.match(rf"\W*({one})(?=\W*$|[^\w\s',-]|\s*\n|\s+[-\u2013\u2014])", text):
        rest = re.sub(r"^[\s).:\]]+", "", text[hit.end() :])
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
        found_all = [m for m in re.finditer(pattern, text, re.IGNORECASE) if m[1] in letters and _stands(text, m)]
        if found_all:
            return found_all[-1][1] if len({m[1] for m in found_all}) == 1 or pattern[0] == "\\" else ""
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


_DIGITS = r"-?\s?\\?[$€£]?\s?-?(?:\d{1,3}(?:,\d{3})+|\d+)(?:\.\d+)?|-?\\?[$€£]?\.\d+"
_NUMBER = re.compile(rf"(?<![\w.])(?:{_DIGITS})(?![\d])")
_LABEL = re.compile(
    r"\b(?:steps?|lines?|parts?|questions?|examples?|equations?|eq\.|problems?)\s+#?\(?\d+\)?"
    r"(?:\s*(?:to|and|-|\u2013|through|,)\s*(?:steps?\s+)?\d+)*|^\s*\d+[.)](?=\s)|\bnot\s+\\?[$€£]?-?[\d,.]*\d",
    re.IGNORECASE | re.MULTILINE,
)
"""Numbers that count the reply's own parts, or that it rules out."""
_BEFORE_NUMBER = re.compile(
    r"\b(?:but|rather|about|around|approximately|roughly|exactly|only|that|it\s+is|it's|i\s+think)\b|\b\w+\s*=",
    re.IGNORECASE,
)
"""Words that may stand between an announcement and its number."""
_DURATION = re.compile(
    r"\b(?:in|after|within|over|during|for|every)\s+(?:the\s+(?:next|last|first)\s+)?[\d,.]+\s+(?:more\s+)?"
    r"(?:second|minute|hour|day|week|month|year)s?\b",
    re.IGNORECASE,
)
_SUM = re.compile(
    r"(?:[\s\d.,$\u20ac\u00a3%()+*/^\u00d7\u00f7-]|\\(?:times|cdot|div|\$|%)"
    r"|\b(?!(?:because|since|as|not|that|which|so|for|and|or|if)\b)[a-z]+\b)+",
    re.IGNORECASE,
)
"""Numbers, signs and units of a calculation."""


def final_number(reply: str) -> str | None:
    """The number that a reply concludes with, without currency and thousands separators; None without any."""
    text = plain(reply)
    if marked := re.findall(rf"####\s*({_NUMBER.pattern})", text):
        return _as_number(marked[-1])
    direct: str | None = None
    mentioned: str | None = None
    for match, rest in announced(text):
        clean = _LABEL.sub(" ", rest)
        numbers = list(_NUMBER.finditer(clean))
        if not numbers:
            continue
        before = _BEFORE_NUMBER.sub("", clean[: numbers[0].start()])
        after_equals = [m for m in numbers if m.start() > clean.rfind("=")] if "=" in clean else []
        if not re.search(r"[^\W\d_]", before):
            direct = _value(clean, numbers[0])
        elif after_equals:
            direct = _signed(after_equals[0])
        elif ":" in match[0] and re.search(r"[^\W\d]{2}", before):
            direct = _signed(([*_NUMBER.finditer(_DURATION.sub(" ", clean))] or numbers)[-1])
        else:
            mentioned = _signed(numbers[0])
    if last := direct or mentioned:
        return _as_number(last)
    others = list(_NUMBER.finditer(_LABEL.sub(" ", text)))
    return _as_number(_signed(others[-1])) if others else None


def _value(text: str, first: re.Match[str]) -> str:
    """The first number of a text, or if it begins a sum that is worked out ("9 + 9 = 18") its result."""
    sides = text[first.start() :].split("=")
    if not re.search(r"[-+*/^x\u00d7\u00f7]|\\(?:times|cdot|div)", sides[0][len(first[0]) :]):
        return _signed(first)
    result = None
    for left, right in pairwise(sides):
        if not _SUM.fullmatch(left) or not (number := re.match(rf"\s*({_NUMBER.pattern})", right)):
            break
        result = number[1]
    return result or _signed(first)


def _signed(number: re.Match[str]) -> str:
    """A number's text, without a minus sign that subtracts it from a number before it."""
    subtracted = re.search(r"[\d)]\s*$", number.string[max(0, number.start() - 3) : number.start()])
    return number[0].replace("-", "") if subtracted else number[0]


def same_number(answer: str | None, reference: str) -> bool:
    """Whether two texts are numbers of equal value."""
    try:
        return answer is not None and Decimal(answer) == Decimal(_as_number(reference))
    except InvalidOperation:
        return False


def _as_number(text: str) -> str:
    digits = re.sub(r"[^\d.]", "", text)
    return f"-{digits}" if "-" in text else digits


def chosen_word(reply: str, words: Sequence[str]) -> str | None:
    """The one of a few exclusive ``words`` (yes and no) that a reply answers; None for none or several."""
    text = plain(reply).lower()
    for opposite, negated in (("invalid", "not valid"), ("no", "not yes"), ("false", "not true")):
        text = text.replace(negated, opposite) if opposite in words else text
    either = "|".join(sorted(map(re.escape, words), key=len, reverse=True))
    one = re.compile(rf"(?<![\w-])(?<!\w')({either})(?![\w-]|'\w)")
    answers = [
        m[1]
        for _, rest in announced(text)
        if (m := re.match(rf"\W*(?:that\s+it\s+is\s+)?({either})(?![\w-]|'\w)", rest))
    ]
    if answers:
        return answers[-1]
    if first := re.match(rf"\W*({either})(?![\w'-])(?=\W*$|[.,:;!]|\s*\n)", text):
        return first[1]
    if closing := re.search(rf"(?:(?:^|\n)\W*|=\s*)({either})\W*$", text):
        return closing[1]
    sentences = [part for part in _SENTENCE_END.split(text) if one.search(part)]
    for part in (text, sentences[-1] if sentences else ""):
        if len(set(one.findall(part))) == 1:
            return one.findall(part)[0]
    return None


def listed_words(reply: str, count: int) -> list[str]:
    """The last ``count`` words of a reply's announced list, else of the reply, in lower case, without numbering."""
    text = plain(reply)
    lists = [text[match.end() :] for match, _ in announced(text)] or re.split(r"\n\s*\n|:\s*\n?", text)
    for part in (lists[-1], text):
        words = re.findall(r"[a-z][\w'-]*", re.sub(r"(?m)^\s*(?:\d+[.)]|[-*•])\s*", "", part.lower()))
        if len(words) >= count:
            return words[:count] if part is not text else words[-count:]
    return []


def brackets_in(reply: str) -> str:
    """The brackets of a reply's announced answer, else of its last line that holds nothing else; without blanks."""
    text = re.sub(r"[*`]+", "", reply)
    rests = [text[match.end() :].partition("\n")[0] for match in _CUE.finditer(text)]
    lines = [line for line in text.splitlines() if re.fullmatch(r"[\s\[\](){}<>.,\"']+", line)]
    chosen = rests[-1] if rests else lines[-1] if lines else ""
    return "".join(re.findall(r"[\[\](){}<>]", chosen))
