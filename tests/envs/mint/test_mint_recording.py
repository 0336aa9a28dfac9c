"""MINT's logs are read turn by turn, their replies said again, and broken lines named."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from envs.mint.benchmark import BENCHMARKS
from envs.mint.recording import SUBSETS, MintEpisode, is_mint_recording, read_recording, split_observation
from lemur_ray.agents.messages import ChatRequest, ContextOverflow, Message
from lemur_ray.agents.policy_spec import PolicySpec
from lemur_ray.agents.replay import ReplayPolicy


def episode(task_id: Any = 1, history: list[tuple[str, str]] | None = None, **state: Any) -> dict[str, Any]:
    history = history or [("user", "prompt"), ("assistant", "Assistant:\n<solution> 4 </solution>\n")]
    counts = {"propose_solution": 1, "use_tool": 0, "invalid_action": 0}
    whole = {"history": [{"role": r, "content": c} for r, c in history], "success": True, "error": None}
    whole |= {"agent_action_count": counts, "terminate_reason": "task_success"}
    return {"state": {**whole, **state}, "task": {"task_id": task_id, "task_name": "reasoning", "prompt": "p"}}


def write(path: Path, *episodes: Any) -> Path:
    text = "".join(e if isinstance(e, str) else json.dumps(e) + "\n" for e in episodes)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def ask(policy: ReplayPolicy, task: str, *said: str) -> str:
    messages = [Message("user", "prompt")]
    for reply in said:
        messages += [Message("assistant", reply)] if reply else []
        messages.append(Message("user", "observation"))
    return policy.reply(ChatRequest(tuple(messages), episode=f"mint/gsm8k|{task}|replay|r|0")).text


@pytest.mark.parametrize("name", ["gsm8k.jsonl", "gsm8k.results.jsonl.gz"])
def test_replies_are_said_again_without_their_frame(tmp_path: Path, name: str) -> None:
    history = [("user", "p"), ("assistant", "Assistant:\nfirst\n\n"), ("user", "o"), ("assistant", "second")]
    log = read_recording(write(tmp_path / name, episode(7, history), episode(7)))
    assert list(log.episodes) == ["7"]
    policy = ReplayPolicy(log)
    assert ask(policy, "7") == "first\n"
    assert ask(policy, "7", "first\n") == "second"


def test_two_user_messages_are_an_empty_reply_and_a_last_one_is_an_overflow(tmp_path: Path) -> None:
    history = [("user", "p"), ("user", "o1"), ("assistant", "a"), ("user", "o2")]
    log = read_recording(
        write(tmp_path / "math.jsonl", episode(1, history, terminate_reason="error", error="too long"))
    )
    policy = ReplayPolicy(log)
    assert ask(policy, "1") == ""
    assert ask(policy, "1", "") == "a"
    with pytest.raises(ContextOverflow, match="too long"):
        ask(policy, "1", "", "a")
    with pytest.raises(KeyError, match="'2'"):
        ask(policy, "2")


def test_an_observation_is_taken_apart_by_its_last_count_down() -> None:
    line = "You have 4 steps left and 2 chances to propose solution left."
    seen = split_observation(f"Observation:\n{line}\nOut[1]: 3\n{line}\n\nExpert feedback:\nThis is GOOD.\n")
    assert seen.text == f"{line}\nOut[1]: 3"
    assert seen.left == (4, 2)
    assert seen.feedback == "This is GOOD."
    assert split_observation("Observation:\nx\n").left is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("{", "not JSON"),
        ("[]\n", "not an episode"),
        (json.dumps({"state": {}, "task": {}}) + "\n", "history"),
        (json.dumps(episode(terminate_reason="tired")) + "\n", "tired"),
        (json.dumps(episode(1, [("user", "p"), ("system", "x")])) + "\n", "system"),
    ],
)
def test_a_malformed_line_is_named_with_file_and_number(tmp_path: Path, line: str, expected: str) -> None:
    path = write(tmp_path / "mbpp.jsonl", episode(), line)
    with pytest.raises(ValueError, match=expected) as error:
        read_recording(path)
    assert f"{path}, line 2" in str(error.value)


def test_a_file_is_recognised_by_its_first_record(tmp_path: Path) -> None:
    mint = write(tmp_path / "any.jsonl.gz", episode())
    other = write(tmp_path / "other.jsonl", json.dumps({"turn_history": {}}) + "\n")
    (tmp_path / "torn.jsonl.gz").write_bytes(b"\x1f\x8bnot gzip")
    assert is_mint_recording(mint)
    assert not is_mint_recording(other)
    assert not is_mint_recording(tmp_path / "torn.jsonl.gz")
    assert not is_mint_recording(tmp_path / "absent.jsonl")
    spec = PolicySpec.parse(f"replay:{mint}", recordings=BENCHMARKS["gsm8k"].details.recording_format)
    assert ask(spec(), "1") == "<solution> 4 </solution>"


def recomputed_reason(episode: MintEpisode, max_steps: int = 5, max_propose: int = 2) -> str:
    """Why an episode ended by MINT's rules, from its counters alone."""
    if episode.solved:
        return "task_success"
    if episode.error is not None:
        return "error"
    if episode.counts["propose_solution"] >= max_propose:
        return "max_propose_steps"
    return "max_steps" if sum(episode.counts.values()) >= max_steps else "running"


def test_counters_explain_every_end_and_every_count_down_of_the_recorded_runs(data_dir: Path) -> None:
    seen: Counter[str] = Counter()
    for path in sorted((data_dir / "mint" / "outputs").glob("*/*/*.results.jsonl.gz")):
        assert path.name.split(".")[0] in SUBSETS
        for logged in read_recording(path).episodes.values():
            seen["episodes"] += 1
            assert recomputed_reason(logged) == logged.terminate_reason, f"{path} {logged.task}"
            proposals = 0
            for steps, turn in enumerate(logged.turns, 1):
                proposals += "<solution>" in turn.reply
                left = None if turn.observation is None else split_observation(turn.observation).left
                if left is not None:
                    seen["count-downs"] += 1
                    assert left == (5 - steps, 2 - proposals), f"{path} {logged.task}"
    assert seen == {"episodes": 4106, "count-downs": 12291}
