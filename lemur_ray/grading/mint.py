"""Both graders of MINT: ``mint-2023``, the rule of the recorded runs, and ``strict``.

Every proposal is graded by both, whichever decides the episode; reports show both and the tasks on which they differ.
ALFWorld is absent, since its game decides success. Knows no episode."""

from dataclasses import dataclass
from typing import Any, Literal, Protocol

from lemur_ray.grading.choices import choice_matches, choice_matches_2023, options_of
from lemur_ray.grading.names_in_tests import task_definitions
from lemur_ray.grading.python_tests import TestRun
from lemur_ray.grading.short_answers import matches_2023, number_equals, number_matches, phrase_matches
from lemur_ray.grading.theorem import OptionRule, theorem_matches, theorem_matches_2023

Grader = Literal["mint-2023", "strict"]
GRADERS: tuple[Grader, ...] = ("mint-2023", "strict")


class RunTests(Protocol):
    """Function that runs a program against tests (Python source) and returns the result. ``setup``: code of the task
    that runs before the tests."""

    def __call__(self, solution: str, tests: str, setup: str = "") -> TestRun: ...


@dataclass(frozen=True)
class Verdicts:
    """Verdicts of the graders ``mint_2023`` and ``strict`` on one answer. ``exact``: of gsm8k and math, whether the
    numbers are equal; else None. ``note``: why a program failed."""

    mint_2023: bool
    strict: bool
    exact: bool | None = None
    note: str = ""

    def by(self, grader: Grader) -> bool:
        return self.mint_2023 if grader == "mint-2023" else self.strict


def grade(
    subset: str,
    answer: str,
    reference: Any,
    *,
    prompt: str = "",
    answer_type: str = "",
    option_rule: OptionRule = "legacy",
    run_tests: RunTests | None = None,
) -> Verdicts:
    """Grade one answer by both graders. ``subset``: name of MINT's data set, such as "gsm8k". ``reference``: the right
    answer, or for programs the tests. ``prompt``: MMLU's options, or HumanEval's prompt with the helpers of its tests.
    ``answer_type``, ``option_rule``: of TheoremQA. ``run_tests``: runs a program. Raises ValueError for a subset
    without answers, or for programs without ``run_tests``."""
    if subset in ("gsm8k", "math"):
        strict = number_matches(answer, str(reference))
        return Verdicts(matches_2023(answer, str(reference)), strict, exact=number_equals(answer, str(reference)))
    if subset == "hotpotqa":
        text = str(reference)
        return Verdicts(matches_2023(answer, text), phrase_matches(answer, text))
    if subset == "mmlu":
        options = options_of(prompt)
        return Verdicts(choice_matches_2023(answer, reference, options), choice_matches(answer, reference, options))
    if subset == "theoremqa":
        legacy = theorem_matches_2023(answer, reference, answer_type, option_rule)
        return Verdicts(legacy, theorem_matches(answer, reference, answer_type))
    if subset in ("humaneval", "mbpp"):
        if run_tests is None:
            raise ValueError(f"{subset}: a program cannot be graded without a sandbox")
        tests = str(reference)
        run = run_tests(answer, tests)
        setup = task_definitions(prompt, tests) if subset == "humaneval" else ""
        # Recorded runs took the task's helpers from the answer too; the strict grader uses the task's own.
        strictly = run_tests(answer, tests, setup) if setup else run
        return Verdicts(run.passed, strictly.passed, note=run.note)
    raise ValueError(f"{subset}: has no answers to grade")
