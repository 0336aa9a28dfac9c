"""A run: what is played, what is played again, what is recorded."""

import io
import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.agents.baselines.scripted import ExpertPolicy
from lemur_ray.agents.messages import ChatReply, ChatRequest, PolicyUnreachable, Sampling
from lemur_ray.agents.throttle import Pressure
from lemur_ray.agents.trajectory import Episode, Outcome
from lemur_ray.rollout.attempt import Attempt, EpisodeLimits, EpisodeSpec
from lemur_ray.rollout.ledger import Ledger, read_episodes
from lemur_ray.rollout.progress import Progress
from lemur_ray.rollout.runner import run_episodes
from lemur_ray.rollout.schedule.episode_plan import EpisodePlan
from lemur_ray.rollout.schedule.retries import RetryPolicy
from lemur_ray.rollout.threads import ThreadPool
from tests.rollout.scripted_policy import ScriptedPolicy
from tests.rollout.toy import AT_ONCE, run, toy_task

QUICK = EpisodeLimits(step_s=0.3, reset_s=5.0, close_s=0.3)
"""For environments that hang; a healthy one may need longer on a busy machine."""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "episodes.jsonl"


class Counting(ExpertPolicy):
    """Remembers which episodes it was asked for; may fail the first times an episode asks."""

    def __init__(self, failures: int = 0) -> None:
        self.episodes: list[str] = []
        self.seeds: list[int] = []
        self.failures = failures

    def reply(self, request: ChatRequest) -> ChatReply:
        self.episodes.append(request.episode)
        self.seeds.append(request.sampling.seed)
        if self.episodes.count(request.episode) <= self.failures:
            raise PolicyUnreachable("nobody at home")
        return super().reply(request)


def test_every_task_of_every_epoch_is_played_once_and_in_the_ledger(path: Path):
    tasks = [toy_task(f"t{i}") for i in range(7)]
    policy = Counting()
    episodes = run(ThreadPool(policy, capacity=3), tasks, path, epochs=2)
    assert [(e.key.task, e.key.epoch) for e in episodes] == [(f"t{i}", epoch) for epoch in range(2) for i in range(7)]
    assert all(e.outcome is Outcome.SOLVED and e.attempts == 1 and e.retried == () for e in episodes)
    assert {e.key for e in read_episodes(path)} == {e.key for e in episodes}
    assert len(policy.episodes) == 14 * 3


def test_running_again_plays_nothing_twice_and_more_tasks_only_add(path: Path):
    tasks = [toy_task(f"t{i}") for i in range(5)]
    first = run(ThreadPool(ExpertPolicy(), 2), tasks[:3], path)
    policy = Counting()
    again = run(ThreadPool(policy, 2), tasks, path)
    assert again[:3] == first
    assert {name.split("|")[1] for name in policy.episodes} == {"t3", "t4"}


def test_two_tasks_of_one_name_are_refused():
    with pytest.raises(ValueError, match="1 task ids occur twice, for example 't'"):
        EpisodePlan([toy_task("t"), toy_task("t")], epochs=1, policy="p", recipe="r", sampling=Sampling(), limits=QUICK)


@pytest.mark.parametrize(
    ("failures", "outcome"), [(1, Outcome.SOLVED), (3, Outcome.SOLVED), (9, Outcome.POLICY_UNREACHABLE)]
)
def test_an_unreachable_policy_is_tried_again_a_bounded_number_of_times_with_the_same_seed(
    path: Path, failures: int, outcome: Outcome
):
    policy = Counting(failures)
    (episode,) = run(ThreadPool(policy, 1), [toy_task()], path)
    assert episode.outcome is outcome
    assert episode.attempts == min(failures, 3) + 1
    assert len(episode.retried) == episode.attempts - 1
    assert all("policy_unreachable: nobody at home" in reason for reason in episode.retried)
    assert len(set(policy.seeds[: min(failures, 3) + 1])) == 1
    assert (episode.score is None) == (outcome is Outcome.POLICY_UNREACHABLE)


def test_an_environment_that_breaks_once_is_tried_again_and_one_that_always_does_is_recorded(
    path: Path, tmp_path: Path
):
    tasks = [
        toy_task("once", step="raise once", mark=str(tmp_path / "mark")),
        toy_task("always", step="raise"),
        toy_task("well"),
    ]
    once, always, well = run(ThreadPool(ExpertPolicy(), 3), tasks, path)
    assert (once.outcome, once.attempts, once.score) == (Outcome.SOLVED, 2, 1.0)
    assert "attempt 1: env_error" in once.retried[0]
    assert (always.outcome, always.attempts, always.score) == (Outcome.ENV_ERROR, 3, None)
    assert (well.attempts, well.retried) == (1, ())


