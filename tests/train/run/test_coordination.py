"""Agreement of several processes through JAX's coordination service, each here a thread with a client of its own."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jax
import pytest
from jax._src import distributed
from jax._src.lib import _jax

from lemur_ray.host.ports import free_port
from lemur_ray.train.run import coordination
from lemur_ray.train.run.coordination import SaveAgreement, share

RANKS = 8


@pytest.fixture(scope="module")
def clients() -> Iterator[list[Any]]:
    """One client of a coordination service for each rank."""
    address = f"127.0.0.1:{free_port()}"
    service = _jax.get_distributed_runtime_service(address, RANKS)
    connected = [_jax.get_distributed_runtime_client(address, rank, init_timeout=60) for rank in range(RANKS)]
    in_parallel(lambda rank: connected[rank].connect())
    yield connected
    in_parallel(lambda rank: connected[rank].shutdown())
    service.shutdown()


def in_parallel(do: Callable[[int], Any]) -> list[Any]:
    with ThreadPoolExecutor(RANKS) as pool:
        return list(pool.map(do, range(RANKS)))


class Counting:
    """A client that counts its messages."""

    def __init__(self, client: Any) -> None:
        self.client, self.sent = client, Counter[str]()

    def key_value_set(self, key: str, value: str) -> None:
        self.sent["set"] += 1
        self.client.key_value_set(key, value)

    def blocking_key_value_get(self, key: str, timeout_in_ms: int) -> str:
        self.sent["get"] += 1
        return self.client.blocking_key_value_get(key, timeout_in_ms)


@pytest.fixture
def agreements(clients: list[Any], request: pytest.FixtureRequest) -> Iterator[tuple[list[SaveAgreement], list[Any]]]:
    stores = [Counting(client) for client in clients]
    made = [SaveAgreement(store, rank, RANKS, request.node.name) for rank, store in enumerate(stores)]
    yield made, stores
    for agreement in made:
        agreement.close()


@pytest.mark.parametrize("in_step", [True, False], ids=["a collective in each step", "each at its pace"])
def test_all_processes_save_at_the_same_steps_which_none_has_passed(
    agreements: tuple[list[SaveAgreement], list[Any]], in_step: bool
) -> None:
    made, _ = agreements
    together = threading.Barrier(RANKS)

    def steps(rank: int) -> list[tuple[int, str]]:
        chance, reached, left = random.Random(rank), [], ["first notice", "second notice", ""]
        for step in range(1, 200):
            if in_step:
                together.wait(30)
            time.sleep(chance.random() * 4e-3)
            if rank == 0 and step % 40 == 0 and left and made[0].takes_request:
                made[0].request(left.pop(0))
            if (reason := made[rank].reached(step)) is not None:
                reached.append((step, reason))
        return reached

    first, *others = in_parallel(steps)
    assert [reason for _, reason in first] == ["first notice", "second notice", ""]
    assert all(other == first for other in others)


def test_a_step_without_a_request_sends_no_message(agreements: tuple[list[SaveAgreement], list[Any]]) -> None:
    made, stores = agreements
    for agreement in made:
        assert all(agreement.reached(step) is None for step in range(1, 1001))
    assert sum((store.sent for store in stores), Counter[str]()) == {"get": RANKS}, "each waits for the first request"
    made[0].request("notice")

    def reached_after(rank: int) -> int:
        step = 1001
        while made[rank].reached(step) is None:
            time.sleep(1e-3)
            step += 1
        return step

    assert len(set(in_parallel(reached_after))) == 1
    sent = sum((store.sent for store in stores), Counter[str]())
    assert sent["set"] == 1 + RANKS + 1, "the request, the last step of each, the answer"


def test_a_request_before_the_first_step_after_a_restart_is_for_that_step(clients: list[Any]) -> None:
    made = [SaveAgreement(client, rank, RANKS, "restart", step=5000) for rank, client in enumerate(clients)]
    made[0].request("notice")
    deadline = time.monotonic() + 30
    while not made[0]._agreed and time.monotonic() < deadline:
        time.sleep(1e-3)
    assert in_parallel(lambda rank: made[rank].reached(5001)) == ["notice"] * RANKS
    for agreement in made:
        agreement.close()


def test_others_than_rank_0_make_no_request(agreements: tuple[list[SaveAgreement], list[Any]]) -> None:
    made, _ = agreements
    assert [agreement.takes_request for agreement in made] == [True] + [False] * (RANKS - 1)
    made[0].request("one")
    assert not made[0].takes_request, "until it is agreed on"


def test_only_rank_0_makes_a_shared_value(clients: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def of(rank: int) -> Any:
        monkeypatch.setattr(distributed.global_state, "client", clients[rank])
        monkeypatch.setattr(jax, "process_index", lambda: rank)
        monkeypatch.setattr(coordination, "_calls", iter([7, 8]))

        def make() -> Any:
            asked.append(rank)
            return {"steps": [3, 2], "plan": {"rows": 6}}

        return share(make)

    monkeypatch.setattr(jax, "process_count", lambda: RANKS)
    assert [of(rank) for rank in range(RANKS)] == [{"steps": [3, 2], "plan": {"rows": 6}}] * RANKS
    assert asked == [0]
