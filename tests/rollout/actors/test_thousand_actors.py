"""A thousand actors whose hosts are lost, cut off and replaced all the time: each episode is recorded once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from lemur_ray.agents.trajectory import Outcome
from lemur_ray.rollout.ledger import read_episodes
from tests.rollout.actors.simulated_hosts import SOLVED, Hosts, run_on
from tests.rollout.toy import toy_task

HOSTS, ACTORS, EPISODES = 250, 1000, 20_000
LOST, CUT_OFF = 254, 203
LONGEST_S = 240.0
"""Of an episode, far beyond the shorter ``quiet_s``."""
TURN_S = 1.0
"""Of the driver: about seven episodes end meanwhile, and the ledger is synced once for them."""


@pytest.mark.sweep
@pytest.mark.parametrize("quiet_s", [300.0, 60.0])
def test_254_lost_hosts_and_203_partitions_cost_no_record(tmp_path: Path, quiet_s: float) -> None:
    chance = random.Random(5)
    names = [f"h{number}" for number in range(HOSTS)]
    seconds = {f"t{number}": chance.uniform(60.0, LONGEST_S) for number in range(EPISODES)}
    hosts = Hosts(names, lambda host, spec: (seconds[spec.task.id], SOLVED), starts_s=30.0, turn_s=TURN_S)
    faults = [hosts.lose] * LOST + [hosts.cut_off] * CUT_OFF
    chance.shuffle(faults)
    for number, fault in enumerate(faults):  # all through the run, and from the first episodes on
        name, back_s = chance.choice(names), chance.uniform(2.0, 120.0)
        hosts.after(35.0 + 6.0 * number, lambda fault=fault, name=name, back_s=back_s: fault(name, back_s))  # type: ignore[misc]
    tasks = [toy_task(name) for name in seconds]
    path = tmp_path / "episodes.jsonl"
    episodes = run_on(hosts, tasks, path, num_actors=ACTORS, episodes_per_actor=1, quiet_s=quiet_s)
    assert all(episode.outcome is Outcome.SOLVED for episode in episodes)
    records = read_episodes(path)
    assert (len(records), len({record.key for record in records})) == (EPISODES, EPISODES)
    assert hosts.attempts > EPISODES + LOST, "they cost time"
    assert hosts.now > 6.0 * len(faults), "until the last of the faults"


def test_hosts_lost_before_the_first_long_episode_ends_do_not_break_the_pool(tmp_path: Path) -> None:
    names = [f"h{number}" for number in range(40)]
    hosts = Hosts(names, lambda host, spec: (150.0, SOLVED), starts_s=10.0)
    for number in range(12):
        hosts.after(15.0 + 10.0 * number, lambda name=names[number]: hosts.lose(name, back_s=20.0))  # type: ignore[misc]
    path = tmp_path / "episodes.jsonl"
    tasks = [toy_task(f"t{number}") for number in range(80)]
    episodes = run_on(hosts, tasks, path, num_actors=40, episodes_per_actor=1, quiet_s=60.0)
    assert all(episode.outcome is Outcome.SOLVED for episode in episodes)
    assert len(read_episodes(path)) == 80
