"""WebArena through the normal rollout: a small site, a ledger, faults that are nobody's, numbers beside the rate."""

from __future__ import annotations

import io
import json
import os
import re
import signal
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from envs.webarena.benchmark import BENCHMARKS, WebOptions
from envs.webarena.browser.host import shared_host
from envs.webarena.run_notes import PROTOCOL, notes
from lemur_ray.agents.messages import ChatReply, ChatRequest, Sampling
from lemur_ray.agents.trajectory import Episode, EpisodeKey, Outcome, Task, Trajectory
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.benchmarks.discovery import describe_run
from lemur_ray.benchmarks.run_notes import EvaluationRun, RunDescription
from lemur_ray.instruct.solved import SolvedFilter, conversations_of, select
from lemur_ray.rollout.attempt import EpisodeLimits
from lemur_ray.rollout.ledger import Ledger
from lemur_ray.rollout.progress import Progress
from lemur_ray.rollout.runner import replay_episodes, run_episodes
from lemur_ray.rollout.schedule.episode_plan import EpisodePlan
from lemur_ray.rollout.schedule.retries import RetryPolicy
from lemur_ray.rollout.threads import ThreadPool
from tests.envs.webarena.small_site import SmallSite, record


class Answering:
    """Says the price of the ink when it sees it; keeps what it was asked. ``first``: called before its first reply."""

    name, wants_hints = "answering", False

    def __init__(self, first: Any = None) -> None:
        self.requests: list[ChatRequest] = []
        self._first = first

    def reply(self, request: ChatRequest) -> ChatReply:
        self.requests.append(request)
        if self._first is not None:
            first, self._first = self._first, None
            first()
        looked = "scroll" in request.messages[-1].content.rpartition("PREVIOUS ACTION")[2]
        seen = "$7.25" in request.messages[-1].content
        return ChatReply("```stop [$7.25]```" if seen and looked else "```scroll [down]```")


def tasks_on(site: SmallSite, folder: Path, records: Sequence[dict[str, Any]]) -> list[Task]:
    (folder / "tasks.json").write_text(json.dumps(records))
    (folder / "sites.json").write_text(json.dumps({"sets": [{"urls": {"SHOPPING": site.url}}]}))
    files = {"task_file": str(folder / "tasks.json"), "sites_file": str(folder / "sites.json")}
    return list(BENCHMARKS["webarena"].load(WebOptions(**files, order="any", wait_s=0.1), EvaluationRequest()))


def played(tasks: Sequence[Task], policy: Answering, folder: Path) -> list[Episode]:
    limits = EpisodeLimits(reset_s=300.0, step_s=300.0)
    plan = EpisodePlan(tasks, epochs=1, policy="p", recipe="r", sampling=Sampling(), limits=limits)
    with Ledger(folder / "episodes.jsonl") as ledger:
        progress = Progress(io.StringIO(), time.monotonic)
        return run_episodes(
            plan, ThreadPool(policy, 2), ledger, retries=RetryPolicy(), progress=progress, clock=time.monotonic
        )


def test_episodes_are_played_side_by_side_and_a_killed_browser_is_nobodys_fault(
    browser: None, site: SmallSite, tmp_path: Path, lemur_home: Path
) -> None:
    policy = Answering(first=lambda: os.kill(shared_host().pid(), signal.SIGKILL))
    judged = {"eval_types": ["string_match"], "reference_answers": {"fuzzy_match": ["seven"]}}
    tasks = tasks_on(site, tmp_path, [record(0), record(1), record(2, **judged)])
    episodes = played(tasks, policy, tmp_path)
    assert [episode.outcome for episode in episodes] == [Outcome.SOLVED, Outcome.SOLVED, Outcome.FAILED]
    assert any("infra_lost" in reason for episode in episodes for reason in episode.retried)
    assert [episode.scores for episode in episodes][2] == {"rules": 0.0, "rules_at_best": 1.0}
    found = notes(episodes)
    assert found["without_verdict"] == 1
    assert found["success_rate_at_best"] == 100
    assert found["parse_failures"] == 0
    later = [request for request in policy.requests if "scroll" in request.messages[-1].content[-40:]]
    shapes = [[message.role for message in request.messages] for request in later]
    assert shapes[0] == ["system", "user", "assistant", "user", "assistant", "user"], (
        "two examples and what is seen now"
    )
    assert len({len(request.messages) for request in policy.requests}) == 1
    assert episodes[0].trajectory.shared > 1000
    for episode in episodes[:2]:
        asked = [request.messages for request in policy.requests if request.episode == str(episode.key)]
        examples = [[(m.role, m.content) for m in one.messages[:-1]] for one in conversations_of(episode)]
        shown = [[(m.role, m.content) for m in messages] for messages in asked]
        assert examples == shown[-len(examples) :], "those of a lost attempt stand before"
        assert len(examples) == len(episode.trajectory.steps) > 1
    assert len(select(episodes, SolvedFilter()).episodes) == 2
    solved = list(zip(episodes[:2], tasks[:2], strict=True))
    assert set(replay_episodes(solved, 2).values()) == {Outcome.SOLVED}, "said again, it is solved again"


