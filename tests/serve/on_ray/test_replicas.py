"""Several replicas on Ray Serve: turns of a session meet the engine that has them cached; more start under load."""

import contextlib
import json
import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import httpx
import psutil
import pytest

from lemur_ray.model.llama import init_params
from lemur_ray.serve.config import EngineOptions, ServeJob
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.weights.convert import Convert, convert
from lemur_ray.weights.open_model import open_model
from tests.serve.tiny import TINY, TOKENIZER, poll
from tests.weights.whole_models import write_model

pytestmark = pytest.mark.slow
OPTIONS = EngineOptions(max_slots=2, max_queue=60, prefill_tiles=1)


def ask(http: httpx.Client, prompt: list[int], session: str = "") -> dict:
    body = {"model": "nano", "prompt": prompt, "max_tokens": 4, "temperature": 0.0, "return_token_ids": True}
    answer = http.post("/v1/completions", json=body, headers={"x-session-id": session} if session else {})
    assert answer.status_code == 200, answer.text
    return answer.json()


def requests(http: httpx.Client) -> dict[str, int]:
    """Requests that each replica has taken, as /metrics says."""
    found = re.findall(r'^lemur_requests_total\{replica="(\w+)"\} (\d+)$', http.get("/metrics").text, re.MULTILINE)
    return {replica: int(count) for replica, count in found}


