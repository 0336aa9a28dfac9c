"""``jobs/export_sft.py``: solved games of a finished evaluation become instruction data, and nothing else does."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.agents.recording import NOT_EXECUTED
from lemur_ray.rollout.ledger import read_episodes
from tests.instruct.own_chats import read_conversations

JOBS = Path(__file__).resolve().parents[2] / "jobs"
Run = Callable[..., int]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Run]:
    """Calls the main function of a job by its name."""
    monkeypatch.setenv("LEMUR_HOME", str(tmp_path))
    monkeypatch.syspath_prepend(str(JOBS))
    yield lambda name, *argv: int(importlib.import_module(name).main([str(a) for a in argv]))
    for name in ("agent_eval", "export_sft", "_path"):
        sys.modules.pop(name, None)


def play(run: Run, policy: str, split: str, out: str, limit: int = 6) -> None:
    options = ("--actors", "0", "--limit", limit, "--split", split, "--prompt", "brief", "--out", out)
    assert run("agent_eval", "--policy", policy, *options) == 0


def exported(run: Run, tmp_path: Path, *options: str) -> dict[str, Any]:
    code = run("export_sft", "--out", "sft.jsonl", *options)
    counts: dict[str, Any] = json.loads((tmp_path / "sft.jsonl.json").read_text())
    assert (code == 0) == bool(counts["kept"])
    return counts


def test_solved_training_games_become_conversations_that_end_with_the_winning_command(run: Run, tmp_path: Path) -> None:
    play(run, "expert", "train", "episodes/a")
    play(run, "random", "train", "episodes/b", limit=2)
    counts = exported(run, tmp_path)
    assert (counts["read"], counts["kept"], counts["dropped"]) == (8, 6, {"not_solved": 2})
    talks = list(read_conversations(tmp_path / "sft.jsonl"))
    episodes = {str(e.key): e for e in read_episodes(tmp_path / "episodes" / "a" / "episodes.jsonl")}
    assert {talk.id for talk in talks} == set(episodes)
    for talk in talks:
        assert talk.messages == episodes[talk.id].trajectory.messages()[:-1]
        assert talk.messages[-1].role == "assistant"


def test_held_out_games_are_left_out_unless_asked_for(run: Run, tmp_path: Path) -> None:
    play(run, "expert", "heldout", "episodes/a", limit=3)
    assert exported(run, tmp_path)["dropped"] == {"held_out_task": 3}
    assert exported(run, tmp_path, "--held-out")["kept"] == 3


def test_what_is_not_solved_again_is_left_out(run: Run, tmp_path: Path) -> None:
    play(run, "expert", "train", "episodes/a", limit=4)
    ledger = tmp_path / "episodes" / "a" / "episodes.jsonl"
    lines = [json.loads(line) for line in ledger.read_text().splitlines()]
    lines[0]["trajectory"]["steps"] = lines[0]["trajectory"]["steps"][:-1]  # it claims to have won, and had not yet
    ledger.write_text("".join(json.dumps(line) + "\n" for line in lines))
    counts = exported(run, tmp_path)
    assert (counts["kept"], counts["dropped"]) == (3, {"not_solved_again": 1})
    assert exported(run, tmp_path, "--no-replay")["kept"] == 4


def test_one_task_solved_twice_in_the_same_words_counts_once(run: Run, tmp_path: Path) -> None:
    play(run, "expert", "train", "episodes/a", limit=3)
    play(run, "expert", "train", "episodes/b", limit=3)
    counts = exported(run, tmp_path)
    assert (counts["kept"], counts["dropped"]) == (3, {"duplicate": 3})


def test_episodes_of_unknown_settings_are_counted_and_nothing_left_is_an_error(run: Run, tmp_path: Path) -> None:
    play(run, "expert", "train", "episodes/a", limit=2)
    (tmp_path / "episodes" / "a" / "evaluations.json").unlink()
    assert exported(run, tmp_path)["dropped"] == {"settings_unknown": 2}


def rewritten(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Changes every episode of a ledger."""
    ledger = folder / "episodes.jsonl"
    lines = [json.loads(line) for line in ledger.read_text().splitlines()]
    for line in lines:
        change(line)
    ledger.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_what_was_never_told_to_a_model_is_not_exported(run: Run, tmp_path: Path) -> None:
    play(run, "expert", "train", "episodes/a", limit=2)
    play(run, "expert", "train", "episodes/b", limit=2)

    def unexecuted(episode: dict[str, Any]) -> None:
        episode["trajectory"]["steps"][0]["observation"] = f"Observation:\n{NOT_EXECUTED}\n"

    def recorded(episode: dict[str, Any]) -> None:
        episode["key"]["policy"] = "replay:gpt-4-0613/F=None"

    rewritten(tmp_path / "episodes" / "a", unexecuted)
    rewritten(tmp_path / "episodes" / "b", recorded)
    counts = exported(run, tmp_path, "--no-replay", "--held-out")
    assert (counts["read"], counts["kept"]) == (4, 0)
    assert counts["dropped"] == {"not_executed": 2, "replay_of_a_recording": 2}


def test_an_evaluation_on_a_server_says_that_its_url_is_needed(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    play(run, "expert", "train", "episodes/a", limit=2)
    play(run, "expert", "train", "episodes/b", limit=3)
    kept = tmp_path / "episodes" / "b" / "evaluations.json"
    known = json.loads(kept.read_text())
    (recipe,) = known
    for config in known[recipe]["configs"]:
        config |= {"benchmark": "intercode/sql", "options": {"engine": "mysql"}}
    kept.write_text(json.dumps({"feed" * 4: known[recipe]}))
    rewritten(tmp_path / "episodes" / "b", lambda episode: episode["key"].update(recipe="feed" * 4))
    counts = exported(run, tmp_path)
    assert counts["kept"] == 2
    assert counts["dropped"] == {"duplicate": 2, "sql_server_unknown": 1}
    assert "--engine mysql:URL" in capsys.readouterr().err
    (said,) = counts["said"]
    assert str(tmp_path / "episodes" / "b") in said


def test_no_episodes_is_an_error_that_says_where_it_looked(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("export_sft") == 1
    assert "agent_eval" in capsys.readouterr().err
    assert run("export_sft", "--episodes", "nowhere") == 1
    assert "nowhere has no episodes.jsonl" in capsys.readouterr().err
