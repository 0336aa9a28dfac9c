"""The traces of one round in a run folder: collected while it is played, stored when it is complete, read for training.

Traces that are damaged or missing cost no result: the round is played again, by the same weights with the same seeds.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from lemur_ray.agents.trajectory import Episode
from lemur_ray.improve.groups import complete
from lemur_ray.improve.traces import Journal, TracedPool, Traces, TracesDamaged, load_traces, save_traces
from lemur_ray.rollout.threads import Pool


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
