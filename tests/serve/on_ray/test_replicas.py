"""Several replicas on Ray Serve: turns of a session meet the engine that has them cached; more start under load."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from lemur_ray.serve.config import EngineOptions, ServeJob
from tests.serve.tiny import poll

pytestmark = pytest.mark.slow
OPTIONS = EngineOptions(max_slots=2, max_queue=60, prefill_tiles=1)


def ask(http: httpx.Client, prompt: list[int], session: str = "") -> dict:
    body = {"model": "nano", "prompt": prompt, "max_tokens": 4, "temperature": 0.0, "return_token_ids": True}
    answer = http.post("/v1/completions", json=body, headers={"x-session-id": session} if session else {})
    assert answer.status_code == 200, answer.text
    return answer.json()


@pytest.fixture(scope="module")
def two(ray_local: str) -> Iterator[httpx.Client]:
    from lemur_ray.serve.on_ray import deployments, serve_cluster

    url = deployments.serve_model("random:nano", name="nano", num_cpus=0.2, options=OPTIONS, replicas=2)
    with httpx.Client(base_url=url.removesuffix("/v1"), timeout=60) as http:
        yield http
    serve_cluster.shutdown()


def test_turns_of_a_session_go_to_one_replica_and_sessions_to_both(two: httpx.Client) -> None:
    sessions = [f"episode-{number}" for number in range(8)]
    missed = 0
    for number, session in enumerate(sessions):
        history = [7 + number] * 60
        for turn in range(4):
            answer = ask(two, history, session)
            cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            missed += bool(turn) and cached < len(history) - 30
            history = [*history, *answer["choices"][0]["token_ids"], 50 + turn]
    assert missed == 0
    page = two.get("/metrics").text
    seen = int(next(line for line in page.splitlines() if line.startswith("lemur_requests_total")).split()[1])
    assert 0 < seen < 32, "one replica answered everything"


def test_newer_weights_reach_every_replica(two: httpx.Client) -> None:
    from ray import serve

    (name,) = serve.status().applications
    handle = serve.get_app_handle(name)
    versions = handle.broadcast("update_weights", "random:nano").results(timeout_s=60)
    assert len(versions) == 2
    assert len(set(versions)) == 1


def test_without_a_session_requests_are_spread(two: httpx.Client) -> None:
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda number: ask(two, [9 + number % 5] * 40), range(24)))
    assert len({str(answer["choices"][0]["token_ids"]) for answer in answers}) <= 5


def test_more_replicas_start_while_there_is_more_to_do_than_one_can_hold(ray_local: str) -> None:
    from ray import serve

    from lemur_ray.serve.on_ray import deployments

    url = deployments.serve_model("random:nano", name="nano", num_cpus=0.2, options=OPTIONS, max_replicas=2)
    name = url.split("/")[-2]
    with httpx.Client(base_url=url.removesuffix("/v1"), timeout=200) as http, ThreadPoolExecutor(16) as pool:

        def replicas() -> int:
            found = [a for key, a in serve.status().applications.items() if key.endswith(name)]
            return sum(sum(d.replica_states.values()) for a in found for d in a.deployments.values())

        long = {"model": "nano", "prompt": [5], "max_tokens": 900, "temperature": 1.5, "logit_bias": {"2": -100}}

        def keep_asking(number: int) -> None:
            while replicas() < 2:
                http.post("/v1/completions", json={**long, "seed": number})

        asking = [pool.submit(keep_asking, number) for number in range(12)]
        poll(lambda: replicas() == 2, "a second replica", 150)
        for one in asking:
            one.result(120)


def test_replies_that_take_too_long_are_told_so_when_the_model_is_removed(
    ray_local: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lemur_ray.serve.on_ray import deployments, serve_cluster

    monkeypatch.setattr(serve_cluster, "DRAIN_S", 0.3)
    url = deployments.serve_model("random:nano", name="nano", num_cpus=0.2, options=OPTIONS)
    body = {"model": "nano", "prompt": [5], "max_tokens": 1000, "temperature": 2.0, "stream": True}
    body["logit_bias"] = {"2": -100}
    begun = threading.Event()

    def end_of_reply(seed: int) -> str:
        with http.stream("POST", "/v1/completions", json={**body, "seed": seed}) as answer:
            lines = [line for line in told(answer.iter_lines(), begun) if line]
        return lines[-1].removeprefix("data: ")

    # Two at a time: however fast the machine is, it does not get to the last ones.
    with httpx.Client(base_url=url.removesuffix("/v1"), timeout=60) as http, ThreadPoolExecutor(60) as pool:
        asked = [pool.submit(end_of_reply, seed) for seed in range(60)]
        assert begun.wait(60)
        serve_cluster.shutdown()
        ends = {one.result(60) for one in asked} - {"[DONE]"}
    assert ends
    assert all("error" in json.loads(end) for end in ends), ends


def told(lines: Iterator[str], begun: threading.Event) -> Iterator[str]:
    """The same lines; the event is set with the first."""
    for line in lines:
        begun.set()
        yield line


def test_replicas_need_ray() -> None:
    with pytest.raises(ValueError, match="leave --no-ray out"):
        ServeJob(no_ray=True, replicas=2)
    with pytest.raises(ValueError, match="max_replicas is 1: expected at least 2"):
        ServeJob(replicas=2, max_replicas=1)
