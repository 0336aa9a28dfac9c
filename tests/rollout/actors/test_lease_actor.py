"""Site sets on hosts that have no folder in common: one lease for all of a cluster, resets on its head, once each."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.agents.trajectory import Outcome
from lemur_ray.rollout.actors.task_lease_actor import RemoteLeases, start_lease_actor
from lemur_ray.rollout.evaluation import create_pool
from lemur_ray.rollout.evaluation_config import EvalConfig
from tests.rollout.actors import leasing
from tests.rollout.test_runner import run
from tests.rollout.toy import toy_task


@pytest.fixture
def lease_actor(ray_local: str, lemur_home: Path) -> Iterator[Any]:
    import ray

    ray.init(address=ray_local, ignore_reinit_error=True, log_to_driver=False)
    found = start_lease_actor()
    yield found
    ray.kill(found)


def held(host: Any) -> bool:
    """Once the keeper that was killed is back, which takes a while."""
    import ray

    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        with contextlib.suppress(ray.exceptions.RayTaskError):
            if not ray.get(host.is_held.remote()):
                return False
        time.sleep(0.1)
    return True


@pytest.mark.slow
def test_hosts_without_a_folder_in_common_never_have_one_place_and_reset_a_set_once(
    lease_actor: Any, tmp_path: Path
) -> None:
    import ray

    log = tmp_path / "log"
    one = {"name": "a", "urls": {"MAP": "http://a"}, "places": 2, "reset": ["sh", "-c", f"echo $LEMUR_HOME >> {log}"]}
    kinds = [
        ray.remote(num_cpus=0)(leasing.Host).options(runtime_env={"env_vars": {"LEMUR_HOME": str(tmp_path / name)}})
        for name in "xy"
    ]
    x, y = (kind.remote(RemoteLeases(lease_actor), {"sets": [one]}) for kind in kinds)

    def asked(*refs: Any) -> list[str]:
        found: list[str] = ray.get(list(refs), timeout=120)
        return found

    assert asked(x.lease.remote(), y.lease.remote()) == ["a", "a"]
    assert ["no place" in said for said in asked(x.lease.remote(), y.lease.remote())] == [True, True]
    asked(y.give_back.remote())
    assert asked(x.lease.remote(0, 1, 0)) == ["a"]
    asked(x.give_back.remote())
    asked(x.give_back.remote())
    assert asked(x.lease.remote(0, 1, 1), y.lease.remote(0, 1, 1)) == ["a", "a"], "another epoch"
    assert len(log.read_text().splitlines()) == 1
    assert not [name for name in "xy" if (tmp_path / name).exists()], "nothing is kept on either"
    ray.kill(y)
    asked(lease_actor.forget.remote(y._actor_id.hex()))
    assert asked(x.lease.remote(0, 1, 1)) == ["a"], "what the dead one held"
    ray.kill(lease_actor, no_restart=False)
    assert not held(x), "others may have been there since"
    assert asked(x.lease.remote(0, 1, 1)) == ["a"]
    assert len(log.read_text().splitlines()) == 1, "what was noted is still known"
    ray.kill(x)


@pytest.mark.slow
def test_what_an_actor_held_that_was_killed_is_free_for_the_next_try(
    ray_local: str, lemur_home: Path, tmp_path: Path
) -> None:
    config = EvalConfig(leasing.NoOptions(), f"{leasing.__name__}:LEASING", in_flight=1, actors=1)
    pool = create_pool(config, leasing.Makes(tmp_path / "mark"))
    try:
        (episode,) = run(pool, [toy_task("t", hints=True)], tmp_path / "episodes.jsonl")
    finally:
        pool.close()
    assert (episode.outcome, episode.attempts) == (Outcome.SOLVED, 2)
    assert (lemur_home / "only one.lock").is_file(), "on the head of the cluster"
