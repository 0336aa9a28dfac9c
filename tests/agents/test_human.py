"""The policy that is a person: what is shown, what a reply is, and leaving."""

from __future__ import annotations

import io

import pytest

from lemur_ray.agents.baselines.human import HumanPolicy
from lemur_ray.agents.messages import ChatRequest, Message
from lemur_ray.agents.policy_spec import PolicySpec


def human(*lines: str) -> tuple[HumanPolicy, io.StringIO]:
    left, out = list(lines), io.StringIO()
    return HumanPolicy(lambda: left.pop(0) if left else "", out), out


OPENING = (Message("system", "Walk."), Message("user", "You are in a room."))


def test_what_was_said_since_the_last_turn_is_shown_and_a_line_is_the_reply():
    policy, out = human("go north\n", "look\n")
    assert policy.reply(ChatRequest(OPENING, episode="toy|t0|human|r|0")).text == "go north"
    assert out.getvalue() == "\n=== t0\n--- system\nWalk.\nYou are in a room.\n> "
    out.truncate(0)
    out.seek(0)
    more = (*OPENING, Message("assistant", "go north"), Message("user", "A wall."))
    assert policy.reply(ChatRequest(more, episode="toy|t0|human|r|0")).text == "look"
    assert out.getvalue() == "A wall.\n> "


def test_a_fence_that_is_opened_is_read_to_its_end():
    policy, _ = human("```sql\n", "SELECT 1\n", "```\n", "next\n")
    assert policy.reply(ChatRequest(OPENING)).text == "```sql\nSELECT 1\n```"
    assert policy.reply(ChatRequest(OPENING)).text == "next"


@pytest.mark.parametrize("lines", [(), ("```sh\n",)])
def test_the_end_of_input_is_leaving(lines: tuple[str, ...]):
    policy, _ = human(*lines)
    with pytest.raises(KeyboardInterrupt):
        policy.reply(ChatRequest(OPENING))


def test_escapes_in_an_observation_do_not_reach_the_terminal():
    policy, out = human("x\n")
    policy.reply(ChatRequest((Message("user", "\x1b]0;owned\x07 \u202e caf\xe9\tok"),)))
    assert "\\x1b]0;owned\\x07 \\u202e caf\xe9\tok" in out.getvalue()
    assert "\x1b" not in out.getvalue()


def test_the_command_line_knows_the_policy():
    assert PolicySpec.parse("human").label == "human"
    assert PolicySpec.parse("human")().name == "human"
