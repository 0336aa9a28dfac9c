"""Losing hosts costs time and never an episode; what is wrong with an episode itself still ends as missing."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from lemur_ray.agents.trajectory import Episode, Outcome
from lemur_ray.rollout.attempt import Attempt, EpisodeSpec
from lemur_ray.rollout.ledger import read_episodes
from lemur_ray.rollout.threads import PoolBroken
from tests.rollout.actors.simulated_hosts import DIES, SOLVED, Hosts, run_on
from tests.rollout.toy import toy_task

NO_SANDBOX = Attempt(Outcome.INFRA_LOST, None, detail="bubblewrap starts no sandbox")
TASKS = [toy_task(f"t{n}") for n in range(128)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "episodes.jsonl"


def outcomes(episodes: list[Episode]) -> Counter[Outcome]:
    return Counter(episode.outcome for episode in episodes)


def test_hosts_that_are_lost_again_and_again_and_actors_slow_to_start_cost_no_episode(path: Path) -> None:
    hosts = Hosts("abc", lambda host, spec: (20.0, SOLVED), starts_s=30.0)
    for number in range(60):  # each of them every two minutes
        hosts.after(40.0 * number, lambda name="abc"[number % 3]: hosts.lose(name, back_s=30.0))  # type: ignore[misc]
    episodes = run_on(hosts, TASKS, path)
    assert outcomes(episodes) == {Outcome.SOLVED: 128}
    assert max(episode.attempts for episode in episodes) > 4


def test_processes_that_a_host_ends_for_lack_of_memory_cost_no_episode(path: Path) -> None:
    hosts = Hosts("abc", lambda host, spec: (16.0, SOLVED))
    for number in range(40):
        hosts.after(9.0 * number, hosts.kill_any)
    episodes = run_on(hosts, TASKS, path)
    assert outcomes(episodes) == {Outcome.SOLVED: 128}
    assert max(episode.attempts for episode in episodes) >= 4


@pytest.mark.parametrize("per_actor", [1, 3])
def test_a_host_that_takes_everything_and_loses_it_at_once_costs_no_episode(path: Path, per_actor: int) -> None:
    hosts = Hosts("abc", lambda host, spec: (0.1, NO_SANDBOX) if host == "a" else (16.0, SOLVED))
    assert outcomes(run_on(hosts, TASKS, path, episodes_per_actor=per_actor)) == {Outcome.SOLVED: 128}
    assert hosts.attempts < 128 * 1.5, "and is left alone"


def test_a_host_that_is_well_again_plays_on(path: Path) -> None:
    hosts = Hosts("a", lambda host, spec: (0.1, NO_SANDBOX) if hosts.now < 100 else (16.0, SOLVED))
    assert outcomes(run_on(hosts, TASKS[:12], path, num_actors=1)) == {Outcome.SOLVED: 12}
    assert hosts.now < 400


def test_nothing_but_losses_on_all_hosts_ends_with_a_sentence_and_counts_nothing_as_missing(path: Path) -> None:
    hosts = Hosts("abc", lambda host, spec: (0.1, NO_SANDBOX))
    with pytest.raises(PoolBroken, match="for 5 minutes no host could play anything: bubblewrap starts no sandbox"):
        run_on(hosts, TASKS, path)
    assert hosts.now < 600
    assert read_episodes(path) == []


def test_actors_that_die_whatever_they_play_end_with_a_sentence(path: Path) -> None:
    hosts = Hosts("abc", lambda host, spec: (1.0, DIES))
    with pytest.raises(PoolBroken, match=r"actors died \d+ times in a row"):
        run_on(hosts, TASKS, path)
    assert hosts.now < 600
    assert read_episodes(path) == []


@pytest.mark.parametrize("per_actor", [1, 8])
def test_episodes_that_end_their_process_are_missing_and_those_beside_them_are_not(path: Path, per_actor: int) -> None:
    bad = {"t3", "t40"}
    hosts = Hosts("abc", lambda host, spec: (9.0, DIES if spec.task.id in bad else SOLVED))
    episodes = run_on(hosts, TASKS, path, episodes_per_actor=per_actor)
    assert outcomes(episodes) == {Outcome.SOLVED: 126, Outcome.INFRA_LOST: 2}
    assert {episode.key.task for episode in episodes if not episode.outcome.scored} == bad
    assert max(episode.attempts for episode in episodes) <= 10


def test_episodes_that_lose_their_sandbox_on_every_host_are_missing(path: Path) -> None:
    bad = {"t3", "t126", "t127"}
    hosts = Hosts("ab", lambda host, spec: (1.0, NO_SANDBOX) if spec.task.id in bad else (16.0, SOLVED))
    episodes = run_on(hosts, TASKS, path, num_actors=2)
    assert {episode.key.task for episode in episodes if not episode.outcome.scored} == bad
    assert all("bubblewrap" in episode.detail for episode in episodes if not episode.outcome.scored)


def test_what_cannot_be_had_anywhere_is_missing_in_the_end(path: Path) -> None:
    gone = Attempt(Outcome.INFRA_LOST, None, detail="the bundle is not there", excused=True)
    hosts = Hosts("ab", lambda host, spec: (5.0, gone) if spec.task.id == "t3" else (16.0, SOLVED))
    episodes = run_on(hosts, TASKS, path, num_actors=2)
    (missing,) = (episode for episode in episodes if not episode.outcome.scored)
    assert (missing.key.task, missing.detail) == ("t3", "the bundle is not there")


def test_what_one_is_tried_again_for_takes_no_attempt_from_the_other(path: Path) -> None:
    ends = [Outcome.INFRA_LOST] * 3 + [Outcome.ENV_ERROR] * 2 + [Outcome.HARNESS_BUG, Outcome.SOLVED]
    left = list(ends)

    def play(host: str, spec: EpisodeSpec) -> tuple[float, Attempt]:
        outcome = left.pop(0)
        return 1.0, Attempt(outcome, 1.0 if outcome.scored else None)

    (episode,) = run_on(Hosts("a", play), TASKS[:1], path, num_actors=1)
    assert (episode.outcome, episode.attempts) == (Outcome.SOLVED, len(ends))
