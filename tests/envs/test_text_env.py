"""What every text environment keeps: the space of messages, options by name, an episode's end, the keys of info."""

import json
import pickle

import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given
from hypothesis import strategies as st

from envs.spaces import Message
from envs.text_env import Opening, TextEnv, Turn
from lemur_ray.agents.trajectory import Outcome


class Countdown(TextEnv):
    """Say "done" to solve, "quit" to give up; anything else is invalid."""

    option_names = frozenset({"greeting", "memory", "notes"})
    default_max_steps = 3

    def begin(self, options):
        greeting = options.get("greeting", "hello")
        if not isinstance(greeting, str):
            raise ValueError("greeting")
        self.notes = options.get("notes", False)
        return Opening(
            greeting,
            system="say done",
            dialogue_limit=options.get("memory"),
            note="begun" if self.notes else "",
            on_value_error="quit {error}" if self.notes else "",
        )

    def respond(self, reply):
        if reply == "done":
            return Turn("well done", "done", valid=True, solved=True, score=1.0)
        if reply == "quit":
            return Turn("bye", "quit", valid=True, finished=True, score=0.25)
        if reply == "step":
            return Turn("one step", "step", valid=True, reward=0.125, score=0.75)
        if reply == "explode":
            return Turn("gone", "explode", valid=True, finished=True, outcome=Outcome.SANDBOX_DESTROYED)
        return Turn("what?", None, valid=False, score=0.5, note="confused" if self.notes else "")


def test_it_passes_gymnasiums_own_check_without_a_warning():
    check_env(Countdown(), skip_render_check=True)


class Opens(Countdown):
    """Closes by itself what ``begin`` opened, and has a second thing closed by the base class."""

    def begin(self, options):
        self.ended = []
        self.opened.callback(self.ended.append, "second")
        return super().begin(options)

    def close(self):
        self.ended.append("first")
        super().close()


def test_a_reset_ends_what_the_episode_before_opened_and_needs_no_close_before_the_first():
    env = Opens()
    env.reset()
    of_first = env.ended
    env.reset()
    assert (of_first, env.ended) == (["second"], [])
    env.close()
    env.close()
    assert env.ended == ["first", "second", "first"]


def test_a_solved_task_is_terminated_and_rewarded():
    env = Countdown()
    observation, info = env.reset()
    assert (observation, info) == ("hello", {"action": None, "valid": True, "solved": False, "system": "say done"})
    assert env.step("?") == ("what?", 0.0, False, False, {"action": None, "valid": False, "solved": False})
    assert env.step("done") == (
        *("well done", 1.0, True, False),
        {"action": "done", "valid": True, "solved": True, "outcome": "solved", "score": 1.0},
    )


def test_what_is_kept_of_an_episode_is_told_at_every_turn_since_any_may_be_its_last():
    env = Countdown()
    _, info = env.reset(options={"notes": True})
    assert (info["note"], info["ask"]) == ("begun", {"on_value_error": "quit {error}"})
    assert [env.step("?")[4]["note"] for _ in range(3)] == ["confused"] * 3


def test_the_limit_truncates_with_the_score_so_far_and_solving_at_the_limit_is_solving():
    env = Countdown()
    env.reset(options={"max_steps": 1})
    assert env.step("?")[1:] == (
        *(0.5, False, True),
        {"action": None, "valid": False, "solved": False, "outcome": "turn_limit", "score": 0.5},
    )
    env.reset(options={"max_steps": 1})
    assert env.step("done")[1:4] == (1.0, True, False)


def test_a_finished_task_that_is_not_solved_failed_or_says_why():
    env = Countdown()
    env.reset()
    assert env.step("quit")[1:4] == (0.25, True, False)
    env.reset()
    assert env.step("explode")[4]["outcome"] == "sandbox_destroyed"


def test_a_benchmark_may_reward_every_turn_and_limit_what_is_shown_of_the_past():
    env = Countdown()
    assert env.reset(options={"max_steps": 2, "memory": 4})[1]["dialogue_limit"] == 4
    assert "dialogue_limit" not in env.reset(options={"max_steps": 2})[1]
    assert env.step("step")[1:4] == (0.125, False, False)
    _, reward, _, truncated, info = env.step("step")
    assert (reward, truncated, info["score"]) == (0.125, True, 0.75)


def test_no_step_before_a_reset_after_the_end_or_after_a_reset_that_failed():
    env = Countdown()
    with pytest.raises(RuntimeError, match="call reset first"):
        env.step("done")
    env.reset()
    env.step("done")
    with pytest.raises(RuntimeError, match="call reset first"):
        env.step("done")
    env.reset()
    with pytest.raises(ValueError, match="greeting"):
        env.reset(options={"greeting": 3})
    with pytest.raises(RuntimeError, match="call reset first"):
        env.step("done")


def test_what_is_not_a_string_is_no_reply():
    env = Countdown()
    env.reset()
    with pytest.raises(TypeError, match="reply of type int: expected a string"):
        env.step(3)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"greting": "x"}, "unknown option 'greting': did you mean 'greeting'"),
        ({"max_steps": "3"}, "option max_steps: '3'"),
        ({"max_steps": True}, "option max_steps: True"),
        ({"hints": 1}, "option hints: 1"),
        ({"hints": True}, "Countdown has no hints"),
    ],
)
def test_options_that_mean_nothing_are_refused(options, complaint):
    with pytest.raises(ValueError, match=complaint):
        Countdown().reset(options=options)


@given(st.text())
def test_any_unicode_text_is_a_message_and_survives_json(text):
    space = Message()
    assert text in space
    assert space.from_jsonable(json.loads(json.dumps(space.to_jsonable([text])))) == [text]


@pytest.mark.parametrize("value", [b"bytes", 3, None, ["text"], "half a pair: \ud83d"])
def test_what_cannot_be_written_as_text_is_no_message(value):
    assert value not in Message()


def test_messages_are_sampled_from_a_seed_and_are_messages():
    space, twin = Message(seed=5), Message(seed=5)
    samples = [space.sample() for _ in range(200)]
    assert samples == [twin.sample() for _ in range(200)]
    assert all(sample in space for sample in samples)
    assert len(set(samples)) > 150
    twin.seed(6)
    assert samples != [twin.sample() for _ in range(200)]
    with pytest.raises(ValueError, match="no mask"):
        space.sample(mask=object())


def test_a_space_of_messages_is_equal_to_any_other_and_pickles():
    space = Message(seed=1)
    space.sample()
    copied = pickle.loads(pickle.dumps(space))
    assert copied == space == Message()
    assert copied.sample() == space.sample()
    assert repr(space) == "Message()"
