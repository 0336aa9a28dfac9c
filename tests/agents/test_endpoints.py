"""The policy at endpoints as they are: behind keys, slow, of other protocols, thinking, hostile."""

from __future__ import annotations

import email.utils
import math
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.agents.endpoint import EndpointOptions
from lemur_ray.agents.keys import Key
from lemur_ray.agents.messages import ChatReply, ChatRequest, EndpointRefused, Message, PolicyUnreachable, Sampling
from lemur_ray.agents.openai_policy import OpenAIPolicy
from lemur_ray.agents.outside import Meter, metered, waiting
from lemur_ray.agents.persistence import Again, Persistence, asked_pause_s
from lemur_ray.agents.throttle import Pressure, Silence, Throttle, Verdict
from lemur_ray.rollout.calls.deadline import CompanionThread, DeadlineExceeded
from tests.agents.misbehaving import Answer, Server, completion, refusal, serving, serving_in_turn

SECRET = "sk-test-4711-sesame"
GO = ChatRequest((Message("user", "Go."),), Sampling(max_tokens=9), "e1")


def ask(server: Server, request: ChatRequest = GO, **options: Any) -> Any:
    """One reply of a policy with these options."""
    policy = OpenAIPolicy(server.url, "toy", options=EndpointOptions(**{"patience_s": 20.0, **options}))
    try:
        return policy.reply(request)
    finally:
        policy.close()


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


def test_an_endpoint_that_is_gone_for_good_ends_the_run_after_one_patience() -> None:
    with serving_in_turn(completion(), None) as server:
        policy = OpenAIPolicy(server.url, "toy", patience_s=2.0)
        policy.reply(GO)
    started = time.monotonic()
    with pytest.raises(EndpointRefused, match=r"answered nobody for .*run the same command again once it answers"):
        policy.reply(GO)
    assert time.monotonic() - started < 10
    policy.close()


def test_a_pause_that_is_asked_for_costs_no_patience_while_others_are_answered() -> None:
    now, slept = [0.0], []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        now[0] += seconds

    answers = [refusal(429, Retry_After="40"), completion(), refusal(429, Retry_After="40"), completion()]
    with serving_in_turn(*(answers * 3)) as server:
        policy = OpenAIPolicy(server.url, "toy", patience_s=60.0, clock=lambda: now[0], sleep=sleep)
        replies = [policy.reply(GO) for _ in range(3)]
        policy.close()
    assert slept == [40.0] * 3
    assert [reply.waited_s for reply in replies] == [40.0] * 3, (
        "what was waited is known, so no limit of time counts it"
    )


NOW = 1_800_000_000.0
PAST, LATER = (email.utils.formatdate(NOW + seconds, usegmt=True) for seconds in (-300, 30))


@pytest.mark.parametrize(
    ("asked", "pause_s"),
    [
        ({"retry-after": "30"}, 30.0),
        ({"retry-after": LATER}, 30.0),
        ({"retry-after-ms": "30000", "retry-after": "9"}, 30.0),
        ({"retry-after-ms": "soon", "retry-after": "30"}, 30.0),
        *[({"retry-after": text}, None) for text in ("0", "-5", "soon", "", "9" * 400, "²", "nan", PAST)],
        ({"retry-after-ms": "-1"}, None),
        ({}, None),
    ],
)
def test_a_pause_is_what_the_headers_say_unless_that_is_none(asked: dict[str, str], pause_s: float | None) -> None:
    assert asked_pause_s(asked, NOW) == pause_s


def test_an_endpoint_that_asks_for_no_pause_at_all_is_not_flooded() -> None:
    now = [0.0]

    def sleep(seconds: float) -> None:
        now[0] += seconds

    with serving_in_turn(refusal(429, Retry_After="0")) as server:
        policy = OpenAIPolicy(server.url, "toy", patience_s=60.0, clock=lambda: now[0], sleep=sleep)
        with pytest.raises(PolicyUnreachable):
            policy.reply(GO)
        policy.close()
        assert 3 < len(server.asked) < 20


