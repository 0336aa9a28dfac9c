"""Traces of a round's episodes on disk: a journal while it is played, then one file, ``traces/<round>.npz``.

The journal is written before the ledger, so an episode in the ledger has a trace; it is JSON lines, synced, and an
incomplete last line counts as absent. Traces that are damaged or missing cost no result: the round is played again, by
the same weights with the same seeds. Of each prompt only the ids that follow on the ids before are stored."""

import contextlib
import io
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lemur_ray.agents.messages import Trace
from lemur_ray.agents.trajectory import Episode
from lemur_ray.rollout.attempt import Attempt, EpisodeSpec
from lemur_ray.rollout.threads import Pool
from lemur_ray.train.run.folder import write_file


class TracesDamaged(Exception):
    """Raised if a file of traces cannot be read; the message says which and why."""


class TracedTurn(NamedTuple):
    """The token ids of one turn. The ids of a sequence are those of its turns, each prompt before its ``drawn`` ids,
    whose log-probabilities are ``logprobs``. ``state``: digest of the environment's state before it, or empty."""

    begins: bool
    """Whether the prompt does not begin with all ids of the turns before: another sequence begins here"""
    prompt: tuple[int, ...]
    """Ids of the prompt; if it goes on from the turns before, only the new ones"""
    drawn: tuple[int, ...]
    logprobs: tuple[float, ...]
    state: str


Traces = dict[str, tuple[TracedTurn, ...]]
"""By key of the episode."""


def traced_turns(traces: Sequence[Trace | None]) -> tuple[TracedTurn, ...]:
    """The turns of an episode, whose prompts are cut to the ids that do not repeat the turns before. A turn without a
    trace, for example one whose request was refused, has no ids. traces: one per turn, None if it has none."""
    turns, before = list[TracedTurn](), ()  # type: list[TracedTurn], tuple[int, ...]
    for one in traces:
        if one is None:
            turns.append(TracedTurn(True, (), (), (), ""))
            before = ()
            continue
        goes_on = bool(before) and one.prompt[: len(before)] == before
        new = one.prompt[len(before) :] if goes_on else one.prompt
        turns.append(TracedTurn(not goes_on, new, one.drawn, one.logprobs, one.state))
        before = (*one.prompt, *one.drawn)
    return tuple(turns)


