"""Runs at endpoints that fail in every way: each episode is scored once, or one line says why none can be."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.agents.baselines.scripted import ExpertPolicy
from lemur_ray.agents.endpoint import EndpointOptions
from lemur_ray.agents.external_calls import ExternalCallError
from lemur_ray.agents.messages import ChatReply, ChatRequest, EndpointRefused, Sampling, Usage
from lemur_ray.agents.openai_policy import OpenAIPolicy
from lemur_ray.agents.trajectory import Episode, Outcome, Task
from lemur_ray.host.ports import free_port
from lemur_ray.report.tables import summarise
from lemur_ray.rollout.attempt import EpisodeLimits, Prices
from lemur_ray.rollout.episode_record import TRUNCATED_PROMPT
from lemur_ray.rollout.evaluation_config import EvalConfig
from lemur_ray.rollout.ledger import Ledger, read_episodes
from lemur_ray.rollout.progress import Progress
from lemur_ray.rollout.runner import run_episodes
from lemur_ray.rollout.schedule.episode_plan import EpisodePlan
from lemur_ray.rollout.schedule.retries import RetryPolicy
from lemur_ray.rollout.threads import ThreadPool
from tests.agents.misbehaving import Answer, Server, completion, refusal, serving
from tests.conftest import ROOT
from tests.rollout.asking_toy import AskingEnv
from tests.rollout.toy import LineEnv, toy_task

TASKS = [toy_task(f"t{i:02d}", length=3) for i in range(12)]


def play(
    url: Any, folder: Path, tasks: list[Task] = TASKS, limits: EpisodeLimits | None = None, **options: Any
) -> list[Episode]:
    """A run into ``folder`` with the policy at ``url``, or with a policy."""
    policy = url
    if isinstance(url, str):
        policy = OpenAIPolicy(url, "toy", options=EndpointOptions(**{"patience_s": 60.0, **options}))
    plan = EpisodePlan(tasks, epochs=1, policy="p", recipe="r", sampling=Sampling(), limits=limits or EpisodeLimits())
    pool = ThreadPool(policy, 6)
    with Ledger(folder / "episodes.jsonl") as ledger:
        progress = Progress(io.StringIO(), time.monotonic)
        try:
            return run_episodes(
                plan,
                pool,
                ledger,
                retries=RetryPolicy(unreachable_delay_s=0.1),
                progress=progress,
                clock=time.monotonic,
            )
        finally:
            pool.close()


def assert_scored_once(episodes: list[Episode], folder: Path) -> None:
    assert [(e.outcome, e.attempts) for e in episodes] == [(Outcome.SOLVED, 1)] * len(TASKS)
    lines = (folder / "episodes.jsonl").read_text().splitlines()
    assert len({str(e.key) for e in read_episodes(folder / "episodes.jsonl")}) == len(lines) == len(TASKS)


# Each fault scaled down: what takes 170 s and 90 s outside takes a second or two here.


class Limited:
    """At most three requests in any tenth of a second."""

    def __init__(self) -> None:
        self.times: list[float] = []
        self.lock = threading.Lock()

    def __call__(self, asked: dict[str, Any]) -> Answer:
        with self.lock:
            now = time.monotonic()
            self.times = [at for at in self.times if now - at < 0.1]
            if len(self.times) >= 3:
                return refusal(429, retry_after_ms="120")
            self.times.append(now)
        return completion("right")


def test_an_endpoint_that_limits_rates_scores_every_episode_once(tmp_path: Path) -> None:
    with serving(Limited()) as server:
        assert_scored_once(play(server.url, tmp_path), tmp_path)
        assert len(server.asked) > 36, "some requests were refused"


def test_an_endpoint_that_is_slower_than_the_environments_step_scores_every_episode_once(tmp_path: Path) -> None:
    slow = [2.5] * 6  # the first of each that is in flight; a step of a healthy environment may take its time, too

    def answer(asked: dict[str, Any]) -> Answer:
        server.released.wait(slow.pop() if slow else 0.0)
        return completion("right")

    with serving(answer) as server:
        assert_scored_once(play(server.url, tmp_path, limits=EpisodeLimits(step_s=2.0)), tmp_path)


def test_an_endpoint_that_dies_for_a_while_scores_every_episode_once(tmp_path: Path) -> None:
    """Its port refuses connections; the lines that were open are dropped."""
    asked, back, dead = [0], [], threading.Event()

    def answer(request: dict[str, Any]) -> Answer | None:
        asked[0] += 1
        if asked[0] == 9:
            dead.set()
        return None if dead.is_set() else completion("right")

    first = Server(answer, port=free_port())

    def die() -> None:
        dead.wait(60)
        first.close()
        time.sleep(1.0)  # nobody is there; what ends this is a clock, as outside
        back.append(Server(lambda request: completion("right"), port=first.port))

    mortal = threading.Thread(target=die, daemon=True)
    mortal.start()
    try:
        assert_scored_once(play(first.url, tmp_path), tmp_path)
        mortal.join(60)
    finally:
        for server in back:
            server.close()


def mortal_server(port: int, replies: int) -> tuple[subprocess.Popen[str], int]:
    command = [sys.executable, "-m", "tests.rollout.mortal_server", str(port), str(replies)]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, int(process.stdout.readline())


@pytest.mark.sweep
def test_a_server_that_is_killed_and_starts_again_after_90_s_leaves_no_episode_missing(tmp_path: Path) -> None:
    """Nothing is scaled down: a process, 90 s without one, and the patience that an evaluation has by itself."""
    began, (first, port) = time.monotonic(), mortal_server(0, 9)
    processes = [first]

    def die() -> None:
        assert first.stdout is not None
        assert first.stdout.readline() == "full\n"
        first.kill()
        first.wait()
        time.sleep(90.0)
        processes.append(mortal_server(port, 10**9)[0])

    mortal = threading.Thread(target=die, daemon=True)
    mortal.start()
    try:
        found = play(f"http://127.0.0.1:{port}/v1", tmp_path, patience_s=EvalConfig.patience_s)
        assert_scored_once(found, tmp_path)
        assert time.monotonic() - began > 90
        mortal.join(10)
    finally:
        for process in processes:
            process.kill()
            process.communicate()


@pytest.mark.parametrize("status", [401, 403, 404])
def test_a_key_that_is_revoked_ends_the_run_with_what_was_finished_kept_and_it_goes_on(
    tmp_path: Path, status: int
) -> None:
    asked = [0]

    def answer(request: dict[str, Any]) -> Answer:
        asked[0] += 1
        return completion("right") if asked[0] <= 20 else refusal(status, message="key revoked")

    with serving(answer) as server:
        started = time.monotonic()
        with pytest.raises(EndpointRefused, match=f"status {status}: key revoked") as told:
            play(server.url, tmp_path)
        assert time.monotonic() - started < 50
        assert "\n" not in str(told.value)
        kept = (tmp_path / "episodes.jsonl").read_text()
        assert 0 < len(kept.splitlines()) < len(TASKS)
        asked[0] = -1000
        assert_scored_once(play(server.url, tmp_path), tmp_path)
        assert (tmp_path / "episodes.jsonl").read_text().startswith(kept)


def test_an_endpoint_that_gives_less_context_than_it_says_scores_every_episode_once(tmp_path: Path) -> None:
    """It refuses what is too long in words of its own, or cuts it without a word, which is noted."""
    too_long = refusal(400, message="the request exceeds the available context size")

    def short(asked: dict[str, Any]) -> Answer:
        return too_long if len(asked["messages"]) > 4 else completion("right")

    with serving(short) as server:
        episodes = play(server.url, tmp_path)
    assert {(e.outcome, e.score, e.attempts) for e in episodes} == {(Outcome.CONTEXT_OVERFLOW, 0.0, 1)}

    def cutting(asked: dict[str, Any]) -> Answer:
        usage = {"prompt_tokens": 100 if len(asked["messages"]) < 5 else 64, "completion_tokens": 1}
        return completion("right", usage=usage)

    (tmp_path / "cut").mkdir()
    with serving(cutting) as server:
        episodes = play(server.url, tmp_path / "cut")
    assert_scored_once(episodes, tmp_path / "cut")
    assert all(TRUNCATED_PROMPT in e.detail and e.truncated_prompts for e in episodes)
    records = [episode.to_json() for episode in episodes]
    for record in records:
        del record["truncated_prompts"]
    assert [Episode.from_json(record) for record in records] == list(episodes), "as earlier versions stored them"


def test_thoughts_and_replies_of_five_megabytes_are_kept_cut_and_never_played(tmp_path: Path) -> None:
    def answer(asked: dict[str, Any]) -> Answer:
        if len(asked["messages"]) == 2:
            return completion("right" + "x" * 5_000_000)
        return completion("<think>left, " + "y" * 5_000_000 + "</think>right")

    with serving(answer) as server:
        episodes = play(server.url, tmp_path, TASKS[:2])
    for e in episodes:
        first, *others = e.trajectory.steps
        assert e.outcome is Outcome.SOLVED
        assert (first.valid, len(first.reply)) == (False, EpisodeLimits().reply_chars)
        assert {(s.reply, s.action, s.reasoning[:5]) for s in others} == {("right", "right", "left,")}
    assert (tmp_path / "episodes.jsonl").stat().st_size < 2_000_000
    stored = read_episodes(tmp_path / "episodes.jsonl")
    assert sorted(stored, key=lambda e: e.key.task) == episodes


# Limits of an episode


class Counted:
    """Says ``right`` and how many tokens that took."""

    name = "counted"

    def __init__(self, waited_s: float = 0.0) -> None:
        self.waited_s = waited_s

    def reply(self, request: ChatRequest) -> ChatReply:
        return ChatReply("right", usage=Usage(100, 10), waited_s=self.waited_s)


@pytest.mark.parametrize(
    ("limits", "outcome", "turns"),
    [
        (EpisodeLimits(tokens=220), Outcome.TOKEN_LIMIT, 2),
        (EpisodeLimits(tokens=221), Outcome.SOLVED, 3),
        (EpisodeLimits(cost=0.002, prices=Prices(10.0, 10.0)), Outcome.COST_LIMIT, 2),
        (EpisodeLimits(cost=1.0, prices=Prices(10.0, 10.0)), Outcome.SOLVED, 3),
        (EpisodeLimits(time_s=1e-9), Outcome.TIME_LIMIT, 1),
        (EpisodeLimits(time_s=60.0), Outcome.SOLVED, 3),
    ],
)
def test_a_limit_ends_an_episode_scored_as_the_policys_and_the_last_turn_counts(
    tmp_path: Path, limits: EpisodeLimits, outcome: Outcome, turns: int
) -> None:
    (episode,) = play(Counted(), tmp_path, TASKS[:1], limits)
    assert (episode.outcome, len(episode.trajectory.steps)) == (outcome, turns)
    assert episode.score == float(outcome is Outcome.SOLVED)
    assert episode.outcome.scored
    assert summarise([episode]).overall.outcomes == {outcome.value: 1}


def test_time_spent_waiting_is_nobodys(tmp_path: Path) -> None:
    (episode,) = play(Counted(waited_s=3600.0), tmp_path, TASKS[:1], EpisodeLimits(time_s=60.0))
    assert episode.outcome is Outcome.SOLVED
    assert read_episodes(tmp_path / "episodes.jsonl")[0].trajectory.steps[0].waited_s == 3600.0


# Whoever an environment asks


ASKING = [Task("toy", "a", "tests.rollout.asking_toy:toy/Asking-v0", "line", {"hints": True, "length": 3}, 5)]


def asked_by_environments(
    monkeypatch: pytest.MonkeyPatch, ask: Callable[[], None], folder: Path, limits: EpisodeLimits | None = None
) -> Episode:
    monkeypatch.setattr(AskingEnv, "ask", staticmethod(ask))
    (episode,) = play(ExpertPolicy(), folder, ASKING, limits)
    return episode


def test_a_simulated_user_may_take_longer_than_a_step_and_is_counted_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    pauses = [2.5, 0.1, 0.1]
    episode = asked_by_environments(
        monkeypatch, lambda: threading.Event().wait(pauses.pop(0)) and None, tmp_path, EpisodeLimits(step_s=2.0)
    )
    assert (episode.outcome, episode.attempts) == (Outcome.SOLVED, 1)
    for step, least_s in zip(episode.trajectory.steps, (2.4, 0.09, 0.09), strict=True):
        assert step.env_s < 2.0
        assert step.outside["teacher"]["seconds"] >= least_s
    (stored,) = read_episodes(tmp_path / "episodes.jsonl")
    assert stored == episode
    outside = summarise([episode]).overall.outside["teacher"]
    assert (outside["calls"], outside["prompt_tokens"], outside["completion_tokens"]) == (3, 150, 15)
    assert "teacher" in json.dumps(summarise([episode]).to_json())


def test_an_environment_that_hangs_is_ended_though_it_asked_somebody_before(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(LineEnv, "step", lambda self, reply: threading.Event().wait(60))
    started = time.monotonic()
    episode = asked_by_environments(
        monkeypatch, lambda: threading.Event().wait(0.3) and None, tmp_path, EpisodeLimits(step_s=0.3)
    )
    assert episode.outcome is Outcome.ENV_ERROR
    assert time.monotonic() - started < 50


def test_a_simulated_user_that_fails_is_nobodys_fault_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    failures = [ExternalCallError("no feedback")] * 2

    def ask() -> None:
        if failures:
            raise failures.pop()

    episode = asked_by_environments(monkeypatch, ask, tmp_path)
    assert (episode.outcome, episode.attempts) == (Outcome.SOLVED, 3)
    assert "infra_lost" in episode.retried[0]


def test_a_simulated_user_that_nobody_can_ask_ends_the_run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def ask() -> None:
        raise EndpointRefused("status 401: the teacher's key")

    with pytest.raises(EndpointRefused, match="the teacher's key"):
        asked_by_environments(monkeypatch, ask, tmp_path)
