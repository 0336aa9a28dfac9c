"""The gate that all actors of a run share: one limit for all, nothing held by the dead; and the key that they share."""

from __future__ import annotations

import asyncio
import io
import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.agents.api_keys import Key
from lemur_ray.agents.endpoint import EndpointOptions
from lemur_ray.agents.messages import EndpointRefused, Sampling
from lemur_ray.agents.policy_spec import PolicySpec
from lemur_ray.agents.throttle import Verdict
from lemur_ray.agents.trajectory import Outcome
from lemur_ray.rollout.attempt import EpisodeLimits
from lemur_ray.rollout.endpoints.endpoint_gate import SharedPlaces, _Gate, start_gate
from lemur_ray.rollout.evaluation import create_pool
from lemur_ray.rollout.evaluation_config import EvalConfig
from lemur_ray.rollout.ledger import Ledger
from lemur_ray.rollout.progress import Progress
from lemur_ray.rollout.runner import run_episodes
from lemur_ray.rollout.schedule.episode_plan import EpisodePlan
from lemur_ray.rollout.schedule.retries import RetryPolicy
from tests.agents.misbehaving import Answer, completion, refusal, serving
from tests.rollout.toy import toy_task

SECRET = "sk-test-4711-sesame"


def test_one_limit_holds_for_all_processes_and_a_dead_one_gives_its_places_back() -> None:
    async def story() -> None:
        gate = _Gate()
        for ticket in range(10):
            assert (await gate.enter("a", ticket, 60.0, False))[1] == ""
        for ticket in range(10):
            await gate.leave("a", ticket, "refused")
        limit = (await gate.pressure()).limit
        assert limit == 7
        for ticket in range(10, 10 + limit):
            await gate.enter("a", ticket, 60.0, False)
        waiting = [asyncio.create_task(gate.enter("b", ticket, 60.0, False)) for ticket in range(3)]
        dead = asyncio.create_task(gate.enter("a", 99, 60.0, False))
        await asyncio.sleep(0)
        assert (await gate.pressure()).waiting == 4
        await gate.forget("a")
        assert [why for _, why in await asyncio.wait_for(asyncio.gather(*waiting), 20)] == [""] * 3
        await asyncio.wait_for(dead, 20)
        assert (await gate.pressure()).waiting == 0
        for ticket in range(3):
            await gate.leave("b", ticket, "answered")
        await gate.leave("b", 0, "answered")  # given back twice, or held before the gate died: nothing happens
        assert (await gate.silence()).ever

    asyncio.run(story())


def test_waiting_ends_where_nobody_is_answered_whichever_process_asks() -> None:
    async def story() -> None:
        gate = _Gate()
        await gate.enter("a", 0, 60.0, False)
        await gate.leave("a", 0, "refused")
        await gate.enter("a", 1, 60.0, False)
        _, why = await asyncio.wait_for(gate.enter("b", 0, 0.01, False), 20)
        assert "no request was answered" in why
        assert not (await gate.silence()).ever

    asyncio.run(story())


@dataclass(frozen=True)
class NoOptions:
    """None."""


