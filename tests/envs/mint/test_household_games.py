"""MINT's household, the 134 real games of ALFWorld, against the texts of the recorded runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from envs.mint import tasks
from envs.mint.judges import HouseholdJudge
from envs.mint.recording import read_recording, text_of
from envs.mint.tasks import household_games, household_prompt, load_mint_tasks
from envs.mint.tools import HOUSEHOLD
from envs.outside_data import GAMES

TOOLS = {tool.name: tool for tool in HOUSEHOLD}
ONE_CALL = re.compile(r"^print\((\w+)\((.*)\)\)$")


@pytest.fixture(scope="session")
def archive(data_dir: Path) -> Path:
    return data_dir / "mint" / "tasks" / "alfworld" / "valid_unseen_134_games.tar.gz"


def test_all_games_load_and_open_as_the_recorded_prompts_say(archive: Path, data_dir: Path) -> None:
    games = household_games(archive)
    assert len(games) == 134
    log = read_recording(data_dir / "mint/outputs/gpt-3.5-turbo-0613/F=None/alfworld.results.jsonl.gz").episodes
    assert len(log) == 134
    openings = {task: household_prompt(games[task]).strip() for task in log}
    assert [task for task, e in log.items() if not e.question.strip().endswith(openings[task])] == []
    leads = {e.question.strip().removesuffix(openings[task]) for task, e in log.items()}
    assert len(leads) == 1, leads  # the same words stand before every game


def test_other_game_files_are_another_evaluation(data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def identity() -> str:
        return str(load_mint_tasks("alfworld", data_dir, 1)[0].options["database_id"])

    def with_another_game(archive: Path) -> dict[str, object]:
        first = next(iter(read))
        return {**read, first: (read[first][0], "another grammar")}

    recorded, read = identity(), tasks._games_in_archive(data_dir / GAMES)
    monkeypatch.setattr(tasks, "_games_in_archive", with_another_game)
    monkeypatch.setattr(tasks, "household_games", lambda archive: {name: game for name, (game, _) in read.items()})
    assert identity() != recorded


def plain_calls(code: str) -> list[tuple[str, list[str]]] | None:
    """The calls of a cell that does nothing but print calls with literal arguments; None for any other cell."""
    calls = []
    for line in filter(None, (line.strip() for line in code.splitlines())):
        found = ONE_CALL.match(line)
        if found is None or found[1] not in TOOLS:
            return None
        try:
            arguments = json.loads(f"[{found[2]}]")
        except ValueError:
            return None
        if len(arguments) != len(TOOLS[found[1]].parameters):
            return None
        calls.append((found[1], arguments))
    return calls or None


def test_answers_are_the_recorded_ones(archive: Path, data_dir: Path) -> None:
    """Of cells that only print calls with literal arguments: no code has to be run for them, and few are so plain."""
    seen = 0
    for path in sorted((data_dir / "mint" / "outputs").glob("*/*/alfworld.results.jsonl.gz")):
        for logged in read_recording(path).episodes.values():
            judge = HouseholdJudge(archive, logged.task)
            for turn in logged.turns:
                code = "\n".join(c.strip() for c in re.findall(r"<execute>(.*?)</execute>", turn.reply, re.DOTALL))
                calls = plain_calls(code)
                if calls is None or "<solution>" in turn.reply:
                    break
                answers = [judge.command(TOOLS[name], arguments) for name, arguments in calls]
                if (said := text_of(turn)) is not None and len("\n".join(answers)) < 2000:
                    assert "\n".join(answers).strip() == said, f"{path} {logged.task}"
                    seen += 1
    assert seen >= 4


def test_fifty_looks_are_a_success_for_the_old_grader_alone(archive: Path) -> None:
    judge = HouseholdJudge(archive, next(iter(household_games(archive))))
    for _ in range(49):
        judge.command(TOOLS["look"], [])
    assert not judge.solved("mint-2023")
    judge.command(TOOLS["look"], [])
    assert judge.solved("mint-2023")
    assert not judge.solved("strict")
    assert judge.over("strict")


def test_a_goal_reached_after_fifty_commands_is_no_strict_success(archive: Path) -> None:
    game = next(name for name in household_games(archive) if name.startswith("pick_and_place_simple"))
    judge = HouseholdJudge(archive, game)
    for _ in range(50):
        judge.command(TOOLS["look"], [])
    judge._house.won = True
    judge._house.step = lambda command: "Nothing happens."  # type: ignore[method-assign]
    judge.command(TOOLS["look"], [])
    assert judge.done
    assert not judge.won
