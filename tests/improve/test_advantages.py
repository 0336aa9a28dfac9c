"""Advantages against tables made by hand: ties, loops of states, groups without differences."""

import numpy as np
import pytest

from lemur_ray.improve.advantages import Member, Turn, advantages

A = Member(1.0, [Turn("s", "left"), Turn("t", "take")])
B = Member(0.0, [Turn("s", "right"), Turn("s", "right")])  # a loop: the state comes twice
C = Member(0.0, [Turn("s", "left"), Turn("u", "look")])
DEVIATION = 2**0.5 / 3 + 1e-6


@pytest.mark.parametrize(
    ("algorithm", "expected"),
    [
        ("rloo", [[1, 1], [-0.5, -0.5], [-0.5, -0.5]]),
        ("grpo", [[2 / 3 / DEVIATION] * 2, [-1 / 3 / DEVIATION] * 2, [-1 / 3 / DEVIATION] * 2]),
        ("state", [[0.5 - 0.25, 0], [-0.25, -0.25], [0.5 - 0.25, 0]]),
        ("gigpo", [[1 + 0.95 * 0.75, 1], [-0.5 - 0.95 / 4] * 2, [-0.5 - 0.95 / 4, -0.5]]),
    ],
)
def test_a_table_made_by_hand(algorithm: str, expected: list[list[float]]) -> None:
    found = advantages([A, B, C], algorithm)  # type: ignore[arg-type]
    for values, wanted in zip(found, expected, strict=True):
        np.testing.assert_allclose(values, wanted, rtol=1e-12)


@pytest.mark.parametrize("algorithm", ["rloo", "grpo", "state"])
def test_a_group_of_equal_rewards_teaches_exactly_nothing(algorithm: str) -> None:
    for reward in (0.0, 0.1, 0.3, 1.0):
        group = [member._replace(reward=reward) for member in (A, B, C)]
        assert not np.concatenate(advantages(group, algorithm)).any()  # type: ignore[arg-type]


def test_gigpo_prefers_the_shorter_of_two_wins_and_teaches_nothing_of_lost_groups() -> None:
    slow = Member(1.0, [Turn("s", "look"), Turn("s", "left"), Turn("t", "take")])
    first, second = advantages([A, slow], "gigpo")
    assert first[0] > 0 > second[0]
    assert not np.concatenate(advantages([B, C], "gigpo")).any()


def test_commands_of_equal_worth_have_no_advantage_in_spite_of_rounding() -> None:
    group = [Member(reward, [Turn("s", command)]) for command in ("a", "b") for reward in (1.0, 0.0, 0.0)]
    assert not np.concatenate(advantages(group, "state")).any()


def test_unknown_states_are_compared_with_no_others() -> None:
    group = [Member(m.reward, [Turn("", turn.command) for turn in m.turns]) for m in (A, B, C)]
    assert [list(one) for one in advantages(group, "gigpo")] == [list(one) for one in advantages(group, "rloo")]
    assert not np.concatenate(advantages(group, "state")).any()


@pytest.mark.parametrize("reward", [1.5, -0.1, float("nan")])
def test_rewards_outside_0_to_1_and_groups_of_one_are_refused(reward: float) -> None:
    with pytest.raises(ValueError, match="expected numbers from 0 to 1"):
        advantages([A, B._replace(reward=reward)], "rloo")
    with pytest.raises(ValueError, match="a group of one episode"):
        advantages([A], "rloo")
