"""tau-bench: with a package in its form that is made here, and with the real one.

The real one: ``python jobs/fetch_data.py tau_bench tau_bench-recorded --data DIR``, and LEMUR_DATA=DIR.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from envs.language.tau_bench.recording import read_recording
from lemur_ray.agents.baselines.scripted import ExpertPolicy, NoopPolicy
from lemur_ray.agents.messages import ChatReply, ChatRequest, PolicyUnreachable, ToolCall, Usage
from lemur_ray.agents.replay import ReplayPolicy
from lemur_ray.agents.trajectory import Episode, Outcome, Task
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.benchmarks.discovery import find
from lemur_ray.benchmarks.run_notes import EvaluationRun
from tests.envs.language.tau_bench_package import recorded_run, write_package
from tests.envs.questions import play, tasks_of

TEACHER = "openai:http://127.0.0.1:1/v1#user"


@pytest.fixture
def data(tmp_path: Path, lemur_home: Path) -> Path:
    write_package(tmp_path / "data")
    return tmp_path / "data"


class Replies:
    """A policy, or the model of a user: texts, and calls as (name, arguments)."""

    name = "replies"
    wants_hints = False

    def __init__(self, *replies: str | list[tuple[str, str]]) -> None:
        self.replies = iter(replies)
        self.requests: list[ChatRequest] = []

    def reply(self, request: ChatRequest) -> ChatReply:
        self.requests.append(request)
        reply = next(self.replies)
        if isinstance(reply, str):
            return ChatReply(reply, usage=Usage(7, 3))
        return ChatReply("", tool_calls=tuple(ToolCall(n, a, f"c{k}") for k, (n, a) in enumerate(reply)))


def conversation(
    data: Path, monkeypatch: pytest.MonkeyPatch, agent: Replies, user: Any, index: int = 0, **options: Any
) -> Episode:
    """The episode of a task with this agent and this model of the user."""
    monkeypatch.setattr("envs.language.tau_bench.env.policy_at", lambda spec, role: user)
    task = tasks_of("tau_bench/airline", data, teacher=TEACHER, **options)[index]
    folder = data / f"played-{len(list(data.iterdir()))}"
    folder.mkdir()
    return play([task], agent, folder)[0]


def test_golds_are_solved_with_native_tools_and_in_words_and_what_nothing_solves_is_named(
    data: Path, tmp_path: Path
) -> None:
    for folder in ("words", "native"):
        (tmp_path / folder).mkdir()
    tasks = tasks_of("tau_bench/retail", data, tools="words", user="scripted")[:1]
    (in_words,) = play(tasks, ExpertPolicy(), tmp_path / "words")
    assert (in_words.outcome, in_words.trajectory.steps[0].observation) == (Outcome.SOLVED, "5")
    tasks = tasks_of("tau_bench/retail", data, user="scripted")
    episodes = play(tasks, ExpertPolicy(), tmp_path / "native")
    assert [episode.outcome for episode in episodes] == [Outcome.SOLVED] * 3, [e.detail for e in episodes]
    floor = play(tasks, NoopPolicy(), tmp_path)
    assert [episode.key.task for episode in floor if episode.outcome is Outcome.SOLVED] == ["retail/test/2"]
    assert find("tau_bench/retail").details.notes([*episodes, *floor]) == {"pass^1": 4 / 6, "pass^2": 1 / 3}


def test_a_model_is_the_user_with_the_packages_prompt_and_gets_what_the_agent_says(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = Replies("Which fruit?", [("price", '{"fruit": "pear"}'), ("sell", "{}")], [("sell", '{"fruit": "pear"}')],
                    "Sold.")  # fmt: skip
    user = Replies("Hello.", "A pear.", "Thanks. ###STOP###")
    episode = conversation(data, monkeypatch, agent, user)
    assert (episode.outcome, episode.score) == (Outcome.SOLVED, 1.0)
    asked = [[(m.role, m.content) for m in request.messages] for request in user.requests]
    assert asked[0] == [("system", "You are a customer. Buy a pear."), ("user", "Yes?")]
    assert asked[1][2:] == [("assistant", "Hello."), ("user", "Which fruit?")]
    assert {request.sampling.temperature for request in user.requests} == {1.0}
    roles = [message.role for message in agent.requests[-1].messages]
    assert roles == ["system", "user", "assistant", "user", "assistant", "tool", "tool", "assistant", "tool"]
    assert agent.requests[0].messages[0].content == "Sell what the customer wants."
    assert [tool["function"]["name"] for tool in agent.requests[0].tools] == [
        "price",
        "sell",
        "calculate",
        "wait",
        "leave",
    ]
    price = episode.trajectory.steps[1]
    assert price.results == ("5", "Not carried out: only the first call of a reply is.")
    assert [step.outside["teacher"]["prompt_tokens"] for step in episode.trajectory.steps if step.outside] == [7, 7]


def test_wrong_calls_get_an_error_and_a_handover_ends_the_conversation(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = [
        ("price", "{2"),
        ("price", '{"fruit": "car"}'),
        ("price", '{"vegetable": "leek"}'),
        ("steal", '{"fruit": "fig"}'),
        ("respond", '{"content": "1200"}'),
        ("__init__", "{}"),
    ]
    episode = conversation(data, monkeypatch, Replies(*[[one] for one in wrong], [("leave", "{}")]), Replies("Hi."), 1)
    steps = episode.trajectory.steps
    assert (episode.outcome, episode.score, len(steps)) == (Outcome.FAILED, 0.0, 7)
    assert [step.valid for step in steps] == [False, True, True, False, False, False, True]
    assert "no JSON object" in steps[0].observation
    assert steps[4].observation == "Nothing was called: respond is no tool."
    assert steps[5].observation == "Unknown action __init__"
    endless = conversation(data, monkeypatch, Replies(*["Hm."] * 40), Replies(*["Hm."] * 40))
    assert (endless.outcome, endless.score, len(endless.trajectory.steps)) == (Outcome.TURN_LIMIT, 0.0, 30)
    monkeypatch.setattr("envs.language.tau_bench.domain.ACTION_S", 2.0)
    stuck = conversation(data, monkeypatch, Replies([("wait", "{}")]), Replies("Hi."))
    assert (stuck.outcome, stuck.score) == (Outcome.SANDBOX_DESTROYED, 0.0)


NESTED = "[" * 600 + "]" * 600
"""Read from JSON, and too deep for the package's comparison of databases."""


