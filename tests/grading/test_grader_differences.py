"""Differences between graders: each has a cause, a reason of the published program, or is unexplained."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import replace

from envs.language.gsm8k import numbers
from tests.grading.parity.causes import COMPILED, LM_EVAL, OURS, PROGRAMS, THEIRS
from tests.grading.parity.compare import Cause, Difference, Reply, differences, summary
from tests.grading.parity.written_replies import number_forms


def test_a_difference_has_the_first_cause_that_fits_or_the_peers_reason_or_none() -> None:
    replies = [Reply("gold", "a", "1"), Reply("hostile, x", "a", "2"), Reply("gold", "b", "3"), Reply("gold", "c", "4")]
    causes = [Cause("exit code", False, ("hostile",)), Cause("other", True, comparisons=("another",))]
    found = differences("one", replies, [True, False, True, False], [True, True, "it raises", "no"], causes)
    assert [(one.kind, one.ours, one.theirs, one.cause) for one in found] == [
        ("hostile, x", False, True, "exit code"),
        ("gold", True, False, "it raises"),
    ]
    (unexplained,) = differences("one", replies[:1], [False], [True], causes)
    assert unexplained.cause == ""
    assert "1 unexplained" in summary("one", replies[:1], [unexplained])


def test_a_fault_of_ours_is_not_hidden_by_a_cause_that_reads_the_reply_otherwise() -> None:
    name, kinds = (
        "gsm8k_cot strict-match",
        ("in dollars", "no full stop", "with decimals", "two answers, the last right"),
    )
    forms = number_forms("18", "9 eggs.")
    replies = [Reply(kind, "1", forms[kind], {"reference": "18"}) for kind in kinds]

    def explained(grade: Callable[[Reply], bool]) -> list[Difference]:
        ours = [grade(reply) for reply in replies]
        return differences(name, replies, ours, [False] * len(replies), LM_EVAL, grade)

    right = explained(lambda reply: numbers.answer_asked(reply.text) in ("18", "18.00"))
    assert [one.kind for one in right if one.cause] == list(kinds)
    everything_is_right = explained(lambda reply: True)
    any_number = explained(lambda reply: any(one.isdigit() for one in reply.text))
    assert not any(one.cause for one in everything_is_right)
    assert [one.kind for one in any_number if one.cause] == ["in dollars"]


def test_a_fault_is_not_hidden_by_a_cause_that_the_published_grader_has_to_confirm() -> None:
    hostile, right = Reply("hostile, x", "add", "leaves"), Reply("hostile, y", "add", "adds")

    def published(those: Sequence[Reply]) -> list[bool]:
        """One that counts what leaves as right, whatever its tests ask for."""
        return [reply.text == "leaves" or "other answers" not in reply.more for reply in those]

    def explained(*replies: Reply, ask: Callable[[Sequence[Reply]], list[bool]] | None = published) -> list[str]:
        mine = [False] * len(replies)
        found = differences("multipl_e sh", replies, mine, published(replies), COMPILED, published=ask)
        return [one.kind for one in found if one.cause]

    assert explained(hostile, right) == ["hostile, x"], "a right program that this project rejects is no attack"
    assert explained(hostile, ask=None) == []


def test_a_fault_is_not_hidden_by_two_graders_that_read_other_programs_from_a_reply() -> None:
    name, programs = "evalplus", {THEIRS: "", OURS: "right"}
    reply = Reply("an indented fence", "a", "whole", programs)

    def explained(reply: Reply, grade: Callable[[Reply], bool]) -> bool:
        """Beside a published grader that accepts a fence with the right program alone."""

        def published(those: Sequence[Reply]) -> list[bool]:
            return [one.text == "```python\nright\n```" for one in those]

        (one,) = differences(name, [reply], [True], [False], PROGRAMS, grade, published)
        return bool(one.cause)

    assert explained(reply, lambda one: "right" in one.text)
    assert not explained(reply, lambda one: True), "the program that the published grader reads is not right"
    wrong = replace(reply, more={**programs, OURS: "wrong"})
    assert not explained(wrong, lambda one: "right" in one.text or one is wrong), "nor is the one that was read here"


def test_a_fault_is_not_hidden_by_an_answer_in_small_letters() -> None:
    name, more = "bbh_zero flexible-extract", {"reference": "(A)"}

    def published(those: Sequence[Reply]) -> list[bool]:
        return [re.findall(r"\(([A-Z])\)", reply.text)[-1:] == ["A"] for reply in those]

    def explained(text: str) -> bool:
        grade = lambda reply: "answer is" in reply.text  # noqa: E731
        reply = Reply("in small letters", "a", text, more)
        (one,) = differences(name, [reply], [True], [False], LM_EVAL, grade, published)
        return bool(one.cause)

    assert explained("so the answer is (a).")
    assert not explained("so the answer is (b)."), "one that accepts every announced answer"
