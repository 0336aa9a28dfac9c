"""Decision 006, rule 3: whatever a policy does, its episode is scored, not solved, and nobody else's is touched."""

from __future__ import annotations

import contextlib
import copy
import json
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import pytest

from lemur_ray.agents.trajectory import Episode, Outcome
from lemur_ray.benchmarks.discovery import names
from lemur_ray.rollout.actors.on_ray import RayPool
from lemur_ray.rollout.actors.pool import PoolLimits
from tests.attacks import hostile_questions as questions
from tests.attacks.acts import ACTS, ANSWERED
from tests.attacks.arena import ready
from tests.attacks.hostile_play import BENCHMARK, KINDS, Play, order, peak_bytes, play
from tests.envs.intercode.mariadb_server import running

PEAK_MIB = 500
"""No process of the harness holds more, with 32 episodes in flight."""


@pytest.fixture(scope="module")
def games(data_dir: Path) -> str:
    return str(data_dir / "mint" / "tasks" / "alfworld" / "valid_unseen_134_games.tar.gz")


def faults(ended: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """What is not as it should be: (task, outcome, detail)."""
    wrong = []
    for task, outcome, detail in ended:
        good = outcome == "solved" if task.startswith("benign") else Outcome(outcome).scored and outcome != "solved"
        if not good:
            wrong.append((task, outcome, detail))
    return wrong


def ended(episodes: list[Episode]) -> list[tuple[str, str, str]]:
    return [(e.key.task, e.outcome.value, e.detail) for e in episodes]


def test_there_are_acts_enough_and_no_two_of_a_kind_have_one_name() -> None:
    named = [(act.name, kind) for act in ACTS for kind in act.kinds]
    assert len(named) == len(set(named))
    assert len({act.replies for act in ACTS}) >= 60


PLAYED_AS = {
    "alfworld/valid_seen": ("alfworld/text", "the same environment, other games"),
    "alfworld/valid_unseen": ("alfworld/text", "the same environment, other games"),
    "mint/math": ("mint/gsm8k", "the same environment and tools, other answers"),
    "mint/hotpotqa": ("mint/gsm8k", "the same environment and tools, other answers"),
    "mint/mmlu": ("mint/gsm8k", "the same environment and tools, other answers"),
    "mint/humaneval": ("mint/mbpp", "the same environment and grader, other tests"),
    "humaneval": ("mint/mbpp", "the same grader of programs, one turn"),
    "mbpp": ("mint/mbpp", "the same grader of programs, one turn"),
    "webarena/standin": ("webarena/webarena", "the same environment, other sites"),
    **dict.fromkeys(
        (
            "bbh/cot",
            "bbh/direct",
            "bfcl",
            "gpqa/diamond",
            "gpqa/extended",
            "gpqa/main",
            "gsm8k",
            "ifeval",
            "math_500",
            "mmlu",
        ),
        ("", "a reply is read as a text, nothing of it is run"),
    ),
    "mmlu_pro": ("", "a reply is read as a text, nothing of it is run"),
    "livecodebench": ("", "its own attacks, in its tests"),
    "tau_bench/airline": ("", "its own attacks, in tests/envs/language/test_tau_bench.py"),
    "tau_bench/retail": ("", "its own attacks, in tests/envs/language/test_tau_bench.py"),
    "bfcl/multi_turn": ("", "its own attacks, in tests/envs/language/test_bfcl_multi_turn.py"),
}
"""Benchmarks that no act is played in: which one stands for each, and why."""


def test_every_benchmark_is_played_or_says_what_is_played_for_it() -> None:
    played = set(BENCHMARK.values())
    assert set(names()) - played == set(PLAYED_AS), "a new benchmark has acts, or a reason here"
    assert {other for other, _ in PLAYED_AS.values()} - {""} <= played
    assert {kind for act in ACTS for kind in act.kinds} == set(BENCHMARK) == set(KINDS)


def test_a_choice_of_hostile_policies_is_scored_and_their_neighbours_solve_their_tasks(
    tmp_path: Path, games: str
) -> None:
    quick = tuple(number for number, act in enumerate(ACTS) if act.is_quick)
    episodes = play(Play(quick, games=games, in_flight=8), tmp_path / "episodes.jsonl")
    assert len(episodes) > len(quick), "benign ones play among them"
    assert faults(ended(episodes)) == []


@pytest.fixture(scope="module")
def server() -> Any:
    """A MariaDB with one little database and an account that may only read, as environments see it."""
    from envs.intercode.sql.mysql_engine import ServerUrl

    with running() as url:
        with ServerUrl.parse(url).connect() as admin, admin.cursor() as cursor:
            for statement in (
                "CREATE DATABASE lemur",
                "CREATE TABLE lemur.t (a INT, b TEXT)",
                "INSERT INTO lemur.t VALUES (1, 'x'), (2, 'y')",
                "CREATE USER 'reader'@'localhost' IDENTIFIED BY 'r'",
                "GRANT SELECT ON lemur.* TO 'reader'@'localhost'",
            ):
                cursor.execute(statement)
        yield url.replace("root@", "reader:r@")


def played_alone(what: Play, timeout_s: float) -> dict[str, Any]:
    """In a process of its own, whose memory is told."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-m", "tests.attacks.hostile_play", order(what)],
        capture_output=True,
        text=True,
        timeout=timeout_s,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "30 MB of lists",
        pytest.param("a million empty lists", marks=pytest.mark.sweep),
        pytest.param("brackets without end", marks=pytest.mark.sweep),
    ],
)
def test_the_harness_stays_small_while_32_policies_do_the_worst_at_once(name: str) -> None:
    number = next(n for n, act in enumerate(ACTS) if act.name == name)
    said = played_alone(Play((number,), in_flight=33, copies=32), 580)
    assert sum(name in one["task"] for one in said["ended"]) == 32
    assert faults([(one["task"], one["outcome"], one["detail"]) for one in said["ended"]]) == []
    assert said["peak_mib"] < PEAK_MIB, f"{said['before_mib']} MiB before the first episode"


@pytest.mark.slow
@pytest.mark.timeout(3700)
@pytest.mark.parametrize(
    ("backend", "every"),
    [
        ("bwrap", 12),
        pytest.param("docker", 288, marks=pytest.mark.docker),
        pytest.param("bwrap", 1, marks=pytest.mark.sweep),
        pytest.param("docker", 1, marks=[pytest.mark.docker, pytest.mark.sweep]),
    ],
)
def test_hostile_policies_are_scored_and_the_harness_stays_small(
    backend: str, every: int, games: str, server: str
) -> None:
    ready(backend)
    sandboxed = backend != "bwrap"  # what needs none was played under the other one
    several = [n for n, act in enumerate(ACTS) if act not in ANSWERED]  # those have a test of their own
    chosen = [n for n in several if not sandboxed or ACTS[n].kinds[0] not in ("sql", "mysql", "alfworld")]
    chosen = chosen[::every]
    in_flight, neighbours = (32, 2) if backend == "bwrap" else (6, 1)  # with more, a slow engine needs a minute a step
    what = Play(tuple(chosen), backend, in_flight, neighbours, games, server)
    said = played_alone(what, 850 if every > 1 else 3600)
    assert faults([(one["task"], one["outcome"], one["detail"]) for one in said["ended"]]) == []
    assert said["peak_mib"] < PEAK_MIB, f"{said['before_mib']} MiB before the first episode"


@pytest.mark.sweep
@pytest.mark.slow
@pytest.mark.parametrize("backend", ["bwrap", pytest.param("docker", marks=pytest.mark.docker)])
@pytest.mark.parametrize("kind", questions.QUESTIONS)
def test_answers_of_hostile_policies_are_scored_and_a_right_one_passes_among_them(
    kind: str, backend: str, tmp_path: Path
) -> None:
    if kind == "web" and backend != "bwrap":
        pytest.skip("a browser is in no sandbox: played once")
    ready(backend)
    if why := questions.lacks(kind, backend):
        pytest.skip(why)
    chosen = tuple(number for number, act in enumerate(ACTS) if kind in act.kinds)
    episodes = play(Play(chosen, backend=backend, in_flight=6), tmp_path / "episodes.jsonl")
    assert len(episodes) == len(chosen) + 1
    assert faults(ended(episodes)) == []


class Peaks(RayPool):
    """Remembers the most memory that its actors held."""

    mib: ClassVar[list[int]] = []

    def close(self) -> None:
        for pid in self.pids:
            with contextlib.suppress(OSError):
                self.mib.append(peak_bytes(f"/proc/{pid}/status") >> 20)
        super().close()


@pytest.mark.sweep  # the slow tier has the process of its own above, with the worst of these acts 32 times
def test_actors_stay_small_too(tmp_path: Path, games: str, ray_local: str) -> None:
    """An actor of Ray that plays nothing holds some 150 MiB."""
    large = ("30 MB", "million", "50 MB", "brackets", "without end", "full disk")
    chosen = tuple(
        n for n, act in enumerate(ACTS) if act.kinds[0] in ("code", "sql") and any(w in act.name for w in large)
    )
    limits = PoolLimits(num_actors=2, episodes_per_actor=16)
    made = lambda policy: Peaks(partial(copy.deepcopy, policy), limits)  # noqa: E731
    episodes = play(Play(chosen, games=games), tmp_path / "episodes.jsonl", made)
    assert faults(ended(episodes)) == []
    assert len(Peaks.mib) == 2
    assert max(Peaks.mib) < PEAK_MIB
