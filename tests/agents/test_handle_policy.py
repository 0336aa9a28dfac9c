"""The policy that speaks token ids: what is sent back of earlier turns, and what refusals become."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from lemur_ray.agents.endpoint_retries import RetryableError
from lemur_ray.agents.handle_policy import HandlePolicy, turns_of
from lemur_ray.agents.messages import (
    ChatRequest,
    ContextOverflow,
    Message,
    PolicyUnreachable,
    Sampling,
    Trace,
    Usage,
)
from lemur_ray.agents.policy_spec import PolicySpec

OPENING = (Message("system", "Walk."), Message("user", "Go."))


def answer(text: str, *ids: int) -> dict[str, Any]:
    counts = {"prompt_tokens": 9, "completion_tokens": len(ids), "cached_tokens": 4}
    return {"text": text, "ids": list(ids), "finish_reason": "stop", "version": "v1", **counts}


class Model:
    """Gives the answers one after another; an exception among them is raised."""

    def __init__(self, *answers: Any) -> None:
        self.answers, self.asked = list(answers), []  # type: list[Any], list[Mapping[str, Any]]
        self.now = 0.0
        self.slept: list[float] = []

    def __call__(self, asked: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        self.asked.append(asked)
        given = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(given, Exception):
            raise given
        return given  # type: ignore[no-any-return]

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def policy(self) -> HandlePolicy:
        return HandlePolicy(self, "handle:toy", patience_s=60.0, clock=lambda: self.now, sleep=self.sleep)


def test_earlier_turns_go_back_as_the_ids_that_were_generated():
    model = Model(answer("north", 5, 6), answer("east", 7))
    policy = model.policy()
    reply = policy.reply(ChatRequest(OPENING, Sampling(max_tokens=8, seed=3, stop=("\n",)), "e1"))
    assert (reply.text, reply.token_ids, reply.usage) == ("north", (5, 6), Usage(9, 2, 4))
    policy.reply(ChatRequest((*OPENING, Message("assistant", "north"), Message("user", "A wall.")), episode="e1"))
    assert model.asked[0]["turns"] == [{"role": "system", "content": "Walk."}, {"role": "user", "content": "Go."}]
    sampling = {"max_tokens": 8, "temperature": 0.0, "top_p": 1.0, "top_k": 0, "seed": 3, "stop": ()}
    assert model.asked[0]["sampling"] == sampling
    assert model.asked[1]["turns"][2:] == [{"ids": [5, 6]}, {"role": "user", "content": "A wall."}]


def test_a_reply_that_was_cut_here_goes_back_as_its_text_alone():
    """Both by a stop string and by the reply's token limit; the ids would hold what the environment never got."""
    model = Model(answer("north\nObservation: a door", 5, 6, 7, 8), answer("east", 9))
    policy = model.policy()
    reply = policy.reply(ChatRequest(OPENING, Sampling(max_tokens=8, stop=("\n",)), "e1"))
    assert (reply.text, reply.token_ids) == ("north", ())
    policy.reply(ChatRequest((*OPENING, Message("assistant", "north"), Message("user", "A wall.")), episode="e1"))
    assert model.asked[1]["turns"][2] == {"role": "assistant", "content": "north"}
    blank = {**answer("\n\n", 1, 1), "finish_reason": "length"}
    model = Model(blank, answer("go up, go down", 5, 6, 7, 8), answer("east", 9))
    policy = model.policy()
    reply = policy.reply(ChatRequest(OPENING, Sampling(max_tokens=2), "e2"))
    assert (reply.text, reply.finish_reason, reply.token_ids) == ("go up, ", "length", ())
    policy.reply(ChatRequest((*OPENING, Message("assistant", reply.text), Message("user", "?")), episode="e2"))
    assert model.asked[2]["turns"][2] == {"role": "assistant", "content": reply.text}
    assert [asked["sampling"]["max_tokens"] for asked in model.asked] == [2, 2 + 16_384, 64]


