"""Two replicas of a model on two hosts, one of which is cut off and loses its power under load."""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import httpx
import pytest

from tests.hosts.ray_hosts import NOTICED_S, RayHosts

pytestmark = [pytest.mark.sweep, pytest.mark.timeout(1800)]

PORT, KEY = 8000, "key-of-these-tests"
SERVE = ("--model", "random:nano", "--replicas", "2", "--host", "0.0.0.0", "--port", str(PORT), "--api-key", KEY)
SMALL = ("--engine.max-slots", "4", "--engine.prefill-tiles", "1", "--engine.context", "128", "--engine.no-native")
CLIENTS, BACK_S = 8, 60.0


class Answer(NamedTuple):
    """What came of a request that was begun and ended then: ids, as far as they came, and the error at the end."""

    question: int
    begin: float
    end: float
    ids: list[int]
    error: dict[str, Any] | None


class Load:
    """Clients that ask without a pause, every other one in streams."""

    def __init__(self, url: str):
        self._http = httpx.Client(base_url=url, timeout=180, headers={"authorization": f"Bearer {KEY}"})
        self._numbers = itertools.count()
        self.answers: list[Answer] = []
        self.pages: list[dict[str, int]] = []
        """Requests that each replica has taken, page after page."""

    def ask(self, question: int, in_stream: bool) -> Answer:
        body = {
            "model": "random-nano", "prompt": [5 + question, 6, 7, 8], "max_tokens": 40, "temperature": 0.8,
            "seed": question, "return_token_ids": True, "stream": in_stream, "logit_bias": {"2": -100, "4": -100},
        }  # fmt: skip
        begin, ids, error = time.monotonic(), [], None
        if in_stream:
            with self._http.stream("POST", "/v1/completions", json=body) as reply:
                if reply.status_code != 200:
                    assert reply.status_code == 503, reply.read()
                    error = json.loads(reply.read())["error"]
                else:
                    ids, error = _streamed(reply.iter_lines())
        else:
            reply = self._http.post("/v1/completions", json=body)
            assert reply.status_code in (200, 503), reply.text
            if reply.status_code == 200:
                ids = reply.json()["choices"][0]["token_ids"]
            else:
                error = reply.json()["error"]
        return Answer(question, begin, time.monotonic(), ids, error)

    def close(self) -> None:
        self._http.close()

    def taken(self) -> dict[str, int]:
        """Requests that each replica has taken, as one of them says; empty where it is gone before it has."""
        page = self._http.get("/metrics")
        assert page.status_code in (200, 503), page.text
        found = re.findall(r'^lemur_requests_total\{replica="(\w+)"\} (\d+)$', page.text, re.MULTILINE)
        return {replica: int(count) for replica, count in found}

    @contextmanager
    def running(self) -> Iterator[None]:
        """While ``CLIENTS`` clients ask, and somebody reads the metrics."""
        over = threading.Event()

        def client() -> None:
            while not over.is_set():
                number = next(self._numbers)
                self.answers.append(self.ask(number % 12, number % 2 == 0))

        def reader() -> None:
            while not over.wait(1.0):
                if taken := self.taken():
                    self.pages.append(taken)

        with ThreadPoolExecutor(CLIENTS + 1) as pool:
            waiting = [pool.submit(client) for _ in range(CLIENTS)] + [pool.submit(reader)]
            try:
                yield
            finally:
                over.set()
            for one in waiting:
                one.result()


def _streamed(lines: Iterator[str]) -> tuple[list[int], dict[str, Any] | None]:
    """The ids of a stream, and the error that it ended with; fails where it just ends."""
    ids: list[int] = []
    for line in filter(None, lines):
        if line == "data: [DONE]":
            return ids, None
        event = json.loads(line.removeprefix("data: "))
        if "error" in event:
            assert not list(filter(None, lines)), "closed after the error"
            return ids, event["error"]
        ids += [token for choice in event["choices"] for token in choice.get("token_ids") or ()]
    raise AssertionError("a stream ended without its end")


def p99_s(answers: list[Answer]) -> float:
    durations = sorted(answer.end - answer.begin for answer in answers)
    return durations[int(0.99 * (len(durations) - 1))]


def test_a_host_that_is_lost_takes_what_it_answered_along_and_nothing_else(cluster: RayHosts) -> None:
    job = cluster.submit("python", "jobs/serve.py", *SERVE, *SMALL)
    try:
        job.wait_for(lambda: "serving at" in job.printed(), 600)
        (own_path,) = re.findall(r"serving at http://[^/]+(\S*)/v1", job.printed())
        load = Load(f"http://{cluster.head.address}:{PORT}{own_path}")
        job.wait_for(lambda: len(cluster.serving()) == 2, 60)
        before = cluster.serving()
        assert len(set(before)) == 2, "each on a host of its own"
        expected = [load.ask(question, False).ids for question in range(12)]
        assert all(len(ids) == 40 for ids in expected)
        with load.running():
            job.wait_for(lambda: len(load.answers) >= 150, 120)
            calm = list(load.answers)
            lost = next(cluster.hosts[name] for name in before if name != "head")
            lost_at = time.monotonic()
            cluster.lose(lost)
            noticed_s = cluster.wait(60, **{lost.name: "DEAD"})

            def is_back() -> bool:
                there = set(cluster.serving())  # once: what is asked a moment later is of another moment
                return len(there) == 2 and lost.name not in there

            job.wait_for(is_back, 600)
            back_s = time.monotonic() - lost_at
            job.wait_for(lambda: time.monotonic() > lost_at + BACK_S, 120)
            number = len(load.answers)
            job.wait_for(lambda: len(load.answers) >= number + 150, 120)
    finally:
        cluster.stop(job)
    load.close()
    cluster.replace(lost)
    for answer in load.answers:
        whole = expected[answer.question]
        assert answer.ids == (whole if answer.error is None else whole[: len(answer.ids)]), "a wrong answer"
    errors = [answer for answer in load.answers if answer.error is not None]
    assert {error.error["code"] for error in errors if error.error} <= {"service_unavailable"}
    late = [answer for answer in load.answers if answer.begin > lost_at + BACK_S]
    slowest = max(load.answers, key=lambda answer: answer.end - answer.begin)
    found = {
        "noticed_s": noticed_s, "two hosts after_s": back_s, "answers": len(load.answers), "errors": len(errors),
        "last error_s": max((error.end for error in errors), default=lost_at) - lost_at,
        "p99 before_s": p99_s(calm), "p99 after_s": p99_s(late), "slowest_s": slowest.end - slowest.begin,
        "of errors": Counter(len(error.ids) > 0 for error in errors),
    }  # fmt: skip
    print(found)
    cluster.wait(**{lost.name: "ALIVE"})
    assert errors, found
    assert len(errors) <= CLIENTS + 4, found
    assert noticed_s < 2 * NOTICED_S, found
    assert max(answer.end for answer in load.answers if answer.begin < lost_at) < lost_at + BACK_S, found
    assert p99_s(late) <= 3 * p99_s(calm) + 1.0, found
    for one, other in pairwise(load.pages):
        assert all(one[replica] <= other.get(replica, 0) for replica in one), "a counter went back, or away"
    assert len(load.pages[-1]) == 3, "two that are there, and what the lost one had counted"
