"""What is exported of an episode is what its policy was shown, word by word, whatever part of the past that was."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lemur_ray.agents.messages import ChatReply, ChatRequest, Message, Sampling, Trace
from lemur_ray.agents.trajectory import Episode, EpisodeKey
from lemur_ray.instruct.solved import SolvedFilter, conversations_of, select
from lemur_ray.rollout.attempt import EpisodeSpec
from lemur_ray.rollout.episode import run_episode
from tests.rollout.toy import toy_task

EXAMPLE = [{"role": "user", "content": "seed 0"}, {"role": "assistant", "content": "right"}]


class Keeping:
    """Walks right, each time in other words of blanks; keeps what it was asked."""

    name = "keeping"

    def __init__(self) -> None:
        self.asked: list[ChatRequest] = []

    def reply(self, request: ChatRequest) -> ChatReply:
        self.asked.append(request)
        return ChatReply("right" + " " * len(self.asked))


def played(**options: Any) -> tuple[Episode, list[ChatRequest]]:
    """An episode as a ledger gives it back, and what its policy was asked."""
    policy, task = Keeping(), toy_task(length=5, **options)
    key = EpisodeKey("toy", task.id, policy.name, "r")
    attempt = run_episode(EpisodeSpec(key, task, Sampling()), policy, clock=lambda: 0.0)
    episode = Episode(key, "line", attempt.outcome, attempt.score, 1, attempt.trajectory, detail=attempt.detail)
    return Episode.from_json(replace(episode, note=attempt.note).to_json()), policy.asked


def bare(messages: tuple[Message, ...]) -> list[tuple[str, str]]:
    return [(message.role, message.content) for message in messages]


@pytest.mark.parametrize(
    ("reset_info", "first_turns"),
    [
        ({"dialogue_limit": 0}, [1, 2, 3, 4, 5]),
        ({"dialogue_limit": 1}, [1, 3, 4, 5]),
        ({"dialogue_limit": 5}, [1, 4, 5]),
        ({"reply_prefix": "Assistant: "}, [1, 2, 3, 4, 5]),
        ({"reply_prefix": "Assistant: ", "dialogue_limit": 4}, [1, 2, 3, 4, 5]),
    ],
)
@pytest.mark.parametrize("before", [[], EXAMPLE])
def test_every_reply_is_trained_once_after_the_messages_that_its_policy_was_shown(
    reset_info: dict[str, Any], first_turns: list[int], before: list[Any]
) -> None:
    episode, asked = played(reset_info={**reset_info, "ask": {"before": before}})
    assert episode.trajectory.dialogue_limit == reset_info.get("dialogue_limit")
    examples = conversations_of(episode)
    assert [one.id for one in examples] == [f"{episode.key}|turn {turn}" for turn in first_turns]
    trained = [
        (bare(example.messages[:place]), message.content)
        for example in examples
        for place, message in enumerate(example.messages)
        if message.role == "assistant" and message.weight
    ]
    replies = [step.reply for step in episode.trajectory.steps]
    assert trained == [(bare(request.messages), reply) for request, reply in zip(asked, replies, strict=True)]


def test_an_episode_of_a_version_that_recorded_no_limit_is_one_example() -> None:
    record = played(reset_info={"dialogue_limit": 4, "reply_prefix": "Assistant: "})[0].to_json()
    del record["trajectory"]["dialogue_limit"], record["trajectory"]["reply_prefix"]
    (example,) = conversations_of(Episode.from_json(record))
    assert len(example.messages) == 11


@pytest.mark.parametrize("reset_info", [{}, {"dialogue_limit": 8}, {"ask": {"before": EXAMPLE}}])
def test_where_every_turn_saw_the_whole_past_the_conversation_is_one_example(reset_info: dict[str, Any]) -> None:
    episode, asked = played(reset_info=reset_info)
    (example,) = conversations_of(episode)
    assert example.id == str(episode.key)
    assert bare(example.messages[:-1]) == bare(asked[-1].messages)
    said = [message for message in example.messages if message.role == "assistant"]
    learned = [message.content for message in said if message.weight]
    assert learned == [step.reply for step in episode.trajectory.steps]
    assert [m.weight for m in said[:-5]] == [0] * (len(said) - 5), "no model said what stands in examples"


def test_traces_and_states_are_of_the_attempt_and_never_of_its_record() -> None:
    class Traced(Keeping):
        def reply(self, request: ChatRequest) -> ChatReply:
            number = len(self.asked)
            return replace(super().reply(request), trace=Trace((1,), (number,), (-0.5,)))

    task = toy_task(length=2, reset_info={"state": "at the start"}, step_info={"state": "on the way"})
    key = EpisodeKey("toy", task.id, "p", "r")
    attempt = run_episode(EpisodeSpec(key, task, Sampling()), Traced(), clock=lambda: 0.0)
    assert attempt.traces == (
        Trace((1,), (0,), (-0.5,), "at the start"), Trace((1,), (1,), (-0.5,), "on the way")
    )  # fmt: skip
    record = Episode(key, "line", attempt.outcome, attempt.score, 1, attempt.trajectory).to_json()
    assert "on the way" not in str(record)
    assert run_episode(EpisodeSpec(key, task, Sampling()), Keeping(), clock=lambda: 0.0).traces == ()


def test_what_an_environment_notes_is_no_trouble_and_what_was_cut_is() -> None:
    noted, _ = played(step_info={"note": "counts: 3"})
    assert (noted.note, noted.detail) == ("counts: 3", "")
    assert select([noted], SolvedFilter()).episodes == [noted]
    cut = replace(noted, detail="reply of turn 1: cut")
    assert select([cut], SolvedFilter()).dropped == {"cut_or_troubled": 1}
