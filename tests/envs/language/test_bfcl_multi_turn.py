"""BFCL's multi-turn tasks: with a package in the form of bfcl-eval that is made here, and with the real one.

The real one: ``pip install --no-deps bfcl-eval==2026.3.23`` (or ``--target`` a folder of ``PYTHONPATH``) and mpmath.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import random
import signal
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from envs.language.bfcl.multi_turn_env import STEPS, MultiTurnEnv
from envs.language.bfcl.simulated_apis import SimulatedApis
from lemur_ray.agents.baselines.scripted import ExpertPolicy, NoopPolicy
from lemur_ray.agents.messages import ChatReply, ChatRequest, ToolCall
from lemur_ray.agents.trajectory import Episode, Outcome, Task
from lemur_ray.benchmarks.discovery import find
from lemur_ray.host.json_process import ProcessEnded
from lemur_ray.instruct.solved import conversations_of
from lemur_ray.text.tools_in_words import read_calls, spell_out
from tests.envs.questions import play, tasks_of

CLASS = """
import time

class Counter:
    def __init__(self):
        self.total, self._calls = 0, 0

    def _load_scenario(self, scenario, long_context=False):
        self.total = scenario.get("total", 0) + 1000 * long_context

    def add(self, amount, times=1):
        self._calls += 1
        print("noise")
        self.total += amount * times
        return {"total": self.total}

    def show(self):
        return str(self.total)

    def wait(self):
        time.sleep(60)