class Buying:
    """Puts the ink into the basket, and ends."""

    name, wants_hints = "buying", False

    def reply(self, request: ChatRequest) -> ChatReply:
        seen = request.messages[-1].content
        link = re.search(r"\[(\d+)\] link 'Add ink'", seen)
        bought = "click" in seen.rpartition("PREVIOUS ACTION")[2]
        return ChatReply(f"```click [{link[1]}]```" if link and not bought else "```stop []```")


def test_what_was_clicked_is_found_again_by_its_words(
    browser: None, site: SmallSite, tmp_path: Path, lemur_home: Path
) -> None:
    contents: dict[str, Any] = {"url": "last", "locator": "document.querySelector('#basket').innerText"}
    page = {**contents, "required_contents": {"must_include": ["ink"]}}
    (task,) = tasks_on(site, tmp_path, [record(0, eval_types=["program_html"], program_html=[page])])
    (episode,) = played([task], Buying(), tmp_path)  # type: ignore[list-item, arg-type]
    assert episode.outcome is Outcome.SOLVED
    said_again = BENCHMARKS["webarena"].details.restored_task(task, episode)
    assert said_again.options["named"][0][0].startswith("link 'Add ink'")
    others = [(replace(episode, key=replace(episode.key, epoch=n)), said_again) for n in range(3)]
    assert set(replay_episodes(others, 1).values()) == {Outcome.SOLVED}, "ids are others in the same browser"


def test_an_agent_that_raises_a_value_error_has_said_stop_with_the_error(
    browser: None, site: SmallSite, tmp_path: Path, lemur_home: Path
) -> None:
    class Failing:
        name, wants_hints = "failing", False

        def reply(self, request: ChatRequest) -> ChatReply:
            raise ValueError('can\'t "parse" `x`')

    tasks = tasks_on(site, tmp_path, [record(0)])
    for language in ("symbolic", "python"):
        said = [replace(task, options={**task.options, "language": language}) for task in tasks]
        folder = tmp_path / language
        folder.mkdir()
        (episode,) = played(said, Failing(), folder)  # type: ignore[arg-type]
        assert episode.outcome is Outcome.FAILED, episode.detail
        assert "ERROR: can t parse x" in str(episode.trajectory.steps[0].action)


def test_an_episode_without_bounds_of_its_own_has_its_score_for_them() -> None:
    def ended(number: int, outcome: Outcome, score: float, **scores: float) -> Episode:
        key = EpisodeKey("webarena/webarena", str(number), "p", "r")
        return Episode(key, "", outcome, score, 1, Trajectory(), scores=scores)

    found = notes([ended(0, Outcome.FAILED, 0.0, rules=0.0, rules_at_best=1.0), ended(1, Outcome.TOKEN_LIMIT, 0.0)])
    assert found["success_rate_at_best"] == 50


def test_a_page_says_of_a_run_what_its_numbers_are_not() -> None:
    def described(settings: dict[str, Any]) -> RunDescription:
        return describe_run("webarena/webarena", EvaluationRun("p", settings))

    found = described({"actions": "python", "evaluator": "strict", "judge": "none", "temperature": 0.0})
    assert found.column == "WebArena"
    assert found.variant == "Python calls"
    assert "strict evaluators" in found.departures
    assert "no judge" in found.departures
    published = {"evaluator": "upstream", "judge": "openai:x#y", "temperature": 1.0, "top_p": 0.9}
    assert described(published).departures == (PROTOCOL.own_words,)
    published["prompt_file"] = PROTOCOL.text_digest
    assert described(published).departures == ()
    assert described({**published, "prompt_file": "0" * 16}).departures == ("another prompt file",)
    assert described({**published, "prompt_file": "0" * 16}).alone == ("another prompt file",)
    other: dict[str, Any] = {
        "prompt": "brief", "axtree_compat": "raw", "observation_tokens": 200, "reasoning": False, "hint": False,
        "examples": 0, "wait_s": 0.0, "top_p": 0.1, "max_tokens": 32, "repeating": 5,
    }  # fmt: skip
    for name, value in other.items():
        assert len(described({**published, name: value}).departures) == 1, name
