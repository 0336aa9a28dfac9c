"""The ledger: nothing finished is lost, nothing counts twice, whatever a crash leaves behind."""

import errno
import json
import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lemur_ray.agents.messages import Message
from lemur_ray.agents.trajectory import Episode, EpisodeKey, Outcome, Step, Trajectory
from lemur_ray.rollout.ledger import Ledger, LedgerError, read_episodes


def episode(task: str, outcome: Outcome = Outcome.SOLVED, detail: str = "") -> Episode:
    steps = (Step("go “north”\n\x1b[0m", "go north", "You see ☃ and \u2028.", 1.0, True, 0.1, 0.2, 30, 4),)
    return Episode(
        key=EpisodeKey("toy", task, "expert", "r0"),
        category="line",
        outcome=outcome,
        score=1.0 if outcome.scored else None,
        attempts=1,
        trajectory=Trajectory((Message("user", "Walk."),), steps),
        detail=detail,
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "episodes.jsonl"


def test_what_was_appended_is_read_back_equal(path: Path):
    with Ledger(path) as ledger:
        assert ledger.append(episode("a"))
        assert ledger.append(episode("b", Outcome.ENV_ERROR))
    assert read_episodes(path) == [episode("a"), episode("b", Outcome.ENV_ERROR)]


def test_several_at_once_are_one_write_and_count_what_was_new(path: Path):
    with Ledger(path) as ledger:
        ledger.append(episode("a"))
        assert (
            ledger.extend([episode("b"), episode("a", detail="again"), episode("c"), episode("b", detail="again")]) == 2
        )
        assert ledger.extend([]) == 0
    assert read_episodes(path) == [episode("a"), episode("b"), episode("c")]


def test_the_first_record_of_a_key_wins_and_the_second_is_not_written(path: Path):
    with Ledger(path) as ledger:
        ledger.append(episode("a", detail="first"))
        assert not ledger.append(episode("a", detail="second"))
    line = path.read_bytes()
    path.write_bytes(line + line.replace(b"first", b"other"))
    assert [e.detail for e in read_episodes(path)] == ["first"]
    with Ledger(path) as ledger:
        kept = ledger.get(episode("a").key)
        assert kept is not None
        assert kept.detail == "first"
        assert len(ledger) == 1


def test_a_scored_record_supersedes_one_without_a_score_and_nothing_supersedes_a_scored_one(path: Path):
    lost, scored = episode("a", Outcome.INFRA_LOST), episode("a", Outcome.FAILED)
    with Ledger(path) as ledger:
        ledger.append(lost)
        assert not ledger.settled(lost.key)
        assert not ledger.append(episode("a", Outcome.ENV_ERROR))
    with Ledger(path) as ledger:
        assert ledger.append(scored)
        assert ledger.settled(lost.key)
        assert not ledger.append(episode("a", Outcome.SOLVED))
    assert read_episodes(path) == [scored]
    assert path.read_bytes().count(b"\n") == 2
    with path.open("a") as file:
        file.write(json.dumps(episode("a", Outcome.ENV_ERROR).to_json()) + "\n")
    assert read_episodes(path) == [scored]
    with Ledger(path) as ledger:
        assert ledger.get(lost.key) == scored
        assert ledger.extend([episode("b", Outcome.ENV_ERROR), episode("b"), episode("b", Outcome.FAILED)]) == 1
    assert read_episodes(path) == [scored, episode("b")]


def test_a_second_writer_is_refused_until_the_first_is_gone(path: Path):
    with Ledger(path), pytest.raises(LedgerError, match="another run is writing"):
        Ledger(path)
    Ledger(path).close()


def test_a_torn_tail_is_cut_off_and_said(path: Path):
    with Ledger(path) as ledger:
        ledger.append(episode("a"))
    whole = path.read_bytes()
    path.write_bytes(whole + whole[:50])
    assert read_episodes(path) == [episode("a")]
    with Ledger(path) as ledger:
        assert "torn record of 50 bytes" in ledger.repaired
        assert ledger.append(episode("b"))
    assert read_episodes(path) == [episode("a"), episode("b")]


def test_a_last_record_that_lacks_only_its_newline_is_kept(path: Path):
    with Ledger(path) as ledger:
        ledger.append(episode("a"))
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    assert read_episodes(path) == [episode("a")]
    with Ledger(path) as ledger:
        assert "lacked its newline" in ledger.repaired
        assert ledger.append(episode("b"))
    assert len(read_episodes(path)) == 2


@pytest.mark.parametrize("broken", ["{}", "garbage", '{"key": 3}', "\0\0\0", '"text"', "[1]"])
def test_a_broken_line_in_the_middle_names_file_and_line(path: Path, broken: str):
    good = json.dumps(episode("a").to_json())
    path.write_text(f"{good}\n{broken}\n{good}\n")
    with pytest.raises(LedgerError, match=r"episodes.jsonl, line 2: "):
        read_episodes(path)
    with pytest.raises(LedgerError, match=r"line 2: "):
        Ledger(path)
    Path(path).write_text("")
    Ledger(path).close()  # the failed opening has given its lock back


def changed(**changes: Any) -> dict[str, Any]:
    """A record with other values, by dotted name."""
    value: dict[str, Any] = json.loads(json.dumps(episode("a").to_json()))
    for name, new in changes.items():
        inner: Any = value
        *path, last = name.split("__")
        for part in path:
            inner = inner[int(part) if part.isdigit() else part]
        inner[last] = new
    return value


@pytest.mark.parametrize(
    "wrong",
    [
        {"score": "abc"}, {"score": float("nan")}, {"score": 10**400}, {"category": None}, {"attempts": "x"},
        {"attempts": True}, {"wall_s": float("inf")}, {"detail": 3}, {"retried": [3]}, {"outcome": ["solved"]},
        {"key__task": ["a"]}, {"key__epoch": "0"}, {"key__policy": None}, {"trajectory": []},
        {"trajectory__opening": ["x"]}, {"trajectory__opening": [{"role": "user", "content": 1}]},
        {"trajectory__steps": ["x"]}, {"trajectory__steps__0__reply": 5}, {"trajectory__steps__0__action": ["x"]},
        {"trajectory__steps__0__reward": float("nan")}, {"trajectory__steps__0__valid": 1},
        {"trajectory__steps__0__prompt_tokens": 1.5},
    ],
)  # fmt: skip
def test_a_record_with_a_value_of_another_type_names_file_and_line(path: Path, wrong: dict[str, Any]):
    path.write_text(f"{json.dumps(episode('b').to_json())}\n{json.dumps(changed(**wrong))}\n")
    with pytest.raises(LedgerError, match=r"episodes.jsonl, line 2: "):
        read_episodes(path)


def test_a_record_that_nests_too_deeply_is_a_broken_line(path: Path):
    path.write_text("[" * 100_000 + "]" * 100_000 + "\n")
    with pytest.raises(LedgerError, match=r"line 1: .*nested too deeply"):
        read_episodes(path)


def test_what_json_cannot_say_is_not_written(path: Path):
    with Ledger(path) as ledger, pytest.raises(ValueError, match="JSON"):
        ledger.append(replace(episode("a"), wall_s=float("nan")))
    assert path.read_bytes() == b""


@pytest.mark.parametrize("wrong", [{"category": 3}, {"cluster": 3}, {"detail": {1, 2}}, {"attempts": -1}])
def test_what_could_not_be_read_again_is_not_written(path: Path, wrong: dict[str, Any]):
    with Ledger(path) as ledger:
        with pytest.raises(ValueError, match="is not written"):
            ledger.extend([episode("a"), replace(episode("b"), **wrong)])
        ledger.append(episode("c"))
    assert read_episodes(path) == [episode("c")]


def test_a_full_disk_leaves_no_half_line(path: Path, monkeypatch: pytest.MonkeyPatch):
    real = os.write
    with Ledger(path) as ledger:
        ledger.append(episode("a"))

        def write(fd: int, data: bytes) -> int:
            if len(data) < 100:
                raise OSError(errno.ENOSPC, "No space left on device")
            return real(fd, data[: len(data) // 2])

        monkeypatch.setattr(os, "write", write)
        with pytest.raises(OSError, match="No space"):
            ledger.append(episode("b"))
        monkeypatch.undo()
        assert episode("b").key not in ledger
        assert ledger.append(episode("b"))
    assert read_episodes(path) == [episode("a"), episode("b")]


@settings(max_examples=30, deadline=None)
@given(
    names=st.lists(st.sampled_from("abcdef"), min_size=1, max_size=12),
    cuts=st.lists(st.integers(0, 3000), min_size=1, max_size=4),
)
def test_whatever_is_cut_off_the_end_the_next_run_completes_the_ledger(names: list[str], cuts: list[int]):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "episodes.jsonl"
        for cut in [*cuts, 0]:
            with Ledger(path) as ledger:
                before = len(ledger)
                for name in names:
                    ledger.append(episode(name))
                assert len(ledger) == len(set(names)) >= before
            whole = path.read_bytes()
            assert whole.count(b"\n") == len(set(names))
            os.truncate(path, max(0, len(whole) - cut))
            kept = read_episodes(path)
            assert kept == [episode(n) for n in dict.fromkeys(names)][: len(kept)] or set(kept) <= set(
                map(episode, names)
            )
            assert len(kept) >= whole[: len(whole) - cut].count(b"\n") if cut <= len(whole) else not kept


@settings(max_examples=40, deadline=None)
@given(spec=st.lists(st.tuples(st.sampled_from("abcd"), st.integers(0, 9)), max_size=20))
def test_of_any_duplicated_lines_the_first_of_each_key_counts(spec: list[tuple[str, int]]):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "episodes.jsonl"
        lines = [json.dumps(episode(name, detail=str(number)).to_json()) + "\n" for name, number in spec]
        path.write_text("".join(lines))
        first: dict[str, str] = {}
        for name, number in spec:
            first.setdefault(name, str(number))
        assert {e.key.task: e.detail for e in read_episodes(path)} == first
        with Ledger(path) as ledger:
            assert len(ledger) == len(first)


def test_duckdb_reads_the_ledger_as_it_is(path: Path):
    with Ledger(path) as ledger:
        ledger.append(episode("a"))
        ledger.append(episode("b", Outcome.INFRA_LOST))
        ledger.append(episode("c", Outcome.TURN_LIMIT, detail="\ufffd 'quoted' \"twice\""))
    query = f"select key.task, outcome, blame, score, len(trajectory.steps) from read_json('{path}') order by 1"
    assert duckdb.sql(query).fetchall() == [
        ("a", "solved", "policy", 1.0, 1),
        ("b", "infra_lost", "infra", None, 1),
        ("c", "turn_limit", "policy", 1.0, 1),
    ]
