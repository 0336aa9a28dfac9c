"""Announcements of an answer in a written reply: "the answer is ...", ``\\boxed{...}``, an answer tag.

Also the reply without its markup, in which they are searched. Knows no form of answers."""

import re
from collections.abc import Iterator

_BOXED = re.compile(r"\\boxed\s*\{((?:[^{}]|\{[^{}]*\})*)\}")
_TAG = re.compile(r"<(/?)(?:final[_ ]?)?answer>", re.IGNORECASE)
_LATEX_TEXT = re.compile(r"\\(?:text|textbf|mathrm|mathbf)\s*\{([^{}]*)\}")
FILLER = (
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
CUE = re.compile(
    rf"\b(?:{_NOUN})(?:\s+(?:here|to\s+[^.:\n]{{1,60}}?|for\s+[^.:\n]{{1,40}}?|in\s+this\s+case))?"
    rf"(?:\s*{_VERB}|\s+-)(?:\s*:)?(?:\s+{FILLER}\b)*\s*(?::\s*)?",
    re.IGNORECASE,
)
"""Announcement of an answer, up to the answer itself."""
SENTENCE_END = re.compile(r"(?<=[^\d\W])[.!?](?=\s|$)|(?<=\d)[.!?](?=\s|$)|(?<=[)\]*\"'$}])[.!?](?=\s|$)|\n")
_SPURIOUS = re.compile(
    r"(?:\b(?:wrong|incorrect|worst|least|common|popular|second|initial|first|earlier|tempting)(?:[ \t-]+\w+)?|"
    r"\b(?:students|people|others|some|many)\s+(?:\w+\s+)?(?:say|think|believe|claim|assume|guess)(?:\s+that)?"
    r"(?:\s+(?:the|its))?)[ \t-]+$",
    re.IGNORECASE,
)
"""Words before an announcement of an answer that is not the reply's own."""
_EMPHASIS = re.compile(r"(?<=[\d)])\*(?=[\d($])|(?<=\S )\*(?= \S)|([*`]+|(?<!\w)_+|_+(?!\w))")
"""Markdown emphasis, in its group; outside of it the sign of a product."""
_THOUSANDS = re.compile(r"(?<=\d)(?:\{,\}|,\\!|\\[,;!])(?=\d{3}(?!\d))")
"""Thousands separators of LaTeX: ``1{,}234``, ``1,\\!234``, ``1\\,234``."""
_FULL_WIDTH = {code + 0xFEE0: code for code in range(0x21, 0x7F) if code != ord(",")}
"""East Asian full-width characters to their ASCII forms, except the comma, which separates clauses there."""


def plain(reply: str) -> str:
    r"""The reply without Markdown emphasis, answer tags and LaTeX commands around texts; ``\boxed{X}`` becomes an
    announcement in words ("the answer is X")."""
    text = _THOUSANDS.sub(",", reply.translate(_FULL_WIDTH))
    text = _EMPHASIS.sub(lambda match: "" if match[1] else match[0], text)
    text = _LATEX_TEXT.sub(r" \1 ", text.replace("\u2212", "-").replace("\u2019", "'"))
    text = _BOXED.sub(lambda match: f"\nanswer: {match[1]}\n", text)
    return _TAG.sub(lambda match: "\n" if match[1] else "\nanswer: ", text).strip()


def announced(text: str, spurious: bool = False) -> Iterator[tuple[re.Match[str], str]]:
    """Yield (match, rest of its sentence) for each announcement of an answer in ``text``, which comes from ``plain``.
    ``spurious``: only those whose answer is not the reply's own (wrong, earlier, other people's); else only its own."""
    for match in CUE.finditer(text):
        if is_spurious(match) == spurious:
            rest = text[match.end() :].lstrip()
            yield match, (rest[: end.start()] if (end := SENTENCE_END.search(rest)) else rest).strip()


def is_spurious(match: re.Match[str]) -> bool:
    """Whether the 60 characters before an announcement disown its answer ("a wrong answer is")."""
    return bool(_SPURIOUS.search(match.string[max(0, match.start() - 60) : match.start()]))