class Journal:
    """The file of traces of a round that is being played, in JSON lines."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def append(self, ended: Sequence[tuple[str, Sequence[Trace | None]]]) -> None:
        """Store the traces of episodes by their keys; they are on the disk afterwards. ended: (key, traces of the
        turns) of each episode."""
        lines = [json.dumps([key, [list(turn) for turn in traced_turns(traces)]]) for key, traces in ended]
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a+b") as file:
            if file.tell() and os.pread(file.fileno(), 1, file.tell() - 1) != b"\n":
                file.write(b"\n")  # after a line that a kill cut short
            file.write("".join(f"{line}\n" for line in lines).encode())
            file.flush()
            os.fsync(file.fileno())

    def read(self) -> Traces:
        """The traces of all complete lines; {} without a file. Of several with one key the last counts: an attempt that
        a kill kept out of the ledger is played again."""
        traces: Traces = {}
        for line in self.path.read_text().splitlines() if self.path.exists() else ():
            try:
                key, turns = json.loads(line)
                traces[key] = tuple(TracedTurn(b, tuple(p), tuple(d), tuple(v), s) for b, p, d, v, s in turns)
            except (TypeError, ValueError):
                continue
        return traces


class TracedPool:
    """A pool that stores the traces of scored attempts in a journal before ``collect`` returns them without traces."""

    def __init__(self, pool: Pool, journal: Journal) -> None:
        self._pool, self._journal = pool, journal
        self.expect, self.submit, self.pressure, self.close = pool.expect, pool.submit, pool.pressure, pool.close

    @property
    def capacity(self) -> int:
        return self._pool.capacity

    @property
    def num_isolated(self) -> int:
        return self._pool.num_isolated

    def collect(self, timeout_s: float) -> list[tuple[EpisodeSpec, Attempt]]:
        ended = self._pool.collect(timeout_s)
        scored = [
            (str(spec.key), attempt.traces or (None,) * len(attempt.trajectory.steps))
            for spec, attempt in ended
            if attempt.outcome.scored
        ]  # fmt: skip
        if scored:
            self._journal.append(scored)
        return [(spec, replace(attempt, traces=())) for spec, attempt in ended]


def save_traces(path: Path, traces: Traces, keys: Sequence[str]) -> None:
    """Write the traces of the episodes ``keys``, in this order, to one ``.npz`` file; equal traces give equal bytes.
    Raises KeyError for an episode without traces."""
    turns = [turn for key in keys for turn in traces[key]]
    arrays = {
        "episodes": np.array(keys, np.str_),
        "num_turns": np.array([len(traces[key]) for key in keys], np.int32),
        "begins": np.array([turn.begins for turn in turns], bool),
        "states": np.array([turn.state for turn in turns], np.str_),
        "num_prompt": np.array([len(turn.prompt) for turn in turns], np.int32),
        "num_drawn": np.array([len(turn.drawn) for turn in turns], np.int32),
        "prompt": np.array([token for turn in turns for token in turn.prompt], np.int32),
        "drawn": np.array([token for turn in turns for token in turn.drawn], np.int32),
        "logprobs": np.array([value for turn in turns for value in turn.logprobs], np.float32),
    }
    content = io.BytesIO()
    np.savez(content, allow_pickle=False, **arrays)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(str(path), content.getvalue())


def load_traces(path: Path) -> Traces:
    """The inverse of ``save_traces``. Raises TracesDamaged if the file cannot be read, FileNotFoundError."""
    content = path.read_bytes()
    try:
        with np.load(io.BytesIO(content), allow_pickle=False) as file:
            arrays: Mapping[str, np.ndarray] = {name: file[name] for name in file.files}
        prompts, drawn = (_parts(arrays[name], arrays[f"num_{name}"]) for name in ("prompt", "drawn"))
        logprobs = _parts(arrays["logprobs"], arrays["num_drawn"])
        columns = arrays["begins"].tolist(), prompts, drawn, logprobs, arrays["states"].tolist()
        turns = [TracedTurn(*values) for values in zip(*columns, strict=True)]
        ends = list(accumulate(arrays["num_turns"].tolist()))
        keys, begins = arrays["episodes"].tolist(), [0, *ends]
        return {key: tuple(turns[first:end]) for key, first, end in zip(keys, begins, ends, strict=False)}
    except Exception as error:  # a cut archive raises errors of zipfile, zlib, struct and numpy
        raise TracesDamaged(f"{path} is damaged ({type(error).__name__}: {str(error)[:100]})") from error


def _parts(values: np.ndarray, lengths: np.ndarray) -> list[tuple[Any, ...]]:
    ends = np.cumsum(lengths)
    if len(values) != (int(ends[-1]) if len(ends) else 0):
        raise ValueError(f"{len(values)} values for turns of {int(lengths.sum())}")
    return [tuple(values[end - size : end].tolist()) for end, size in zip(ends, lengths, strict=True)]


class TracedRound:
    """Files of the traces of round ``number`` of the run ``out``; ``folder`` has its episodes. say: reports a line."""

    def __init__(self, out: Path, folder: Path, number: int, say: Callable[[str], None]) -> None:
        self._file, self._folder, self._number, self._say = out / "traces" / f"{number}.npz", folder, number, say
        self._journal = Journal(folder / "traces.jsonl")

    @contextlib.contextmanager
    def within(self, pool: AbstractContextManager[Pool]) -> Iterator[Pool]:
        """Context with the pool, whose episodes' traces are collected in a journal."""
        with pool as inner:
            yield TracedPool(inner, self._journal)

    def load(self, episodes: Sequence[Episode]) -> Traces | None:
        """The traces of these episodes; None, with a message, if they are not all there."""
        try:
            traces = load_traces(self._file)
        except (FileNotFoundError, TracesDamaged) as error:
            traces = {}
            if isinstance(error, TracesDamaged):
                self._say(str(error))
        traces = {**traces, **self._journal.read()}  # a journal is newer: it goes once the file is written
        if complete(episodes, traces):
            return traces
        self._say(f"round {self._number}: traces of some episodes are missing, so it is played again")
        return None

    def keep(self, episodes: Sequence[Episode], traces: Traces) -> None:
        """Write the traces of the scored episodes, in their order, to the round's file, and remove the journal."""
        save_traces(self._file, traces, [str(one.key) for one in episodes if one.outcome.scored])
        self._journal.path.unlink(missing_ok=True)

    def discard(self) -> None:
        """Rename the folder of episodes to NAME.without-traces, in place of an earlier one; remove the traces."""
        self._file.unlink(missing_ok=True)
        aside = self._folder.with_name(f"{self._folder.name}.without-traces")
        shutil.rmtree(aside, ignore_errors=True)
        self._folder.rename(aside)


def complete(episodes: Sequence[Episode], traces: Traces) -> bool:
    """Whether every scored episode has a trace of each of its turns; True without episodes."""
    return all(
        len(traces.get(str(episode.key), ())) == len(episode.trajectory.steps)
        and str(episode.key) in traces
        for episode in episodes
        if episode.outcome.scored
    )  # fmt: skip