def keys_of_each(http: httpx.Client, number: int) -> list[str]:
    """Session keys, so many for each of two replicas, which chance gives to one of them."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    while len(found) < 2 or min(map(len, found.values())) < number:
        key, before = f"key-{sum(map(len, found.values()))}", requests(http)
        ask(http, [5, 6, 7], key)
        (taker,) = {replica for replica, count in requests(http).items() if count > before.get(replica, 0)}
        found[taker].append(key)
    return [key for keys in found.values() for key in keys[:number]]


def replica_processes() -> list[psutil.Process]:
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):  # it has ended meanwhile
            if any(word.startswith("ray::ServeReplica") for word in process.cmdline()):
                found.append(process)
    return found


@pytest.fixture(scope="module")
def two(ray_local: str) -> Iterator[httpx.Client]:
    from lemur_ray.serve.on_ray import deployments, serve_cluster

    url = deployments.serve_job(ServeJob(name="nano", num_cpus=0.2, engine=OPTIONS, replicas=2), "random:nano")
    with httpx.Client(base_url=url.removesuffix("/v1"), timeout=60) as http:
        yield http
    serve_cluster.shutdown()


def test_turns_of_a_session_go_to_one_replica_and_sessions_to_both(two: httpx.Client) -> None:
    sessions = [f"episode-{number}" for number in range(48)]  # none for one of the replicas: once in 10 to the 10
    missed = 0
    for number, session in enumerate(sessions):
        history = [7 + number] * 60
        for turn in range(4 if number < 8 else 1):
            answer = ask(two, history, session)
            cached = answer["usage"]["prompt_tokens_details"]["cached_tokens"]
            missed += bool(turn) and cached < len(history) - 30
            history = [*history, *answer["choices"][0]["token_ids"], 50 + turn]
    assert missed == 0
    seen = requests(two)
    assert len(seen) == 2, "each replica says what it counted"
    assert all(seen.values()), "one replica answered everything"
    assert sum(seen.values()) == 72


def test_newer_weights_reach_every_replica_or_none(two: httpx.Client, tmp_path: Path) -> None:
    from ray import serve

    from lemur_ray.serve.on_ray.weight_updates import update_all

    (name,) = serve.status().applications

    def versions() -> list[str]:
        return [about["version"] for about in serve.get_app_handle(name).broadcast("about").results(timeout_s=60)]

    old, run, other = versions(), tmp_path / "start", tmp_path / "tiny"
    write_model(init_params(TINY, 0), TINY, TOKENIZER, other)
    for spec, reason in ((other, "these weights belong to another model: num_layers 2"), (run, "no model at")):
        with pytest.raises(RuntimeError, match=reason):
            update_all(name, str(spec))
        assert versions() == old
    convert(Convert(model="random:nano", out="start", to="run"), str(run))
    newer = update_all(name, str(run))
    assert (len(newer), len({*newer})) == (2, 1)
    assert newer == versions() != old
    assert update_all(name, "random:nano") == versions() == old


def test_a_replica_that_starts_after_an_update_serves_the_chosen_weights(two: httpx.Client, tmp_path: Path) -> None:
    from ray import serve

    from lemur_ray.serve.on_ray.weight_updates import update_all

    (name,) = serve.status().applications
    config, begin = open_model("random:nano").source.config, ask(two, [5, 6, 7])
    other = str(tmp_path / "other")
    write_model(init_params(config, 1), config, Tokenizer.bytes_only(), other)
    chosen, _ = update_all(name, other)
    after = ask(two, [5, 6, 7])
    assert after["system_fingerprint"] == chosen != begin["system_fingerprint"]
    assert after["choices"][0]["token_ids"] != begin["choices"][0]["token_ids"]
    before = requests(two)
    replica_processes()[0].kill()

    def newborn() -> set[str]:
        """Replicas that answer now and did not before."""
        return set(re.findall(r'^lemur_active\{replica="(\w+)"\}', two.get("/metrics").text, re.MULTILINE)) - {*before}

    poll(newborn, "another replica in its place", 120)
    answers = [ask(two, [5, 6, 7], f"born-{number}") for number in range(48)]
    assert {answer["system_fingerprint"] for answer in answers} == {chosen}
    assert {str(answer["choices"][0]["token_ids"]) for answer in answers} == {str(after["choices"][0]["token_ids"])}
    assert all(requests(two)[replica] for replica in newborn()), "the new replica answered nothing"
    assert {about["weights"] for about in serve.get_app_handle(name).broadcast("about").results()} == {other}
    assert {*update_all(name, "random:nano")} == {begin["system_fingerprint"]}


def test_without_a_session_requests_are_spread_and_no_counter_ever_goes_back(two: httpx.Client) -> None:
    pages = [requests(two)]
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(ask, two, [9 + number % 5] * 40) for number in range(24)]
        while not all(one.done() for one in answers):
            pages.append(requests(two))
    pages += [requests(two) for _ in range(6)]
    assert len({str(one.result()["choices"][0]["token_ids"]) for one in answers}) <= 5
    gained = {replica: count - pages[0].get(replica, 0) for replica, count in pages[-1].items()}
    assert len([count for count in gained.values() if count]) == 2, "one that was killed before gains nothing"
    assert sum(gained.values()) == 24
    for before, after in pairwise(pages):
        assert all(before[replica] <= after[replica] for replica in before)


def test_requests_to_a_replica_that_is_killed_end_with_an_error_and_the_other_one_answers_at_once(
    two: httpx.Client,
) -> None:
    body = {"model": "nano", "prompt": [5], "max_tokens": 1000, "temperature": 2.0, "stream": True}
    body["logit_bias"] = {"2": -100, "4": -100}
    begun, of_each = threading.Semaphore(0), [{"x-session-id": key} for key in keys_of_each(two, 4)]

    def end_of_reply(seed: int) -> str:
        lines: list[str] = []
        asked = {**body, "seed": seed}
        with two.stream("POST", "/v1/completions", json=asked, headers=of_each[seed]) as answer:
            for line in filter(None, answer.iter_lines()):
                if not lines:
                    begun.release()
                lines.append(line)
        return lines[-1].removeprefix("data: ")

    def whole_reply(seed: int) -> httpx.Response:
        return two.post("/v1/completions", json={**body, "stream": False, "seed": seed}, headers=of_each[seed])

    with ThreadPoolExecutor(16) as pool:
        asked = [pool.submit(end_of_reply, seed) for seed in range(8)]
        for _ in range(4):  # two on each
            assert begun.acquire(timeout=60)
        taken = sum(requests(two).values())
        whole = [pool.submit(whole_reply, seed) for seed in range(8)]
        poll(lambda: sum(requests(two).values()) >= taken + 8, "eight more requests", 60)
        replicas = replica_processes()
        assert len(replicas) == 2
        replicas[0].kill()
        begin = time.monotonic()
        for _ in range(6):  # whoever asks for no place waits for none in the other one, which has much to do
            assert two.get("/v1/models").status_code == 200
        assert time.monotonic() - begin < 30, "it waited for the one that is gone"
        ask(two, [5, 6, 7])
        ends = [one.result(120) for one in asked]
        answers = [one.result(120) for one in whole]
    errors = [json.loads(end)["error"] for end in ends if end != "[DONE]"]
    assert errors
    errors += [answer.json()["error"] for answer in answers if answer.status_code == 503]
    assert {answer.status_code for answer in answers} == {200, 503}
    assert all(error["code"] == "service_unavailable" for error in errors)


@pytest.mark.sweep
def test_a_replica_that_is_killed_is_replaced_and_what_it_counted_stays_on_every_page(two: httpx.Client) -> None:
    def there() -> dict[str, int]:
        """Replicas that say what they do now, and what they have taken."""
        page = two.get("/metrics").text
        now = set(re.findall(r'^lemur_active\{replica="(\w+)"\}', page, re.MULTILINE))
        return {name: count for name, count in requests(two).items() if name in now}

    poll(lambda: len(there()) == 2, "two replicas", 120)
    for number in range(12):
        ask(two, [9 + number] * 8)
    before, pages = there(), [requests(two)]
    assert sum(pages[0].values()) >= 12
    replica_processes()[0].kill()

    def replaced() -> bool:
        pages.append(requests(two))
        return len(there()) == 2 and there().keys() != before.keys()

    poll(replaced, "another replica in its place", 120)
    for number in range(8):
        ask(two, [5 + number] * 8)
        pages.append(requests(two))
    for one, other in pairwise(pages):
        assert all(one[name] <= other[name] for name in one), "a counter went back, or away"
    assert sum(pages[-1].values()) >= sum(pages[0].values()) + 8
    assert len(pages[-1]) == len(pages[0]) + 1


def test_more_replicas_start_while_there_is_more_to_do_than_one_can_hold(ray_local: str) -> None:
    from ray import serve

    from lemur_ray.serve.on_ray import deployments

    url = deployments.serve_job(ServeJob(name="nano", num_cpus=0.2, engine=OPTIONS, max_replicas=2), "random:nano")
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
    url = deployments.serve_job(ServeJob(name="nano", num_cpus=0.2, engine=OPTIONS), "random:nano")
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