def test_a_traced_reply_is_one_draw_with_all_its_ids():
    traced = {"trace": {"prompt": [1, 2], "drawn": [5, 3], "logprobs": [-0.5, -0.25]}}
    model = Model({**answer("\n", 5), "finish_reason": "length", **traced})
    reply = model.policy().reply(ChatRequest(OPENING, Sampling(max_tokens=2), "e1", trace=True))
    assert reply.trace == Trace((1, 2), (5, 3), (-0.5, -0.25))
    assert [(asked["trace"], asked["sampling"]["max_tokens"]) for asked in model.asked] == [(True, 2)]
    model.policy().reply(ChatRequest(OPENING))
    assert "trace" not in model.asked[-1]


def test_further_sampling_options_are_sent_with_every_request():
    model = Model(answer("north", 5, 6))
    HandlePolicy(model, "handle:toy", sampling={"min_p": 0.1, "logit_bias": {7: -2.0}}).reply(ChatRequest(OPENING))
    sent = model.asked[0]["sampling"]
    assert (sent["min_p"], sent["logit_bias"], sent["max_tokens"]) == (0.1, {7: -2.0}, 64)


def test_a_reply_that_is_shown_otherwise_than_it_was_said_is_text():
    said = [("one", (1,)), ("two", (2,)), ("three", (3,))]
    shown = [Message("user", "u"), Message("assistant", "Assistant: two"), Message("assistant", "three")]
    assert turns_of(shown, said)[1:] == [{"role": "assistant", "content": "Assistant: two"}, {"ids": [3]}]
    assert turns_of(shown[1:2], []) == [{"role": "assistant", "content": "Assistant: two"}]


def test_a_cut_dialogue_and_a_second_attempt_send_the_right_ids():
    model = Model(answer("a", 1), answer("b", 2), answer("c", 3), answer("A", 9), answer("d", 4))
    policy = model.policy()
    talk = list(OPENING)
    for text in ("a", "b", "c"):
        assert policy.reply(ChatRequest(tuple(talk), episode="e")).text == text
        talk += [Message("assistant", text), Message("user", "?")]
    assert policy.reply(ChatRequest(OPENING, episode="e")).text == "A"  # the same episode once more
    policy.reply(ChatRequest((*OPENING, Message("assistant", "A"), Message("user", "?")), episode="e"))
    assert model.asked[4]["turns"][2] == {"ids": [9]}
    newest = [{"ids": [1]}, {"role": "user", "content": "?"}, {"ids": [2]}]
    assert model.asked[2]["turns"][2:5] == newest


def test_refusals_are_what_they_are_over_http():
    model = Model({"refused": "context", "message": "too long"})
    with pytest.raises(ContextOverflow, match="too long"):
        model.policy().reply(ChatRequest(OPENING))
    model = Model({"refused": "invalid", "message": "no such temperature"})
    with pytest.raises(PolicyUnreachable, match="no such temperature"):
        model.policy().reply(ChatRequest(OPENING))
    busy = {"refused": "busy", "message": "full", "retry_after_s": 7.0}
    model = Model(
        busy, {"refused": "closed", "message": "restarting"}, RetryableError("actor died"), answer("north", 5)
    )
    policy = model.policy()
    assert policy.reply(ChatRequest(OPENING)).text == "north"
    assert model.slept[0] == 7.0
    assert len(model.slept) == 3
    assert policy.pressure().refused == 1
    model = Model(RetryableError("actor died"))
    with pytest.raises(PolicyUnreachable, match=r"actor died .*requests in 60 s of patience"):
        model.policy().reply(ChatRequest(OPENING))


def test_the_command_line_knows_the_policy_and_says_that_it_must_be_served():
    spec = PolicySpec.parse("handle:nano")
    assert (spec.kind, spec.target, spec.served_here) == ("handle", "nano", True)
    with pytest.raises(ValueError, match="must be served"):
        spec()


def test_a_template_that_refuses_two_turns_of_the_user_in_a_row_is_shown_them_as_one():
    refused = {"refused": "invalid", "message": "roles must alternate"}
    silent = (Message("user", "Go."), Message("user", "I don't understand."))
    model = Model(refused, answer("north", 5))
    assert model.policy().reply(ChatRequest(silent)).text == "north"
    assert model.asked[1]["turns"] == [{"role": "user", "content": "Go.\n\nI don't understand."}]
    with pytest.raises(PolicyUnreachable, match="roles must alternate"):
        Model(refused).policy().reply(ChatRequest(OPENING))