def test_an_agent_that_makes_the_package_fail_scores_0_and_its_twin_is_solved(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(expression: str, fruit: str) -> tuple[Outcome, float]:
        calls = ("calculate", json.dumps({"expression": expression})), ("sell", f'{{"fruit": {fruit}}}')
        agent = Replies(*[[call] for call in calls], "Sold.")
        episode = conversation(data, monkeypatch, agent, Replies("Hi.", "###STOP###"))
        return episode.outcome, episode.score

    assert ended("9 * 9", '"pear"') == (Outcome.SOLVED, 1.0)
    assert ended("9 * 9", NESTED) == (Outcome.SANDBOX_DESTROYED, 0.0)
    monkeypatch.setattr("envs.language.tau_bench.domain.ACTION_S", 2.0)
    monkeypatch.setattr("lemur_ray.host.json_process.BUSY_S", 0.05)
    assert ended("9**9**9", '"pear"') == (Outcome.SANDBOX_DESTROYED, 0.0)


def test_a_user_who_does_not_answer_is_no_fault_of_the_agent(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(Replies):
        def reply(self, request: ChatRequest) -> ChatReply:
            if len(request.messages) > 2:
                raise PolicyUnreachable("nobody answers")
            return super().reply(request)

    episode = conversation(data, monkeypatch, Replies("Hello?"), Silent("Hi."))
    assert episode.outcome is Outcome.INFRA_LOST
    assert "no message of the simulated user" in episode.detail


def replayed(data: Path, domain: str, file: Path, folder: Path, starved: int = 0) -> tuple[list[Task], list[Episode]]:
    """The tasks of a recording and their replays."""
    benchmark = find(f"tau_bench/{domain}")
    tasks = list(benchmark.load(benchmark.options(), EvaluationRequest(data=data, recording=file)))
    return tasks, play(tasks, ReplayPolicy(read_recording(file)), folder, starved=starved)


def test_a_recorded_run_is_replayed_with_its_own_tasks_and_user(data: Path, tmp_path: Path) -> None:
    file = data / "tau_bench" / "historical_trajectories" / "gpt-airline.json"
    file.parent.mkdir()
    file.write_text(json.dumps(recorded_run()))
    tasks, episodes = replayed(data, "airline", file, tmp_path)
    assert [task.id for task in tasks] == ["airline/0/trial-0", "airline/0/trial-1", "airline/0/trial-2"]
    assert [episode.score for episode in episodes] == [1.0, 0.0, 0.0]
    assert [step.observation for step in episodes[0].trajectory.steps] == ["1200", "And the pear?", "5", "###STOP###"]
    details = find("tau_bench/airline").details
    recording = read_recording(file)
    assert details.recording_format is not None
    for episode in episodes[:2]:
        alike = details.recording_format.comparison.of(episode, recording.of(str(episode.key))).counts
        assert alike["turns"] == alike["same_observation"]
    assert {details.cluster(task) for task in tasks} == {"airline/0"}
    assert details.notes(episodes) == pytest.approx({"pass^1": 1 / 3, "pass^2": 0, "pass^3": 0})
    assert details.published_runs is not None
    (run,) = details.published_runs.of_file(file, "tau_bench/historical_trajectories/gpt-airline", "all")
    assert run.benchmark == "tau_bench/airline"


def test_what_is_missing_is_named(data: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"fetch_data\.py tau_bench"):
        tasks_of("tau_bench/retail", tmp_path)
    with pytest.raises(ValueError, match="--user scripted says its whole instruction"):
        tasks_of("tau_bench/retail", data)
    with pytest.raises(ValueError, match="--split dev: tau_bench/airline has test"):
        tasks_of("tau_bench/airline", data, user="scripted", split="dev")
    benchmark = find("tau_bench/retail")
    assert benchmark.details.endpoints(benchmark.options(teacher=TEACHER)) == (TEACHER,)
    assert benchmark.details.endpoints(benchmark.options(teacher=TEACHER, user="scripted")) == ()
    assert benchmark.details.protocol is not None
    stored = EvaluationRun("p", {"tools": "native", "user": "scripted", "split": "test"})
    assert benchmark.details.protocol.departures(stored) == ["user scripted"]


# The real package.


@pytest.fixture
def real_data(lemur_home: Path) -> Path:
    folder = Path(os.environ.get("LEMUR_DATA", ""))
    if not (folder / "tau_bench" / "package.tar.gz").is_file():
        pytest.skip("no tau-bench: python jobs/fetch_data.py tau_bench tau_bench-recorded --data $LEMUR_DATA")
    return folder


@pytest.mark.timeout(3600)
@pytest.mark.sweep  # a process for each of 200 episodes of every run takes minutes
def test_verdicts_on_the_published_runs_are_the_published_ones(real_data: Path, tmp_path: Path) -> None:
    files = sorted((real_data / "tau_bench" / "historical_trajectories").glob("*.json"))
    if not files:
        pytest.skip("no recorded runs: python jobs/fetch_data.py tau_bench-recorded --data $LEMUR_DATA")
    for file in files:
        (tmp_path / file.stem).mkdir()
        tasks, episodes = replayed(real_data, file.stem.rpartition("-")[2], file, tmp_path / file.stem, 2)
        recording = read_recording(file)
        solved = {e.key.task: recording.of(str(e.key)).solved for e in episodes}
        other = [e.key.task for e in episodes if e.score != solved[e.key.task]]
        assert (other, len(episodes)) == ([], len(tasks)), file.name


NOTHING_SOLVES = {
    "airline": [12, 13, 15, 17, 18, 21, 24, 29, 35, 36, 37, 38, 39, 40, 41, 42, 47, 48, 49],
    "retail": [10, 12, 25, 50, 57, 65, 106],
}
"""Tasks whose gold changes nothing and that ask for no output."""


@pytest.mark.timeout(3600)
@pytest.mark.sweep  # a process for each of 330 episodes takes minutes
def test_golds_of_the_published_tasks_are_solved_and_nothing_solves_the_known_ones(
    real_data: Path, tmp_path: Path
) -> None:
    solved: Counter[str] = Counter()
    for domain, by_nothing in NOTHING_SOLVES.items():
        tasks = tasks_of(f"tau_bench/{domain}", real_data, user="scripted")
        for policy in (ExpertPolicy(), NoopPolicy()):
            folder = tmp_path / f"{domain}-{policy.name}"
            folder.mkdir()
            episodes = play(tasks, policy, folder, starved=2)
            of = [int(e.key.task.rpartition("/")[2]) for e in episodes if e.outcome is Outcome.SOLVED]
            solved[policy.name] += len(of)
            assert of == (by_nothing if policy.name == "noop" else list(range(len(tasks)))), domain
    assert solved == {"expert": 165, "noop": 26}
