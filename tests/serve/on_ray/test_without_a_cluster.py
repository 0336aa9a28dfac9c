"""Our parts of Ray Serve, each by itself: streams in the proxy, a dead engine's end, pages of replicas, attaching."""

import asyncio
import json
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lemur_ray.agents.endpoint import EndpointOptions
from lemur_ray.agents.policy_spec import PolicySpec
from lemur_ray.rollout.endpoints.policy_target import resolve_policy
from lemur_ray.serve.http.replica_pages import MOST_GONE, Page, merged, newest, without_oldest
from lemur_ray.serve.on_ray import attach as attaching
from lemur_ray.serve.on_ray.attach import Running, attach
from lemur_ray.serve.on_ray.deployments import serve_policy
from lemur_ray.serve.on_ray.handle import HandleSpec
from lemur_ray.serve.on_ray.replica import leave_when_dead
from lemur_ray.serve.on_ray.whole_streams import middlewares

STREAM = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/event-stream")]}
TEXT = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]}
PIECE = {"type": "http.response.body", "body": b"data: {}\n\n", "more_body": True}
END = {"type": "http.response.body", "body": b"", "more_body": False}


def answered(*messages: dict[str, Any], error: Exception | None = None, path: str = "/v1/x") -> list[dict[str, Any]]:
    """What a client gets of an app that sends these, and perhaps raises then."""
    sent: list[dict[str, Any]] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        for message in messages:
            await send(message)
        if error is not None:
            raise error

    async def send(message: Any) -> None:
        sent.append(message)

    (whole,) = middlewares()
    asyncio.run(whole.cls(app)({"type": "http", "path": path}, None, send))  # type: ignore[arg-type, call-arg]
    return sent


@pytest.mark.parametrize("error", [None, ConnectionError("the replica is gone")])
def test_a_stream_without_its_end_gets_an_error_event_and_is_closed(error: Exception | None) -> None:
    *begin, last = answered(STREAM, PIECE, PIECE, error=error)
    assert begin == [STREAM, PIECE, PIECE]
    assert not last["more_body"]
    assert last["body"].startswith(b"data: ")
    assert last["body"].endswith(b"\n\n")
    assert json.loads(last["body"][6:])["error"]["code"] == "service_unavailable"