def test_what_is_the_policys_own_fault_is_never_tried_again(path: Path):
    (episode,) = run(ThreadPool(ScriptedPolicy([""]), 1), [toy_task()], path)
    assert (episode.outcome, episode.attempts, episode.score) == (Outcome.INVALID_ACTIONS, 1, 0.0)


def test_hanging_environments_hold_up_nobody_else(path: Path):
    tasks = [toy_task(f"h{i}", step="hang") for i in range(3)] + [toy_task(f"t{i}") for i in range(20)]
    started = time.monotonic()
    plan = [
        replace(spec, limits=QUICK if spec.task.id.startswith("h") else EpisodeLimits())
        for spec in EpisodePlan(tasks, epochs=1, policy="p", recipe="r", sampling=Sampling(), limits=EpisodeLimits())
    ]
    with Ledger(path) as ledger:
        progress = Progress(io.StringIO(), time.monotonic)
        pool = ThreadPool(ExpertPolicy(), 4)
        episodes = run_episodes(plan, pool, ledger, retries=AT_ONCE, progress=progress, clock=time.monotonic)
    assert time.monotonic() - started < 60
    assert [(e.outcome, e.attempts) for e in episodes] == [(Outcome.ENV_ERROR, 3)] * 3 + [(Outcome.SOLVED, 1)] * 20


def test_what_has_no_score_is_played_again_by_the_next_run_and_what_has_one_is_not(path: Path):
    tasks = [toy_task("t0"), toy_task("t1")]
    lost = run(ThreadPool(Counting(9), 1), tasks[:1], path)
    assert lost[0].outcome is Outcome.POLICY_UNREACHABLE
    first = run(ThreadPool(ExpertPolicy(), 1), tasks, path)
    assert [e.outcome for e in first] == [Outcome.SOLVED] * 2
    policy = Counting()
    assert run(ThreadPool(policy, 1), tasks, path) == first == read_episodes(path)
    assert policy.episodes == []


class Silent:
    """A pool of one actor whose policy answers nobody, on a clock that each attempt advances by four minutes."""

    capacity = 2

    def __init__(self, answers: int = 0) -> None:
        self.now, self.answers, self.attempts = 0.0, answers, 0
        self.running: list[EpisodeSpec] = []

    def expect(self, left: int) -> None:
        pass

    def submit(self, spec: EpisodeSpec) -> None:
        self.running.append(spec)

    def collect(self, timeout_s: float) -> list[tuple[EpisodeSpec, Attempt]]:
        self.now += 240.0
        ended, self.running = self.running, []
        self.attempts += len(ended)
        self.answers -= 1
        silent = Attempt(Outcome.POLICY_UNREACHABLE, None, detail="nobody at home")
        return [(spec, Attempt(Outcome.SOLVED, 1.0) if self.answers >= 0 else silent) for spec in ended]

    def pressure(self) -> Pressure:
        return Pressure()

    def close(self) -> None:
        pass


def test_a_policy_that_answers_nobody_stops_the_run_which_can_be_resumed(path: Path):
    tasks = [toy_task(f"t{i}") for i in range(100)]
    plan = EpisodePlan(tasks, epochs=1, policy="p", recipe="r", sampling=Sampling(), limits=QUICK)
    pool = Silent(answers=3)
    with Ledger(path) as ledger, pytest.raises(PolicyUnreachable, match=r"for 8 minutes \(6 attempts.*nobody at home"):
        run_episodes(
            plan, pool, ledger, retries=RetryPolicy(), progress=Progress(io.StringIO(), lambda: pool.now),
            clock=lambda: pool.now,
        )  # fmt: skip
    assert pool.attempts == 12
    assert len(read_episodes(path)) == 6
    assert len(run(ThreadPool(ExpertPolicy(), 4), tasks, path)) == 100


