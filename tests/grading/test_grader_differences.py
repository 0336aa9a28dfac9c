"""Differences between graders: each has a cause, a reason of the published program, or is unexplained."""

from __future__ import annotations

from collections.abc import Callable

from envs.language.gsm8k import numbers
from tests.grading.parity.causes import LM_EVAL
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
