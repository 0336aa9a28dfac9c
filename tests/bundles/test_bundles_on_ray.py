"""Episodes on actors of another host: what they read reaches them in pieces or through a store, once per host."""

from __future__ import annotations

import asyncio
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
import ray

from envs.intercode.sql.sample_database import build_sample
from envs.intercode.sql.tasks import load_sql_tasks
from lemur_ray.agents.baselines.scripted import ExpertPolicy
from lemur_ray.agents.messages import Sampling
from lemur_ray.agents.trajectory import Outcome, Task
from lemur_ray.rollout.actors import on_ray as actors_on_ray
from lemur_ray.rollout.actors.on_ray import RayPool
from lemur_ray.rollout.actors.pool import PoolLimits
from lemur_ray.rollout.attempt import Attempt, EpisodeLimits
from lemur_ray.rollout.schedule.episode_plan import EpisodePlan
from lemur_ray.storage.bundles import host_cache, on_ray
from lemur_ray.storage.bundles.bundle import Bundle, BundleError
from lemur_ray.storage.bundles.host_path import pack_options
from lemur_ray.storage.bundles.on_ray import Publisher
from tests.bundles.another_host import actor_at


@pytest.fixture
def another_host(ray_local: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The LEMUR_HOME of actors, which are all on another host."""
    home = tmp_path / "there"
    monkeypatch.setattr(actors_on_ray, "_Actor", actor_at(str(home)))
    monkeypatch.setenv("LEMUR_HOME", str(tmp_path / "here"))
    monkeypatch.delenv("LEMUR_STORE", raising=False)
    return home


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_sample(tmp_path_factory.mktemp("sample") / "sample.sqlite")


@pytest.fixture
def tasks(sample: Path, tmp_path: Path) -> list[Task]:
    (tmp_path / "data").mkdir()
    return load_sql_tasks(4, database=Path(shutil.copy(sample, tmp_path / "data")))


def play(actors: RayPool, tasks: list[Task]) -> list[Attempt]:
    plan = EpisodePlan(
        [*tasks], epochs=1, policy="p", recipe="r", sampling=Sampling(), limits=EpisodeLimits(policy_s=60)
    )
    waiting = list(plan)
    ended: list[Attempt] = []
    deadline = time.monotonic() + 300
    while len(ended) < len(plan) and time.monotonic() < deadline:
        while waiting and len(plan) - len(waiting) - len(ended) < actors.capacity:
            actors.submit(waiting.pop(0))
        ended += [attempt for _, attempt in actors.collect(1.0)]
    return ended


def fetch_until_it_fails(bundle: Bundle, archive: Path) -> None:
    """An actor that is killed is gone soon, not at once."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        on_ray.fetch(bundle, archive)
        time.sleep(0.2)


@pytest.mark.parametrize("store", [False, True])
def test_a_database_that_is_moved_away_once_it_is_published_is_played_on_another_host(
    another_host: Path, tasks: list[Task], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, store: bool
):
    if store:
        monkeypatch.setenv("LEMUR_STORE", str(tmp_path / "store"))
    actors = RayPool(ExpertPolicy, PoolLimits(num_actors=2, episodes_per_actor=2), tasks=tasks)
    try:
        (tmp_path / "data").rename(tmp_path / "moved")
        ended = play(actors, tasks)
    finally:
        actors.close()
    assert [attempt.outcome for attempt in ended] == [Outcome.SOLVED] * 4, ended
    made = [path for path in (another_host / "cache" / "bundles").iterdir() if path.is_dir()]
    assert [path.name for path in made[0].iterdir()] == ["sample.sqlite"]
    assert len(made) == 1
    assert (tmp_path / "store" / "bundles").is_dir() == store
    assert not list((tmp_path / "here" / "cache" / "bundles").iterdir())


def test_a_bundle_that_is_gone_loses_the_episode_to_nobodys_fault(
    another_host: Path, tasks: list[Task], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LEMUR_STORE", str(tmp_path / "store"))
    actors = RayPool(ExpertPolicy, PoolLimits(num_actors=1, episodes_per_actor=2), tasks=tasks)
    try:
        next((tmp_path / "store" / "bundles").iterdir()).unlink()
        (ended,) = play(actors, tasks[:1])
    finally:
        actors.close()
    assert ended.outcome is Outcome.INFRA_LOST
    assert "is not there (deleted" in ended.detail


def test_an_actor_that_cannot_have_a_bundle_rests_before_it_says_so(tasks: list[Task], tmp_path: Path, monkeypatch):
    """Or of three hosts the one that cannot be used would be the one that is idle, and fail what others can play."""
    monkeypatch.setenv("LEMUR_HOME", str(tmp_path / "home"))
    gone = Bundle(str(tmp_path / "none.tar"), "0" * 64, 1)
    task = replace(tasks[0], options=pack_options(tasks[0].options, lambda source, dated: gone))
    plan = EpisodePlan([task], epochs=1, policy="p", recipe="r", sampling=Sampling(), limits=EpisodeLimits())
    actor = actors_on_ray._Actor(ExpertPolicy)
    assert actor.rest_s >= 5.0
    actor.rest_s = 0.3
    began = time.monotonic()
    attempt, _ = asyncio.run(actor.play(plan[0], is_packed=True))
    assert (attempt.outcome, time.monotonic() - began > 0.3) == (Outcome.INFRA_LOST, True)
    assert "is not there" in attempt.detail


def test_what_ray_cannot_give_just_now_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("LEMUR_HOME", str(tmp_path / "home"))
    asked: list[str] = []

    def busy(name: str) -> None:
        asked.append(name)
        raise ray.exceptions.GetTimeoutError("the head did not answer in time")

    monkeypatch.setattr(ray, "get_actor", busy)
    with pytest.raises(BundleError, match=r"could not be fetched in 3 attempts \(GetTimeoutError: the head did not"):
        host_cache.unpacked_bundle(Bundle("pieces:x", "0" * 64, 1), on_ray.fetch, pause_s=0.0)
    assert len(asked) == 3


def test_actors_on_this_host_are_sent_nothing_but_the_path(ray_local: str, tasks: list[Task], lemur_home: Path):
    actors = RayPool(ExpertPolicy, PoolLimits(num_actors=1, episodes_per_actor=2), tasks=tasks)
    try:
        (ended,) = play(actors, tasks[:1])
    finally:
        actors.close()
    assert ended.outcome is Outcome.SOLVED
    assert not actors._backend.publisher._known
    assert not (lemur_home / "cache").exists()


def test_what_cannot_be_shipped_is_said_before_the_first_episode(another_host: Path, tasks: list[Task], tmp_path: Path):
    (tmp_path / "data" / "sample.sqlite").unlink()
    with pytest.raises(BundleError, match=r"sample.sqlite: is not there"):
        RayPool(ExpertPolicy, PoolLimits(num_actors=1, episodes_per_actor=1), tasks=tasks)


def test_pieces_are_small_end_with_their_publisher_and_are_refused_where_a_store_is_due(
    ray_local: str, lemur_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("LEMUR_STORE", raising=False)
    monkeypatch.setattr(on_ray, "PIECE_BYTES", 1000)
    ray.init(address=ray_local, ignore_reinit_error=True, log_to_driver=False)
    (tmp_path / "x").write_bytes(os.urandom(5000))
    publisher = Publisher()
    bundle = publisher(tmp_path / "x", False)
    assert publisher(tmp_path / "x", False) is bundle
    assert (on_ray.unpacked_bundle(bundle) / "x").read_bytes() == (tmp_path / "x").read_bytes()
    publisher.close()
    with pytest.raises(BundleError, match="the actor that holds the bundle is gone"):
        fetch_until_it_fails(bundle, tmp_path / "again.tar")
    monkeypatch.setattr(on_ray, "MOST_BYTES", 4000)
    with pytest.raises(BundleError, match=r"\d+ bytes are too many .*: set LEMUR_STORE to a bucket"):
        Publisher()(tmp_path / "x", False)


def test_a_folder_of_gigabytes_is_refused_before_anything_of_it_is_packed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("LEMUR_HOME", str(tmp_path / "home"))
    monkeypatch.delenv("LEMUR_STORE", raising=False)
    (tmp_path / "data").mkdir()
    with (tmp_path / "data" / "large").open("wb") as file:
        file.truncate(5 * 10**9)
    with pytest.raises(BundleError, match=r"data: 5000000000 bytes are too many for Ray's object store .*LEMUR_STORE"):
        Publisher()(tmp_path / "data", False)
    assert not (tmp_path / "home").exists()