@pytest.mark.slow
def test_actors_of_a_cluster_without_the_variable_share_a_key_and_one_limit(ray_local: str, tmp_path: Path) -> None:
    """The cluster was started before: its processes never had the key. It is revoked in the end."""
    import ray

    there, most, asked, lock = [0], [0], [0], threading.Lock()

    def answer(request: dict[str, Any]) -> Answer:
        if server.headers[-1].get("authorization") != f"Bearer {SECRET}" or asked[0] > 150:
            return refusal(401, message=f"no such key {SECRET}")
        with lock:
            asked[0] += 1
            there[0] += 1
            most[0] = max(most[0], there[0])
            refused = there[0] > 3
        if not refused:
            server.released.wait(0.03)
        with lock:
            there[0] -= 1
        return refusal(429, Retry_After="0.2") if refused else completion("right")

    config = EvalConfig(NoOptions(), "alfworld/text", in_flight=16, actors=2)
    plan = EpisodePlan(
        [toy_task(f"t{i:02d}") for i in range(20)],
        epochs=1, policy="p", recipe="r", sampling=Sampling(), limits=EpisodeLimits(),
    )  # fmt: skip
    said = io.StringIO()
    with serving(answer) as server, Ledger(tmp_path / "episodes.jsonl") as ledger:
        options = EndpointOptions(Key(SECRET, name="THEIR_KEY"), patience_s=60.0)
        spec = PolicySpec("openai", server.url, "toy", "openai:toy", options=options)
        pool = create_pool(config, spec)
        try:
            progress = Progress(said, time.monotonic, every_s=0.1)
            how: dict[str, Any] = {"retries": RetryPolicy(), "progress": progress, "clock": time.monotonic}
            episodes = run_episodes(plan, pool, ledger, **how)
            assert [(e.outcome, e.attempts) for e in episodes] == [(Outcome.SOLVED, 1)] * 20
            again = EpisodePlan(
                [toy_task(f"u{i:03d}") for i in range(200)],
                epochs=1, policy="p", recipe="r", sampling=Sampling(), limits=EpisodeLimits(),
            )  # fmt: skip
            with pytest.raises(EndpointRefused, match="status 401: no such key <key>"):
                run_episodes(again, pool, ledger, **how)
        finally:
            pool.close()
    assert most[0] > 3, "the endpoint refused"
    assert "THEIR_KEY" not in os.environ
    logs = Path(ray._private.worker._global_node.get_session_dir_path())  # type: ignore[attr-defined]
    read = 0
    for path in logs.rglob("*"):
        if path.is_file():
            text = path.read_text(errors="replace")
            read += len(text)
            assert SECRET not in text, path
    assert read > 0
    assert SECRET not in said.getvalue() + (tmp_path / "episodes.jsonl").read_text()


@pytest.mark.slow
def test_what_one_actor_is_refused_another_does_not_ask_for(ray_local: str) -> None:
    """Two processes of a cluster and a third, which is this one, with one limit between them."""
    import ray

    class Asking:
        """Requests that are on their way from one process, each in a thread of its own."""

        def __init__(self, places: SharedPlaces) -> None:
            self.places, self.there, self.leave = places, 0, threading.Semaphore(0)
            self.verdict: Verdict = "answered"
            self.lock = threading.Lock()

        def ask(self, number: int) -> None:
            for _ in range(number):
                threading.Thread(target=self._one, daemon=True).start()

        def _one(self) -> None:
            self.places.enter(60.0, again=False)
            with self.lock:
                self.there += 1
            self.leave.acquire()
            with self.lock:
                self.there -= 1
            self.places.leave(self.verdict, 0.0)

        def num_there(self) -> int:
            return self.there

        def end(self, number: int, verdict: Verdict) -> None:
            self.verdict = verdict
            self.leave.release(number)

    def state() -> tuple[int, int, int, int]:
        pressure = ray.get(gate.pressure.remote())
        return (*ray.get([one.num_there.remote() for one in (a, b)]), pressure.limit, pressure.waiting)

    def until(*expected: int) -> None:
        deadline = time.monotonic() + 60
        while (found := state()) != expected and time.monotonic() < deadline:
            time.sleep(0.02)
        assert found == expected, "of a, of b, limit, waiting"

    ray.init(address=ray_local, ignore_reinit_error=True, log_to_driver=False)
    gate = start_gate()
    kind = ray.remote(num_cpus=0, max_concurrency=4)(Asking)
    a, b = (kind.remote(SharedPlaces(gate)) for _ in range(2))
    try:
        a.ask.remote(10)
        until(10, 0, 0, 0)
        a.end.remote(10, "refused")
        until(0, 0, 7, 0)
        b.ask.remote(9)
        until(0, 7, 7, 2)
        a.ask.remote(1)
        until(0, 7, 7, 3)
        b.end.remote(3, "answered")
        until(1, 6, 10, 0)  # each answer lets one more in, as long as nobody has seen where the endpoint ends
        assert SharedPlaces(gate).silence().ever
        ray.kill(b)
        gate.forget.remote(b._actor_id.hex())
        a.ask.remote(6)
        deadline = time.monotonic() + 60
        while ray.get(a.num_there.remote()) < 7 and time.monotonic() < deadline:
            time.sleep(0.02)
        assert ray.get(a.num_there.remote()) == 7, "what the dead one held is given to others"
    finally:
        ray.kill(a)
        ray.kill(gate)
