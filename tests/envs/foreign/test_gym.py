"""Any gymnasium environment of texts is a benchmark by its id, without a line of this project in it."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest

from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.benchmarks.discovery import find, own_code
from tests.agents.misbehaving import completion, serving
from tests.conftest import ROOT

GUESS = "gym:tests.envs.foreign.guessing:test/Guess-v0"


def tasks(name: str = GUESS, **options: Any) -> list[Any]:
    benchmark = find(name)
    return list(benchmark.load(benchmark.options(**options), EvaluationRequest()))


def played(task: Any, replies: list[str]) -> list[tuple[str, float, bool, dict[str, Any]]]:
    env = gymnasium.make(task.env_id, disable_env_checker=True)
    env.reset(options=dict(task.options))
    turns = []
    for reply in replies:
        text, reward, terminated, truncated, info = env.step(reply)
        turns.append((text, reward, terminated or truncated, info))
        if terminated or truncated:
            break
    env.close()
    return turns


def test_a_task_is_a_seed_and_has_the_turns_of_its_registration() -> None:
    found = tasks(seeds=3, arguments='{"most": 5}')
    assert [task.id for task in found] == ["seed-0", "seed-1", "seed-2"]
    assert {task.max_turns for task in found} == {6}
    assert tasks(turns=2)[0].max_turns == 2


def test_the_random_policy_finds_no_actions_to_draw_and_plays() -> None:
    env = gymnasium.make(tasks()[0].env_id, disable_env_checker=True)
    _, info = env.reset(options={**tasks()[0].options, "hints": True})
    assert info["hints"] == {}
    env.close()


def test_an_edit_of_the_module_that_registers_it_is_another_benchmark(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file, name = tmp_path / "edited_game.py", "gym:edited_game:test/Guess-v0"
    text = "from tests.envs.foreign.guessing import Guess\nMOST = 9\n"
    monkeypatch.syspath_prepend(str(tmp_path))
    file.write_text(text)
    first = own_code(name)
    assert list(first) == ["module_code"]
    file.write_text(f"# a comment\n{text}")
    assert own_code(name) == first
    assert capsys.readouterr().err == ""
    file.write_text(text.replace("9", "5"))
    assert own_code(name) == first
    assert "edited_game was edited after this process had imported it" in capsys.readouterr().err
    monkeypatch.delitem(sys.modules, "edited_game")
    importlib.invalidate_caches()
    assert own_code(name) != first
    assert own_code("gym:test/Guess-v0") == {}, "whoever registered it"


@pytest.mark.parametrize("says", [False, True])
def test_it_is_solved_by_its_word_or_by_the_sum_of_its_rewards(says: bool) -> None:
    (task, *_) = tasks(arguments=json.dumps({"most": 5, "says": says}))
    last = played(task, [str(number) for number in range(6)])[-1]
    assert last[0] == "Right!"
    assert (last[3]["outcome"], last[3]["score"]) == ("solved", 1.0)
    lost = played(task, [str(number) for number in range(6) if f"{number}" != last[3]["action"]] + ["7"])[-1]
    assert (lost[3]["outcome"], lost[3]["score"]) == ("turn_limit", 0.0)


@pytest.mark.parametrize("last", ["3", "no action"])
def test_rewards_that_suffice_when_our_turns_end_solve_it_unless_it_says_otherwise(last: str) -> None:
    steady = GUESS.replace("Guess-v0", "Steady-v0")

    def end(turns: int, **arguments: bool) -> tuple[str, float]:
        (task, *_) = tasks(steady, turns=turns, arguments=json.dumps(arguments))
        info = played(task, ["1"] * (turns - 1) + [last])[-1][3]
        return info["outcome"], info["score"]

    assert end(3) == ("solved", 1.0)
    assert end(3, says=True) == ("turn_limit", 0.999)
    assert end(2)[0] == ("solved" if last == "3" else "turn_limit")


def test_a_reply_that_is_no_action_costs_a_turn_and_does_not_reach_it() -> None:
    (task, *_) = tasks()
    turns = played(task, ["I think it is 3", "", "123456"])
    assert [info["valid"] for *_, info in turns] == [False, False, False]
    assert "Not an action here" in turns[0][0]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("gym:tests.envs.foreign.guessing:test/Pictures-v0", "its observations are Box"),
        ("gym:tests.envs.foreign.guessing:test/Nothing-v0", "cannot be made"),
        ("gym:no_module_of_this_name:X-v0", "cannot be made: ModuleNotFoundError"),
    ],
)
def test_what_is_no_environment_of_texts_is_refused(name: str, message: str) -> None:
    benchmark = find(name)
    with pytest.raises(ValueError, match=message):
        list(benchmark.load(benchmark.options(), EvaluationRequest()))


@pytest.mark.parametrize("options", [{"arguments": "[1]"}, {"arguments": "{"}, {"seeds": 0}, {"solved_at": 0.0}])
def test_options_that_make_no_sense_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=f"--{next(iter(options)).replace('_', '-')}"):
        find(GUESS).options(**options)


def test_a_model_plays_it_from_the_command_line(tmp_path: Path) -> None:
    def answer(asked: dict[str, Any]) -> Any:
        return completion(str(sum(message["role"] == "assistant" for message in asked["messages"])))

    with serving(answer) as server:
        command = [
            sys.executable,
            str(ROOT / "jobs" / "agent_eval.py"),
            "--benchmark",
            GUESS,
            "--policy",
            f"openai:{server.url}",
        ]
        command += ["--policy-model", "toy", "--actors", "0", "--seeds", "8", "--arguments", '{"most": 5}']
        environment = {**os.environ, "LEMUR_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout.splitlines()[-1])
    assert (said["scored"], said["solved"], said["benchmark"]) == (8, 8, GUESS)
