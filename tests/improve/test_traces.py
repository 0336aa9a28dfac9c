"""Traces on disk, and the batch that a round's episodes and traces give."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lemur_ray.agents.messages import Trace
from lemur_ray.agents.trajectory import Episode, EpisodeKey, Outcome, Step, Trajectory
from lemur_ray.improve.config import BadInput
from lemur_ray.improve.groups import group_batch, round_batches
from lemur_ray.improve.traces import (
    Journal,
    TracedRound,
    Traces,
    TracesDamaged,
    complete,
    load_traces,
    save_traces,
    traced_turns,
)

FIRST = Trace((1, 2), (5, 3), (-0.5, -0.25), "s")
GOES_ON = Trace((1, 2, 5, 3, 7), (6, 3), (-1.0, 0.0), "t")
CUT = Trace((1, 9), (4,), (-2.0,))


def test_a_prompt_that_goes_on_from_the_ids_before_is_stored_by_what_is_new() -> None:
    first, second, third = traced_turns([FIRST, GOES_ON, CUT])
    assert (first.begins, first.prompt) == (True, (1, 2))
    assert (second.begins, second.prompt, second.state) == (False, (7,), "t")
    assert (third.begins, third.prompt) == (True, (1, 9))


def test_files_of_traces_give_back_what_was_stored_and_equal_ones_are_equal_bytes(tmp_path: Path) -> None:
    traces = {"a": traced_turns([FIRST, GOES_ON, CUT]), "b": traced_turns([]), "c": traced_turns([CUT])}
    journal = Journal(tmp_path / "1" / "traces.jsonl")
    journal.append([("a", [FIRST, GOES_ON, CUT]), ("b", [])])
    with journal.path.open("a") as file:
        file.write('["d", [[true, [1')  # a kill
    journal.append([("c", [CUT])])
    assert journal.read() == traces
    journal.append([("c", [FIRST, None, CUT])])  # its first attempt never came into the ledger
    assert journal.read()["c"] == traced_turns([FIRST, None, CUT])
    for name in ("one", "two"):
        save_traces(tmp_path / name, traces, ["c", "a", "b"])
    assert load_traces(tmp_path / "one") == traces
    content = (tmp_path / "one").read_bytes()
    assert content == (tmp_path / "two").read_bytes()
    for broken in (content[: len(content) // 2], content[:-1], b""):
        (tmp_path / "one").write_bytes(broken)
        with pytest.raises(TracesDamaged, match="one is damaged"):
            load_traces(tmp_path / "one")


def episode(task: str, epoch: int, score: float, replies: str = "ab") -> Episode:
    steps = tuple(Step(one, one, "ok", 0.0, True) for one in replies)
    outcome = Outcome.SOLVED if score else Outcome.FAILED
    return Episode(EpisodeKey("b", task, "p", "r", epoch), "", outcome, score, 1, Trajectory((), steps))


def round_of(*scores: tuple[str, float]) -> tuple[list[Episode], Traces]:
    """Episodes of two turns with these tasks and scores; each draws ids of its own."""
    episodes = [episode(task, epoch, score) for epoch, (task, score) in enumerate(scores)]
    traces = {
        str(one.key): traced_turns([replace(FIRST, drawn=(number, 3)), replace(CUT, drawn=(number,))])
        for number, one in enumerate(episodes)
    }
    return episodes, traces


def test_a_batch_has_advantages_where_an_id_was_drawn_and_counts_flat_and_incomplete_groups() -> None:
    scores = [("x", 1.0), ("x", 0.0), ("y", 1.0), ("y", 1.0), ("z", 1.0)]
    episodes, traces = round_of(*scores)
    traces[str(episodes[3].key)] = traces[str(episodes[2].key)]  # they draw alike
    rows, numbers = group_batch(episodes, traces, "rloo", "xyz", 0, 8)
    assert rows is not None
    counts = {name: numbers[name] for name in ("groups", "mixed", "flat", "alike", "incomplete", "states")}
    assert counts == {"groups": 3, "mixed": 1, "flat": 1, "alike": 1, "incomplete": 1, "states": 1}
    drawn = rows["drawn"] > 0
    assert list(rows["normaliser"]) == list(rows["drawn"].sum(axis=1))
    assert rows["normaliser"].sum() == drawn.sum() == 6
    assert sorted(rows["targets"][drawn]) == [0, 0, 1, 1, 3, 3]
    assert set(zip(rows["targets"][drawn].tolist(), rows["loss_weights"][drawn].tolist(), strict=True)) == {
        (0, 1.0), (1, -1.0), (3, 1.0), (3, -1.0)
    }  # fmt: skip
    assert sorted(rows["behaviour"][drawn].tolist()) == [-2.0, -2.0, -0.5, -0.5, -0.25, -0.25]
    assert not rows["loss_weights"][~drawn].any()
    assert len(np.unique(rows["segment_ids"])) == 3, "the cut prompt begins a sequence of its own"


def test_ids_behind_the_end_of_a_row_are_counted_and_rows_without_drawn_ids_are_none() -> None:
    episodes = [episode("x", epoch, score, "a") for epoch, score in enumerate((1.0, 0.0))]
    late = Trace(tuple(range(10)), (5, 3), (-0.5, -0.25))
    traces = {str(one.key): traced_turns([late]) for one in episodes}
    batch = group_batch(episodes, traces, "rloo", "x", 0, 8)
    assert batch.rows is None
    assert (batch.numbers["cut_ids"], batch.numbers["mixed"]) == (4, 1)
    traces[str(episodes[1].key)] = traced_turns([None])
    batch = group_batch(episodes, traces, "rloo", "x", 0, 16)
    assert batch.rows is not None
    assert list(batch.rows["normaliser"]) == [2]


def test_a_round_without_differences_has_no_rows_and_bad_input_is_refused_by_name() -> None:
    episodes, traces = round_of(("x", 1.0), ("x", 1.0))
    assert group_batch(episodes, traces, "grpo", "x", 0, 16).rows is None
    with pytest.raises(BadInput, match="task x of b is held out"):
        group_batch(episodes, traces, "grpo", "y", 0, 16)
    lost = [episodes[0], replace(episodes[1], outcome=Outcome.ENV_ERROR, score=None)]
    assert group_batch(lost, traces, "grpo", "x", 0, 16).numbers["incomplete"] == 1, "its end was not the policy's"
    odd = [replace(episodes[0], score=1.5), episodes[1]]
    with pytest.raises(BadInput, match=r"task x of b: rewards 1\.5, 1: expected numbers from 0 to 1"):
        group_batch(odd, traces, "grpo", "x", 0, 16)


def test_shuffled_rewards_stay_within_their_group() -> None:
    episodes, traces = round_of(*[(task, float(k == 0)) for task in "xy" for k in range(6)])
    plain = group_batch(episodes, traces, "rloo", "xy", 0, 64)
    dealt = [group_batch(episodes, traces, "rloo", "xy", 0, 64, (0, seed)) for seed in range(4)]
    assert plain.rows is not None
    for batch in dealt:
        assert batch.rows is not None
        assert batch.numbers == plain.numbers
        assert sorted(batch.rows["loss_weights"].ravel()) == sorted(plain.rows["loss_weights"].ravel())
    assert len({batch.rows["loss_weights"].tobytes() for batch in dealt if batch.rows}) > 1


def test_damaged_or_missing_traces_are_said_and_those_of_the_journal_count(tmp_path: Path) -> None:
    episodes, traces = round_of(("x", 1.0), ("x", 0.0))
    lines: list[str] = []
    folder = tmp_path / "rounds" / "2"
    files = TracedRound(tmp_path, folder, 2, lines.append)
    assert files.load(episodes) is None
    assert lines == ["round 2: traces of some episodes are missing, so it is played again"]
    Journal(folder / "traces.jsonl").append([(str(one.key), [FIRST, CUT]) for one in episodes])
    stored = files.load(episodes)
    assert stored is not None
    files.keep(episodes, stored)
    assert not (folder / "traces.jsonl").exists()
    assert files.load(episodes) == stored
    (tmp_path / "traces" / "2.npz").write_bytes(b"PK")
    assert files.load(episodes) is None
    assert "2.npz is damaged" in lines[-2]
    files.keep(episodes, stored)
    anew = [(str(one.key), [CUT, CUT]) for one in episodes]
    Journal(folder / "traces.jsonl").append(anew)
    assert files.load(episodes) == {key: traced_turns(turns) for key, turns in anew}, "played again: these count"
    assert complete(episodes, traces)
    assert not complete([episode("x", 0, 1.0, "abc")], traces)


@pytest.mark.parametrize(
    ("num_rows", "updates", "step", "width"), [(5, 2, 1, 3), (9, 2, 1, 6), (40, 4, 4, 12), (1, 3, 2, 2)]
)
def test_every_row_is_in_one_update_and_widths_are_few(num_rows: int, updates: int, step: int, width: int) -> None:
    order = round_batches(num_rows, updates, step, (0, 1))
    assert order.shape == (updates, width)
    assert sorted(order[order >= 0]) == list(range(num_rows))
