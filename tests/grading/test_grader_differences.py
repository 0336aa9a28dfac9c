"""Differences between graders: each has a cause, a reason of the published program, or is unexplained."""

from __future__ import annotations

from tests.grading.parity.compare import Cause, Reply, differences, summary


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