@pytest.mark.parametrize(
    ("outcome", "retries"),
    [
        (Outcome.POLICY_UNREACHABLE, RetryPolicy(unreachable_delay_s=3.0)),
        (Outcome.INFRA_LOST, RetryPolicy(infra_delay_s=3.0)),
    ],
)
def test_a_retry_waits_for_its_delay_while_others_are_played(path: Path, outcome: Outcome, retries: RetryPolicy):
    class Ticking:
        """A pool without threads on a clock that each look advances by one second."""

        capacity = 1

        def __init__(self) -> None:
            self.now, self.running, self.log = 0.0, [], []  # type: ignore[var-annotated]

        def expect(self, left: int) -> None:
            pass

        def submit(self, spec: EpisodeSpec) -> None:
            self.log.append((self.now, spec.task.id))
            self.running.append(spec)

        def collect(self, timeout_s: float) -> list[tuple[EpisodeSpec, Attempt]]:
            self.now += 1.0
            ended, self.running = self.running, []
            fails = [name for _, name in self.log].count("bad") < 3
            bad = Attempt(outcome, None)
            return [(o, bad if o.task.id == "bad" and fails else Attempt(Outcome.SOLVED, 1.0)) for o in ended]

        def pressure(self) -> Pressure:
            return Pressure()

        def close(self) -> None:
            pass

    pool = Ticking()
    plan = EpisodePlan(
        [toy_task("bad"), *(toy_task(f"t{i}") for i in range(3))],
        epochs=1, policy="p", recipe="r", sampling=Sampling(), limits=QUICK,
    )  # fmt: skip
    with Ledger(path) as ledger:
        progress = Progress(io.StringIO(), lambda: pool.now)
        run_episodes(plan, pool, ledger, retries=retries, progress=progress, clock=lambda: pool.now)
    assert pool.log == [(0, "bad"), (1, "t0"), (2, "t1"), (3, "t2"), (4, "bad"), (11, "bad")]


class Interrupting(ThreadPool):
    """Ctrl-C arrives after some episodes have ended."""

    def __init__(self, policy: Any, capacity: int, after: int) -> None:
        super().__init__(policy, capacity)
        self.left = after

    def collect(self, timeout_s: float) -> list[tuple[EpisodeSpec, Attempt]]:
        if self.left <= 0:
            raise KeyboardInterrupt
        ended = super().collect(timeout_s)
        self.left -= len(ended)
        return ended


def test_ctrl_c_leaves_a_run_that_the_same_call_finishes(path: Path):
    tasks = [toy_task(f"t{i}") for i in range(30)]
    with pytest.raises(KeyboardInterrupt):
        run(Interrupting(ExpertPolicy(), 2, after=9), tasks, path)
    finished = path.read_bytes()
    assert 9 <= finished.count(b"\n") < 30
    policy = Counting()
    episodes = run(ThreadPool(policy, 4), tasks, path)
    assert path.read_bytes().startswith(finished)
    assert len(episodes) == 30
    assert not {json.loads(line)["key"]["task"] for line in finished.splitlines()} & {
        name.split("|")[1] for name in policy.episodes
    }


def test_the_progress_line_says_what_is_going_on():
    now = [0.0]
    out = io.StringIO()
    progress = Progress(out, lambda: now[0], label="toy", every_s=10)
    progress.begin(total=10, finished=[])
    pool_done = Attempt(Outcome.SOLVED, 1.0)
    spec = EpisodePlan([toy_task()], epochs=1, policy="p", recipe="r", sampling=Sampling(), limits=QUICK)[0]
    episode = Episode(spec.key, "line", pool_done.outcome, 1.0, 1, pool_done.trajectory)
    now[0] = 4.0
    progress.ended(episode)
    progress.ended(episode)
    progress.retried()
    assert progress.line(3, 1) == (
        "toy 2/10 done, 2 solved, 3 in flight, 1 retries, 1 wait for a retry, 0.50/s, 0:16 left, 0k tokens in, 0k out"
    )
    progress.show(3, 1)
    progress.show(3, 1)
    assert out.getvalue().count("\n") == 1


def test_three_hundred_episodes_wait_for_a_slow_policy_all_at_once(path: Path):
    """No clock: the policy answers nobody until all three hundred have asked."""
    everyone = threading.Barrier(300)

    class Waiting(ExpertPolicy):
        def reply(self, request: ChatRequest) -> ChatReply:
            everyone.wait(timeout=60)
            return super().reply(request)

    episodes = run(ThreadPool(Waiting(), 300), [toy_task(f"t{i}", length=2) for i in range(300)], path)
    assert all(e.outcome is Outcome.SOLVED and e.attempts == 1 for e in episodes)