class Others:
    """Places at an endpoint that answers others until a moment, of which this many may be under way."""

    def __init__(self, until_s: float, under_way: int = 0, ever: bool = True) -> None:
        self.now, self.slept, self.waits = 0.0, list[float](), list[float]()
        self._until_s, self._under_way, self._ever = until_s, under_way, ever

    def enter(self, patience_s: float, *, again: bool) -> float:
        waited_s = self.waits.pop(0) if self.waits else 0.0
        self.now += waited_s
        return waited_s

    def leave(self, verdict: Verdict, entered_at: float) -> None: ...

    def silence(self) -> Silence:
        return Silence(max(0.0, self.now - self._until_s), self._ever, self._under_way)

    def pressure(self) -> Pressure:
        return Pressure()

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def asking(self, *answers: ChatReply | Again) -> ChatReply:
        said = iter(answers)

        def send(left_s: float) -> ChatReply:
            assert left_s > 0
            answer = next(said)
            if isinstance(answer, Again):
                raise answer
            return answer

        return Persistence("here", 60.0, lambda: self.now, self.sleep, places=self).ask(send, 0)


BUSY = Again("too many", 600.0, refused=True)


def test_a_pause_that_is_longer_than_the_patience_is_waited_for_while_others_are_served() -> None:
    others = Others(until_s=math.inf)
    assert others.asking(BUSY, BUSY, ChatReply("at last")).text == "at last"
    assert others.now == pytest.approx(1200.0)
    waiting_for_the_first = Others(until_s=590.0, under_way=7, ever=False)
    assert waiting_for_the_first.asking(BUSY, ChatReply("at last")).text == "at last"


def test_such_a_pause_ends_the_run_once_nobody_is_served_for_as_long_as_the_patience() -> None:
    others = Others(until_s=100.0)
    with pytest.raises(
        EndpointRefused, match=r"next pause 600\.0 s: longer than --patience-s 60, and nobody is served"
    ):
        others.asking(BUSY)
    assert 160 <= others.now <= 161
    nobody = Others(until_s=0.0, ever=False)
    with pytest.raises(EndpointRefused, match="nobody is served"):
        nobody.asking(BUSY)
    assert nobody.slept == []


def test_no_wait_for_a_turn_counts_against_the_deadline_of_a_call() -> None:
    others = Others(until_s=math.inf)
    others.waits = [9000.0, 9000.0, 9000.0]
    meter = Meter(lambda: others.now)
    with metered(meter):
        others.asking(BUSY, Again("too many", 30.0, refused=True), ChatReply("at last"))
        assert meter.seconds == others.now == 3 * 9000 + 600 + 30
        others.asking(Again("broken"), ChatReply("at last"))
    assert meter.counts == {}, "nobody was asked"
    assert 0 < others.now - meter.seconds < 1, "a pause of our own does"
    call = CompanionThread("toy")
    assert call(lambda: waited(0.6), 0.2, "a wait") == "at last"
    with pytest.raises(DeadlineExceeded):
        call(lambda: time.sleep(0.6), 0.2, "a call")


def waited(seconds: float) -> str:
    with waiting():
        time.sleep(seconds)
    return "at last"


# Slow, long and thinking


def slow(seconds: float, patience_s: float) -> Any:
    def answer(asked: dict[str, Any]) -> Answer:
        server.released.wait(seconds)
        return completion("at last")

    with serving(answer) as server:
        reply = ask(server, patience_s=patience_s)
    return reply, len(server.asked)


def test_a_reply_may_take_as_long_as_the_patience_says_and_is_asked_for_once() -> None:
    reply, requests = slow(1.0, 2.5)
    assert (reply.text, requests) == ("at last", 1)


@pytest.mark.sweep
def test_a_model_that_thinks_for_three_minutes_is_waited_for() -> None:
    reply, requests = slow(170.0, 240.0)
    assert (reply.text, requests) == ("at last", 1)


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