def test_everything_else_passes_as_it_is() -> None:
    page = {"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"application/json")]}
    for messages in ([STREAM, PIECE, END], [page, PIECE], [page, END]):
        assert answered(*messages) == messages
    with pytest.raises(ConnectionError):
        answered(page, error=ConnectionError("in the middle of a page"))
    unhealthy = [{**TEXT, "status": 503}, END]
    assert answered(*unhealthy, path="/-/healthz") == unhealthy


@pytest.mark.parametrize("status", [0, 500, 503])
@pytest.mark.parametrize("error", [None, ConnectionError("the replica is gone")])
def test_what_no_replica_answers_is_answered_in_openais_form(status: int, error: Exception | None) -> None:
    of_proxy = [{**TEXT, "status": status}, END] if status else []
    start, body = answered(*of_proxy, error=error)
    assert start["status"] == 503
    assert dict(start["headers"])[b"content-type"] == b"application/json"
    assert json.loads(body["body"])["error"]["code"] == "service_unavailable"


def test_a_proxy_needs_no_model_for_that() -> None:
    code = "import sys, lemur_ray.serve.on_ray.whole_streams; print({'jax', 'ray', 'numpy'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"


@pytest.mark.parametrize(("failure", "left"), [(RuntimeError("out of order"), [1]), (None, [])])
def test_a_replica_whose_engine_died_leaves_once_everybody_is_told(failure: Exception | None, left: list[int]) -> None:
    engine = SimpleNamespace(ended=threading.Event(), failure=None)
    served: Any = SimpleNamespace(engine=engine, is_awaited=True)
    codes: list[int] = []
    waiting = threading.Thread(target=leave_when_dead, args=(served, codes.append), daemon=True)
    waiting.start()
    waiting.join(0.05)
    assert waiting.is_alive()
    engine.failure = failure
    engine.ended.set()
    waiting.join(0.2)
    assert not codes
    served.is_awaited = False
    waiting.join(60)
    assert codes == left


def page(requests: int, seconds: float) -> str:
    return (
        "# HELP lemur_requests_total Requests\n# TYPE lemur_requests_total counter\n"
        f"lemur_requests_total {requests}\n"
        "# HELP lemur_request_seconds Until the end\n# TYPE lemur_request_seconds histogram\n"
        f'lemur_request_seconds_bucket{{le="+Inf"}} {requests}\n'
        f"lemur_request_seconds_count {requests}\nlemur_request_seconds_sum {seconds}\n"
    )


def test_the_pages_of_replicas_are_one_page_whose_series_say_whose_they_are() -> None:
    whole = merged({"b": page(5, 1.5), "a": page(7, 2.5)})
    families = {family.name: family for family in text_string_to_metric_families(whole)}
    counts = [(s.labels, s.value) for s in families["lemur_requests"].samples]
    assert counts == [({"replica": "a"}, 7.0), ({"replica": "b"}, 5.0)]
    sums = {s.labels["replica"]: s.value for s in families["lemur_request_seconds"].samples if s.name.endswith("sum")}
    assert sums == {"a": 2.5, "b": 1.5}
    assert whole.count("# TYPE lemur_requests_total") == 1


def test_what_a_replica_counted_stays_when_it_is_gone_and_what_it_was_doing_does_not() -> None:
    gauge = "# HELP lemur_active Computed\n# TYPE lemur_active gauge\nlemur_active 3\n"
    whole = merged({"a": page(7, 2.5) + gauge, "b": page(5, 1.5) + gauge}, alive={"b"})
    assert 'lemur_requests_total{replica="a"} 7\n' in whole
    assert 'lemur_request_seconds_count{replica="a"} 7\n' in whole
    assert [line for line in whole.splitlines() if line.startswith("lemur_active")] == ['lemur_active{replica="b"} 3']


def test_of_every_replica_the_newest_page_is_known_and_of_those_gone_the_last() -> None:
    known = newest({"a": Page(2, "new"), "b": Page(1, "b")}, {"a": Page(1, "old"), "c": Page(5, "c")})
    assert known == {"a": Page(2, "new"), "b": Page(1, "b"), "c": Page(5, "c")}
    many = {f"r{number}": Page(number, "") for number in range(MOST_GONE + 10)}
    there = {"r0", "r1"}
    assert set(without_oldest(many, there)) == there | {f"r{number}" for number in range(10, MOST_GONE + 10)}
    assert without_oldest(known, known) == known


@pytest.fixture
def running(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> list[Running]:
    run = tmp_path / "nano-chat"
    run.mkdir()
    found = [Running("lemur", "chat", str(run), "7-abc"), Running("lemur-2", "other", "random:nano", "0-random")]
    monkeypatch.setattr(attaching, "served", lambda: found)
    return found


def test_a_handle_attaches_to_what_is_served_under_any_of_its_names(running: list[Running]) -> None:
    connected: list[int] = []
    for target in ("lemur", "chat", running[0].spec, "nano-chat"):
        spec = attach(PolicySpec("handle", target), lambda: connected.append(1))
        assert (spec.application, spec.label) == ("lemur", "handle:chat@7-abc")
    assert len(connected) == 4
    for spec in (PolicySpec("handle", "elsewhere"), PolicySpec("handle"), PolicySpec("checkpoint", "chat")):
        assert attach(spec, lambda: None) == spec


def test_a_name_that_two_have_is_refused(running: list[Running]) -> None:
    running.append(Running("lemur-3", "chat", "random:nano", "0-random"))
    with pytest.raises(ValueError, match="several applications serve that: say which, lemur, lemur-3"):
        attach(PolicySpec("handle", "chat"), lambda: None)


def test_the_policy_of_an_attached_handle_asks_that_application_and_serves_nothing() -> None:
    asked = PolicySpec("handle", "chat", application="lemur", label="handle:chat@7")
    spec = resolve_policy(asked, Path("runs"), EndpointOptions(patience_s=9.0))
    assert serve_policy(spec) == HandleSpec("lemur", "handle:chat@7", 9.0)