"""
CONSTANTS = """
MULTI_TURN_FUNC_DOC_FILE_MAPPING = {"Counter": "counter.json"}
CLASS_FILE_PATH_MAPPING = {"Counter": "bfcl_eval.counter"}
STATELESS_CLASSES = []
"""
NEWS = "There are more functions now."
INTEGER = {"type": "integer", "description": "A number."}
DOCS = [
    ("add", {"amount": INTEGER, "times": INTEGER}, ["amount"]),
    ("show", {}, []),
    ("wait", {}, []),
]
ROWS: dict[str, tuple[list[str], list[list[str]], dict[str, Any]]] = {
    "base": (["Add 2.", "Add 3 twice and show it."], [["add(2)"], ["add(amount=3, times=2)", "show()"]], {}),
    "miss_func": (["Add 2.", "", "Bye."], [[], ["add(amount=2)"], ["show()"]], {"missed_function": {"1": ["add"]}}),
    "miss_param": (["Add.", "Add 2."], [[], ["add(2)"]], {}),
    "long_context": (["Show it."], [["show()"]], {}),
}


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package with one class, in the place of bfcl-eval."""
    home = tmp_path / "site" / "bfcl_eval"
    for folder in ("constants", "data/possible_answer", "data/multi_turn_func_doc"):
        (home / folder).mkdir(parents=True)
    (home / "counter.py").write_text(CLASS)
    (home / "constants" / "executable_backend_config.py").write_text(CONSTANTS)
    news = f"DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC = {NEWS!r}\n"
    (home / "constants" / "default_prompts.py").write_text(news)
    docs = [
        {"name": n, "description": n, "parameters": {"type": "dict", "properties": p, "required": r}}
        for n, p, r in DOCS
    ]
    (home / "data/multi_turn_func_doc/counter.json").write_text("".join(json.dumps(doc) + "\n" for doc in docs))
    for category, (turns, gold, more) in ROWS.items():
        name = f"BFCL_v4_multi_turn_{category}.json"
        asked = [[{"role": "user", "content": turn}] if turn else [] for turn in turns]
        row = {"id": f"multi_turn_{category}_0", "question": asked, "involved_classes": ["Counter"]}
        row |= {"initial_config": {"Counter": {"total": 5}}, **more}
        (home / "data" / name).write_text(json.dumps(row) + "\n")
        answer = {"id": row["id"], "ground_truth": gold}
        (home / "data/possible_answer" / name).write_text(json.dumps(answer) + "\n")
    (home.parent / "mpmath.py").write_text("")
    for name in [name for name in sys.modules if name.partition(".")[0] == "bfcl_eval"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.syspath_prepend(str(home.parent))


class Calls:
    """A policy with native calls: a list of lists of (name, arguments); an empty list is a reply without calls."""

    name = "calls"
    wants_hints = False

    def __init__(self, *replies: list[tuple[str, Any]]) -> None:
        self.replies = iter(replies)
        self.requests: list[ChatRequest] = []

    def reply(self, request: ChatRequest) -> ChatReply:
        self.requests.append(request)
        said = next(self.replies, [])
        written = [ToolCall(n, a if isinstance(a, str) else json.dumps(a), f"c{k}") for k, (n, a) in enumerate(said)]
        return ChatReply("" if said else "Done.", tool_calls=tuple(written))


def episode_of(category: str, folder: Path, *replies: list[tuple[str, Any]], **options: Any) -> tuple[Episode, Calls]:
    (task,) = tasks_of("bfcl/multi_turn", None, categories=category, **options)
    policy = Calls(*replies)
    folder.mkdir(exist_ok=True)
    (episode,) = play([task], policy, folder)
    return episode, policy


@pytest.mark.usefixtures("package")
def test_golds_are_solved_with_native_tools_and_in_words_and_nothing_solves_nothing(tmp_path: Path) -> None:
    for tools in ("native", "words"):
        (tmp_path / tools).mkdir()
        tasks = tasks_of("bfcl/multi_turn", None, tools=tools)
        episodes = play(tasks, ExpertPolicy(), tmp_path / tools)
        assert [episode.outcome for episode in episodes] == [Outcome.SOLVED] * 4, [e.note for e in episodes]
        assert {episode.category for episode in episodes} == set(ROWS)
    floor = play(tasks_of("bfcl/multi_turn", None), NoopPolicy(), tmp_path)
    assert {episode.note for episode in floor} >= {"turn 1: no function was called", "turn 2: no function was called"}
    notes = find("bfcl/multi_turn").details.notes
    assert notes(episodes)["multi_turn"] == 1.0
    assert notes(floor) == {**dict.fromkeys(ROWS, 0.0), "multi_turn": 0.0}


@pytest.mark.usefixtures("package")
def test_a_turn_ends_without_calls_and_state_and_results_are_compared(tmp_path: Path) -> None:
    two = [("add", {"amount": 2})]
    otherwise = [[("add", {"amount": 1})], [("add", {"amount": 1})], [], [("add", {"amount": 6})], [("show", {})], []]
    episode, policy = episode_of("base", tmp_path / "a", *otherwise)
    assert episode.outcome is Outcome.SOLVED, "other calls with the same state and results"
    roles = [message.role for message in policy.requests[3].messages]
    assert roles == ["user", "assistant", "tool", "assistant", "tool", "assistant", "user"]
    several = [("add", {"amount": 3, "times": 2}), ("show", {})]
    episode, policy = episode_of("base", tmp_path / "b", two, [], several, [])
    assert episode.outcome is Outcome.SOLVED
    assert [step.observation for step in episode.trajectory.steps[:2]] == ['{"total": 7}', "Add 3 twice and show it."]
    assert episode.trajectory.steps[2].results == ('{"total": 13}', "13")
    state, _ = episode_of("base", tmp_path / "c", two, [], [*several, ("add", {"amount": 1})], [])
    assert state.note == "turn 2: the state of Counter differs: total"
    result, _ = episode_of("base", tmp_path / "d", two, [], [("add", {"amount": 3, "times": 2})], [])
    assert result.note == "turn 2: no call had the result 13"


@pytest.mark.usefixtures("package")
def test_functions_that_are_added_are_offered_from_then_on(tmp_path: Path) -> None:
    replies: list[list[tuple[str, Any]]] = [[], [("add", {"amount": 2})], [], [("show", {})], []]
    episode, policy = episode_of("miss_func", tmp_path / "native", *replies)
    assert episode.outcome is Outcome.SOLVED
    offered = [[tool["function"]["name"] for tool in request.tools] for request in policy.requests]
    assert offered == [["show", "wait"]] + [["show", "wait", "add"]] * 4
    assert policy.requests[1].messages[-1].content == NEWS
    stored = Episode.from_json(json.loads(json.dumps(episode.to_json())))
    assert stored == episode
    first, second = conversations_of(stored)
    assert [len(first.tools), len(second.tools)] == [2, 3]
    assert [message.weight for message in second.messages if message.role == "assistant"] == [0, 1, 1, 1, 1]
    (task,) = tasks_of("bfcl/multi_turn", None, categories="miss_func", tools="words")
    with closing(MultiTurnEnv()) as env:
        _, info = env.reset(options=dict(task.options))
        observation = env.step("Hm.")[0]
    assert '"name": "add"' not in info["system"]
    assert '"name": "add"' in observation
    assert observation.endswith(NEWS)


@pytest.mark.usefixtures("package")
def test_wrong_calls_get_an_error_and_the_turn_goes_on(tmp_path: Path) -> None:
    wrong = [
        ("subtract", {"amount": 1}),
        ("_load_scenario", {"scenario": {"total": 7}}),
        ("__init__", {}),
        ("add", {"amount": 1, "unit": "m"}),
        ("add", {}),
        ("add", '{"amount": ' + "[" * 600 + "]" * 600 + "}"),
        ("exit", {}),
    ]
    episode, _ = episode_of("miss_param", tmp_path / "a", [], wrong, [("add", "{2")], [("add", {"amount": 2})], [])
    assert episode.outcome is Outcome.SOLVED
    first, second = episode.trajectory.steps[1:3]
    assert all(result.startswith("Error during execution: ") for result in first.results)
    assert first.results[0] == "Error during execution: name 'subtract' is not defined"
    assert (second.observation, second.valid) == ("Nothing was called: the arguments of add are no JSON object.", False)
    endless, _ = episode_of("base", tmp_path / "b", *[[("show", {})]] * (STEPS + 5))
    assert (len(endless.trajectory.steps), endless.outcome) == (STEPS + 1, Outcome.FAILED)


@pytest.mark.usefixtures("package")
def test_a_call_that_never_ends_is_the_policys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envs.language.bfcl.simulated_apis.CALLS_S", 2.0)
    episode, _ = episode_of("base", tmp_path, [("wait", {})])
    assert (episode.outcome, episode.score) == (Outcome.SANDBOX_DESTROYED, 0.0)
    assert "the simulated APIs did not answer within 2 s" in episode.trajectory.steps[-1].observation


@pytest.mark.usefixtures("package")
def test_a_process_that_the_machine_kills_is_no_fault_of_the_policy(tmp_path: Path) -> None:
    episode_of("base", tmp_path, [("show", {})])
    apis = SimulatedApis({"classes": {}, "stateless": [], "initial_config": {}, "long_context": False})
    with closing(apis):
        apis._process.send_signal(signal.SIGKILL)
        with pytest.raises(ProcessEnded) as ended:
            apis.call([("show", {})])
    assert ended.value.blame == "infra"


def test_without_the_package_the_command_that_installs_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("envs.language.bfcl.multi_turn.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install --no-deps bfcl-eval=="):
        tasks_of("bfcl/multi_turn", None)
    with pytest.raises(ValueError, match="no category 'basic'"):
        find("bfcl/multi_turn").options(categories="basic")


# The real package.


def mutated(gold: list[list[list[tuple[str, dict[str, Any]]]]], draw: random.Random) -> list[list[list[Any]]]:
    """Turns of steps of calls like the gold ones, with one to three changes. A text in place of arguments: no JSON."""
    turns = [[list(step) for step in turn] for turn in gold]
    for _ in range(draw.choice((1, 1, 2, 3))):
        turn = draw.choice(turns)
        every = [call for one in turns for step in one for call in step]
        hostile = [("exit", {}), ("_load_scenario", {"scenario": {}}), ("no_such_tool", {"a": 1}), ("print", {"x": 1})]
        change = draw.randrange(11)
        step = draw.choice(turn) if turn else []
        if change == 0 and step:
            step.pop(draw.randrange(len(step)))
        elif change == 1:
            turn.clear()
        elif change == 2 and every:
            turn.append([draw.choice(every)])
        elif change == 3:
            draw.shuffle(step)
        elif change == 4 and step:
            turn[:] = [[call] for one in turn for call in one]
        elif change == 5:
            turn.append([draw.choice(hostile)])
        elif change == 6:
            draw.shuffle(turns)
        elif change == 7:
            turn.append([("cd", "{")])
        elif change == 8 and step:
            name, given = step[0]
            step[0] = (name, {**given, "no_such_parameter": None}) if isinstance(given, dict) else (name, given)
        elif step:
            place = draw.randrange(len(step))
            name, given = step[place]
            if isinstance(given, dict) and given:
                key = draw.choice(sorted(given))
                step[place] = (name, {**given, key: other(given[key], draw)})
    return [[step for step in turn if step] for turn in turns]


def other(value: Any, draw: random.Random) -> Any:
    if isinstance(value, bool):
        return not value
    if isinstance(value, (int, float)):
        return draw.choice((value + 1, float(value), -value, str(value)))
    if isinstance(value, str):
        return draw.choice((f"{value} ", value.upper(), value[:-1], None, 0))
    return draw.choice((value[:-1], [*value, value], None)) if isinstance(value, list) else None


def our_verdict(task: Task, turns: list[list[list[Any]]]) -> bool:
    with closing(MultiTurnEnv()) as env:
        env.reset(options=dict(task.options))
        for step in itertools.chain.from_iterable([*turn, []] for turn in turns):
            calls = [ToolCall(n, a if isinstance(a, str) else json.dumps(a)) for n, a in step]
            _, _, terminated, _, info = env.step(spell_out("" if calls else "Done.", calls))
            if terminated:
                return bool(info["solved"])
    raise AssertionError(f"{task.id} did not end")


def published_verdict(task: Task, turns: list[list[list[Any]]], name: str) -> bool:
    checker = importlib.import_module("bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker")
    if any(len(turn) > STEPS for turn in turns):
        return False
    decoded = [[[f"{n}({','.join(f'{k}={v!r}' for k, v in a.items())})" for n, a in step] for step in turn
                if not any(isinstance(a, str) for _, a in step)] for turn in turns]  # fmt: skip
    entry = {
        "id": task.id.partition("/")[2],
        "initial_config": task.options["apis"]["initial_config"],
        "involved_classes": list(task.options["apis"]["classes"]),
    }
    return bool(checker.multi_turn_checker(decoded, task.options["gold"], entry, task.category, name)["valid"])


def gold_steps(task: Task) -> list[list[list[tuple[str, dict[str, Any]]]]]:
    """One step a turn, with named arguments, as the expert plays it."""
    with closing(MultiTurnEnv()) as env:
        _, info = env.reset(options={**task.options, "hints": True})
        turns = []
        for turn in task.options["gold"]:
            step = [(c.name, json.loads(c.arguments)) for c in read_calls(info["hints"]["expert"])[1]]
            turns.append([step] if step else [])
            if turn:
                info = env.step(info["hints"]["expert"])[4]
            info = env.step(info["hints"]["expert"])[4]
    return turns


@pytest.fixture
def real_package() -> None:
    if importlib.util.find_spec("bfcl_eval") is None:
        pytest.skip("bfcl-eval is not installed (pip install --no-deps bfcl-eval==2026.3.23)")


@pytest.mark.sweep  # 600 verdicts with the real package take four minutes
@pytest.mark.usefixtures("real_package")
def test_verdicts_on_mutated_replies_are_the_published_checkers() -> None:
    draw = random.Random(31)
    tasks = tasks_of("bfcl/multi_turn", None)
    verdicts = []
    for number, task in enumerate(draw.sample(tasks, 300)):
        gold = gold_steps(task)
        for repeat in range(2):
            turns = mutated(gold, draw)
            ours, published = our_verdict(task, turns), published_verdict(task, turns, f"m{number}_{repeat}")
            assert ours == published, (task.id, turns)
            verdicts.append(ours)
    assert 60 <= sum(verdicts) <= 400


@pytest.mark.sweep  # 800 golds of the real package take four minutes
@pytest.mark.usefixtures("real_package")
def test_every_gold_of_the_published_data_is_solved(tmp_path: Path) -> None:
    episodes = play(tasks_of("bfcl/multi_turn", None), ExpertPolicy(), tmp_path)
    assert [e.key.task for e in episodes if e.outcome is not Outcome.SOLVED or e.detail] == []
    assert len(episodes) == 800
