"""Our own episodes are recordings, too: they are said again turn by turn, whatever of the past a policy is shown."""

from __future__ import annotations

import pytest

from lemur_ray.agents.messages import ChatRequest, Message
from lemur_ray.agents.recording import record_episodes, trailing_number
from lemur_ray.agents.replay import ReplayPolicy
from lemur_ray.agents.trajectory import Episode, EpisodeKey, Outcome, Step, Trajectory


def episode(*replies: str, epoch: int = 0) -> Episode:
    steps = tuple(Step(reply, reply or None, "seen", 0.0, bool(reply)) for reply in replies)
    key = EpisodeKey("b", "t-3", "p", "r", epoch)
    return Episode(key, "c", Outcome.FAILED, 0.0, 1, Trajectory((), steps))


def say(policy: ReplayPolicy, of: Episode, *shown: Message) -> str:
    return policy.reply(ChatRequest((Message("user", "q"), *shown), episode=str(of.key))).text


def test_an_empty_reply_that_left_no_message_counts_as_a_turn() -> None:
    played = episode("", "second", "third")
    policy = ReplayPolicy(record_episodes([played], "ledger"))
    past = [Message("user", "seen"), Message("assistant", "second"), Message("user", "seen")]
    assert [say(policy, played, *past[:n]) for n in (0, 1, 3)] == ["", "second", "third"]
    assert say(policy, played, *past, *past[1:]) == "", "longer than before: another episode"
    assert [say(policy, played), say(policy, played, *past[:1])] == ["", "second"], "from its start after a fault"


def test_epochs_of_a_task_are_episodes_of_their_own() -> None:
    first, second = episode("a"), episode("b", epoch=1)
    policy = ReplayPolicy(record_episodes([first, second], "ledger"))
    assert [say(policy, second), say(policy, first)] == ["b", "a"]
    with pytest.raises(KeyError, match="no episode of task"):
        say(policy, episode("c", epoch=2))


def test_a_task_without_a_number_is_in_no_numbered_recording() -> None:
    assert trailing_number("spider-db-007") == "7"
    with pytest.raises(ValueError, match="does not end in the number"):
        trailing_number("spider-db")
