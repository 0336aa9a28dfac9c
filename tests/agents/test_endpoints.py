"""The policy at endpoints as they are: behind keys, of other protocols, thinking, hostile."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.agents.api_keys import Key
from lemur_ray.agents.endpoint import EndpointOptions
from lemur_ray.agents.messages import ChatRequest, EndpointRefused, Message, PolicyUnreachable
from lemur_ray.agents.openai_policy import OpenAIPolicy
from lemur_ray.agents.throttle import Throttle
from tests.agents.misbehaving import GO, Answer, ask, completion, refusal, serving, serving_in_turn

SECRET = "sk-test-4711-sesame"


# Keys


def test_the_key_is_sent_to_its_endpoint_and_none_where_there_is_none() -> None:
    with serving_in_turn(completion()) as server:
        ask(server, key=Key(SECRET))
        ask(server)
    assert server.headers[0]["authorization"] == f"Bearer {SECRET}"
    assert "authorization" not in server.headers[1]


def test_what_the_environment_says_of_other_accounts_goes_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OPENAI_API_KEY", "OPENAI_ORG_ID", "OPENAI_PROJECT_ID"):
        monkeypatch.setenv(name, SECRET)
    with serving_in_turn(completion()) as server:
        ask(server)
    assert SECRET not in str(server.headers)


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_a_redirect_to_another_host_gets_neither_key_nor_conversation(status: int) -> None:
    with serving_in_turn(completion()) as other:
        away: Answer = (status, {"Location": f"{other.url}/chat/completions"}, b"")
        with (
            serving_in_turn(away) as server,
            pytest.raises(EndpointRefused, match="redirects are not followed") as told,
        ):
            ask(server, key=Key(SECRET))
        assert (len(server.asked), other.headers) == (1, [])
        assert other.url in str(told.value)


def test_a_key_that_a_server_says_aloud_is_kept_by_nobody() -> None:
    aloud = refusal(401, message=f"Incorrect API key provided: {SECRET}")
    with serving_in_turn(aloud) as server, pytest.raises(EndpointRefused, match="Incorrect") as told:
        ask(server, key=Key(SECRET, name="MINE"))
    assert SECRET not in str(told.value)
    assert "--policy-key-env MINE" in str(told.value)
    with serving_in_turn(completion(f"You sent {SECRET}.", system_fingerprint=SECRET)) as server:
        reply = ask(server, key=Key(SECRET))
    assert SECRET not in f"{reply}"


def test_a_key_that_changes_in_its_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("first-key-0001")

    def answer(asked: dict[str, Any]) -> Answer:
        valid = server.headers[-1].get("authorization") == "Bearer second-key-0002"
        return completion() if valid else refusal(401, message="expired")

    with serving(answer) as server:
        options = EndpointOptions(Key.named("MINE", "--policy-key-env", {"MINE_FILE": str(file)}), patience_s=20.0)
        policy = OpenAIPolicy(server.url, "toy", options=options)
        with pytest.raises(EndpointRefused, match="status 401: expired"):
            policy.reply(GO)
        file.write_text("second-key-0002")
        assert policy.reply(GO).text == "right"
        assert len(server.asked) == 3
        policy.close()


# Refusals


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (refusal(401), "no key was sent: name the environment variable that holds it with --policy-key-env"),
        (refusal(402, message="Insufficient Balance"), "Insufficient Balance"),
        (refusal(403), "status 403"),
        (refusal(404), "is there a model 'toy', and does the address end in /v1"),
        (refusal(429, "insufficient_quota", "You exceeded your current quota"), "exceeded your current quota"),
        (refusal(429, Retry_After="86400"), "next pause 86400"),
        ((400, {}, b'{"error": {"message": "no", "code": "unsupported_value", "param": "temperature"}}'),
         "leave the field out with --policy-body '{\"temperature\": null}'"),
        ((400, {}, b'{"error": {"message": "no", "code": "unknown_parameter", "param": "tools"}}'), "--tools words"),
    ],
)  # fmt: skip
def test_where_nothing_can_come_of_it_one_request_and_one_line_are_the_end(answer: Answer, said: str) -> None:
    with serving_in_turn(answer) as server, pytest.raises(EndpointRefused) as told:
        ask(server)
    assert said in str(told.value)
    assert "\n" not in str(told.value)
    assert len(server.asked) == 1


def test_requests_that_make_no_sense_to_an_endpoint_end_the_run_only_if_none_ever_did() -> None:
    with serving_in_turn(refusal(400, message="no such template")) as server:
        policy = OpenAIPolicy(server.url, "toy", patience_s=20.0)
        for _ in range(2):
            with pytest.raises(PolicyUnreachable) as told:
                policy.reply(GO)
            assert not isinstance(told.value, EndpointRefused)
        with pytest.raises(EndpointRefused, match="the first 3 requests were refused, status 400: no such template"):
            policy.reply(GO)
        policy.close()
    with serving_in_turn(refusal(400, message="no parser")) as server:
        policy = OpenAIPolicy(server.url, "toy", patience_s=20.0)
        with_tools = replace(GO, tools=({"type": "function", "function": {"name": "look"}},))
        for _ in range(2):
            with pytest.raises(PolicyUnreachable):
                policy.reply(with_tools)
        with pytest.raises(EndpointRefused, match="no parser; for endpoints without tools: --tools words"):
            policy.reply(with_tools)
        policy.close()
    with serving_in_turn(completion(), refusal(400)) as server:
        policy = OpenAIPolicy(server.url, "toy", patience_s=20.0)
        policy.reply(GO)
        for _ in range(5):
            with pytest.raises(PolicyUnreachable) as told:
                policy.reply(GO)
            assert not isinstance(told.value, EndpointRefused)
        policy.close()


def test_who_joins_late_in_a_bad_moment_does_not_end_the_run_of_those_who_were_answered() -> None:
    garbage: Answer = (200, {"Content-Type": "application/json"}, b"{garbage")
    everybodys = Throttle()
    with serving_in_turn(completion(), *[garbage] * 6, completion()) as server:
        ask(server, places=everybodys)
        newcomer = OpenAIPolicy(
            server.url, "toy", options=EndpointOptions(patience_s=20.0, places=everybodys), sleep=lambda pause_s: None
        )
        assert newcomer.reply(GO).text
        newcomer.close()
    with serving_in_turn(completion(), *[refusal(400)] * 4) as server:
        ask(server, places=everybodys)
        newcomer = OpenAIPolicy(server.url, "toy", options=EndpointOptions(patience_s=20.0, places=everybodys))
        for _ in range(4):
            with pytest.raises(PolicyUnreachable) as told:
                newcomer.reply(GO)
            assert not isinstance(told.value, EndpointRefused)
        newcomer.close()


# Long and thinking


def test_a_reply_that_is_one_line_of_five_megabytes_is_a_reply() -> None:
    with serving_in_turn(completion("x" * 5_000_000)) as server:
        assert len(ask(server).text) == 5_000_000
    with serving_in_turn(refusal(500, message="x" * 5_000_000), completion()) as server:
        assert ask(server).text == "right"


def test_the_field_that_bounds_a_reply_is_the_one_that_the_model_takes() -> None:
    wants = refusal(
        400, "unsupported_parameter", "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
    )

    def answer(asked: dict[str, Any]) -> Answer:
        return wants if "max_tokens" in asked else completion()

    with serving(answer) as server:
        policy = OpenAIPolicy(server.url, "toy", patience_s=20.0)
        assert policy.reply(GO).text == policy.reply(GO).text == "right"
        assert [sorted({"max_tokens", "max_completion_tokens"} & set(asked)) for asked in server.asked] == [
            ["max_tokens"], ["max_completion_tokens"], ["max_completion_tokens"],
        ]  # fmt: skip
        assert ask(server, token_field="max_completion_tokens").text == "right"
        policy.close()


@pytest.mark.parametrize("resend", [False, True])
@pytest.mark.parametrize("field", ["reasoning", "reasoning_content"])
def test_thoughts_are_sent_back_as_they_came_only_where_that_is_asked_for(resend: bool, field: str) -> None:
    thinking = {"choices": [{"message": {"role": "assistant", "content": "north", field: "Hm."}}]}
    with serving_in_turn(completion(**thinking)) as server:
        policy = OpenAIPolicy(server.url, "toy", options=EndpointOptions(resend_reasoning=resend))
        reply = policy.reply(GO)
        assert (reply.text, reply.reasoning) == ("north", "Hm.")
        talk = (*GO.messages, Message("assistant", "north"), Message("user", "A wall."))
        policy.reply(ChatRequest(talk, thoughts={1: reply.reasoning}))
        policy.close()
    assert server.asked[1]["messages"][1] == {"role": "assistant", "content": "north"} | (
        {field: "Hm."} if resend else {}
    )


def test_a_base_model_is_asked_at_its_own_path() -> None:
    said = {"choices": [{"text": " north\n\nHuman: and you?", "finish_reason": "stop"}]}
    with serving_in_turn(completion(**said)) as server:
        assert ask(server, api="completions").text == "north"
    assert server.paths == ["/v1/completions"]
    assert server.asked[0]["prompt"] == "\n\nHuman: Go.\n\nAssistant:"


def test_without_token_counts_no_limit_of_tokens_can_be_held() -> None:
    with serving_in_turn(completion(usage=None)) as server:
        assert ask(server).text == "right"
        with pytest.raises(EndpointRefused, match="does not say how many tokens"):
            ask(server, needs_usage=True)


def test_many_requests_wait_within_one_limit_whoever_sends_them() -> None:
    """Two policies with the same places are one to the endpoint."""
    from lemur_ray.agents.throttle import Throttle

    there, most, lock = [0], [0], threading.Lock()

    def answer(asked: dict[str, Any]) -> Answer:
        with lock:
            there[0] += 1
            most[0] = max(most[0], there[0])
            refused = there[0] > 3
        if not refused:
            server.released.wait(0.02)
        with lock:
            there[0] -= 1
        return refusal(429, Retry_After="0.05") if refused else completion()

    places = Throttle()
    with serving(answer) as server:
        policies = [OpenAIPolicy(server.url, "toy", options=EndpointOptions(places=places)) for _ in range(2)]
        threads = [threading.Thread(target=policies[i % 2].reply, args=(GO,), daemon=True) for i in range(40)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        for policy in policies:
            policy.close()
    assert places.pressure().refused == len(server.asked) - 40
