"""Recorded runs: reading them, and repeating them turn by turn."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from envs.intercode.recording import read_recording, recorded_tasks, recorded_with
from lemur_ray.agents.messages import ChatRequest, Message
from lemur_ray.agents.policy_spec import PolicySpec
from lemur_ray.agents.replay import ReplayPolicy
from lemur_ray.agents.trajectory import Task
from lemur_ray.report.agreement import compare_recording


def episode(query: str = "How many?", **history: Any) -> dict[str, Any]:
    turns = {
        "actions": ["SHOW TABLES", "I do not know", "SELECT 2"],
        "observations": ["[('t',)]", "No SQL code was found in your last response.", "[(2,)]"],
        "rewards": [0.0, None, 1],
        "valid_action": [True, True, True],
    }
    return {"query": query, "task_id": 7, "turn_history": {**turns, **history}, "summary": {"max_reward": 1.0}}


def ask(past: int, task: str = "spider-db-7", episode_id: str = "b|{}|p|r|0") -> ChatRequest:
    said = [Message("assistant", "x"), Message("user", "y")] * past
    return ChatRequest((Message("user", "q"), *said), episode=episode_id.format(task))


def write(path: Path, text: str) -> Path:
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


@pytest.mark.parametrize("name", ["log.json", "log.json.gz", "log.jsonl", "log.jsonl.gz"])
def test_both_formats_plain_or_packed_hold_the_same(tmp_path: Path, name: str):
    text = json.dumps(episode()) + "\n\n" if "jsonl" in name else json.dumps({"7": episode()})
    recording = read_recording(write(tmp_path / name, text))
    turns = recording.episodes["7"].turns
    assert recording.name == "log"
    assert recording.episodes["7"].solved
    assert [turn.reply for turn in turns] == ["SHOW TABLES", "", "SELECT 2"]
    assert [turn.reward for turn in turns] == [0.0, 0.0, 1.0]


def test_a_turn_whose_policy_failed_gives_the_episode_up(tmp_path: Path):
    ended = episode(actions=["SELECT 1", "blocked"], observations=["[(1,)]"], rewards=[0.5, 0])
    recording = read_recording(write(tmp_path / "log.json", json.dumps({"0": ended})))
    assert [turn.reply for turn in recording.episodes["0"].turns] == ["SELECT 1", "skip"]


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("log.json", '{"0": {,', r"log.json, line 1, column 8: .*expected JSON"),
        ("log.jsonl", json.dumps(episode()) + "\n{broken\n", r"log.jsonl, line 2, column 2"),
        ("log.json", "[]", r"a JSON list, expected an object keyed by task index"),
        ("log.json", "{}", r"no episode in it"),
        ("log.json", '{"0": 3}', r"task '0': a JSON int; expected an episode"),
        ("log.json", json.dumps({"x": episode()}), r"task 'x': invalid literal"),
        ("log.json", json.dumps({"0": {"query": "?"}}), r"task '0': no 'turn_history'"),
        ("log.json", json.dumps({"3": episode(rewards=[1])}), r"task '3': 3 actions, 3 observations and 1 rewards"),
        ("log.json", json.dumps({"3": episode(actions=[1, 2, 3])}), r"task '3': an action of type int"),
        ("log.json", json.dumps({"3": episode(rewards=["a", 0, 0])}), r"task '3': could not convert"),
        ("log.json", json.dumps({"3": episode(rewards=[float("nan"), 0, 0])}), r"task '3': a reward of nan"),
        ("log.json", json.dumps({"3": {**episode(), "summary": None}}), r"task '3': .*NoneType"),
        ("log.json", "[" * 100_000, r"log.json, line 1: nested too deeply"),
        ("log.jsonl", 2 * (json.dumps(episode()) + "\n"), r"line 2: task 7 is recorded twice"),
    ],
)
def test_what_is_no_recording_is_named_by_file_and_place(tmp_path: Path, name: str, text: str, message: str):
    with pytest.raises(ValueError, match=message):
        read_recording(write(tmp_path / name, text))


def test_torn_gzip_and_other_bytes_are_named(tmp_path: Path):
    whole = gzip.compress(json.dumps({"7": episode()}).encode())
    for number, data in enumerate((whole[:-20], b"\x1f\x8b nothing", b"\xff\xfe")):
        path = tmp_path / f"log{number}.json"
        path.write_bytes(data)
        with pytest.raises(ValueError, match=rf"log{number}.json: .*expected JSON in UTF-8"):
            read_recording(path)
    with pytest.raises(FileNotFoundError, match="no such recording"):
        read_recording(tmp_path / "nowhere.json")


def test_the_policy_repeats_every_turn_then_gives_up_and_begins_again_for_a_new_attempt(tmp_path: Path):
    path = write(tmp_path / "log.json", json.dumps({"7": episode()}))
    policy = ReplayPolicy(read_recording(path), "replay:log.json")
    said = [policy.reply(ask(past)).text for past in (0, 1, 2, 2)]
    assert said == ["SHOW TABLES", "", "SELECT 2", "skip"]
    assert policy.reply(ask(0)).text == "SHOW TABLES"
    assert policy.reply(ask(1)).text == ""


def test_a_replay_is_spelled_by_its_file_and_named_without_its_folder(tmp_path: Path):
    path = write(tmp_path / "log.json", json.dumps({"7": episode()}))
    spec = PolicySpec.parse(f"replay:{path}", recordings=recorded_with())
    assert (spec.label, spec.recording) == ("replay:log.json", str(path))
    assert spec().reply(ask(0)).text == "SHOW TABLES"
    with pytest.raises(ValueError, match="replay:FILE"):
        PolicySpec.parse("replay:")
    with pytest.raises(ValueError, match="knows no recordings to replay"):
        PolicySpec.parse(f"replay:{path}")


def test_only_tasks_of_the_recording_are_played_with_as_many_turns_as_it_took(tmp_path: Path):
    path = write(tmp_path / "log.json", json.dumps({"7": episode(), "1": episode("Who?")}))
    tasks = [Task("b", f"x-{i}", "e", "easy", {"question": q}) for i, q in enumerate("abcdefg")]
    tasks[1] = Task("b", "x-1", "e", "easy", {"question": "Who?", "max_steps": 10})
    tasks.append(Task("b", "x-7", "e", "easy", {"question": "How  many?"}))
    found = recorded_tasks(tasks, read_recording(path), path, "strict")
    assert [task.id for task in found] == ["x-7", "x-1"]
    assert (found[1].max_turns, found[1].options["max_steps"], found[1].options["recorded"]) == (3, 3, "strict")
    del tasks[1]
    with pytest.raises(ValueError, match=r"log.json, task 1: there is no task of that number \('Who\?'\)"):
        recorded_tasks(tasks, read_recording(path), path, "strict")


def test_a_reworded_task_is_played_by_its_number_and_the_difference_is_told(tmp_path: Path):
    path = write(tmp_path / "log.json", json.dumps({"7": episode(), "1": episode("Who?" + "!" * 400)}))
    tasks = [
        Task("b", "x-1", "e", "easy", {"question": "Whose?"}),
        Task("b", "x-7", "e", "easy", {"question": "How  many?\n"}),
    ]
    found = recorded_tasks(tasks, read_recording(path), path, "strict")
    assert [task.id for task in found] == ["x-7", "x-1"]
    said = compare_recording(str(path), recorded_with(), [], found)
    told = {"task": "x-1", "recorded": "Who?" + "!" * 296 + "...", "now": "Whose?"}
    assert said["reworded"] == [told], "blanks are no words, and what is long is cut"
    assert "reworded" not in compare_recording(str(path), recorded_with(), [], found[:1])
