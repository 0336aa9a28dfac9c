"""The live line of a run: done, solved, in flight, rate, time left, tokens. Knows no pool."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TextIO

from lemur_ray.agents.trajectory import Episode, Outcome


class Progress:
    """Writes to ``stream``: rewriting one line on a terminal, else a new line every ``every_s`` seconds."""

    def __init__(self, stream: TextIO, clock: Callable[[], float], *, label: str = "", every_s: float = 10.0) -> None:
        self._stream = stream
        self._clock = clock
        self._label = label
        self._live = stream.isatty()
        self._every_s = 0.5 if self._live else every_s
        self._total = self._done = self._solved = self._missing = self._retries = self._tokens = self._resumed = 0
        self._started = self._shown = clock()

    def begin(self, total: int, finished: Sequence[Episode]) -> None:
        """A run of ``total`` episodes begins; ``finished`` of them are in the ledger already."""
        self._started = self._clock()
        self._shown = float("-inf")
        self._total, self._resumed = total, len(finished)
        self.ended(*finished)
        if finished:
            self._write(f"resuming: {len(finished)} of {total} episodes are in the ledger and are not played again\n")

    def ended(self, *episodes: Episode) -> None:
        for episode in episodes:
            self._done += 1
            self._solved += episode.outcome is Outcome.SOLVED
            self._missing += not episode.outcome.scored
            self._tokens += sum(s.prompt_tokens + s.completion_tokens for s in episode.trajectory.steps)

    def retried(self, outcome: Outcome) -> None:
        self._retries += 1

    def show(self, in_flight: int, waiting: int) -> None:
        """Write the line if it is time for it."""
        if self._clock() - self._shown < self._every_s:
            return
        self._shown = self._clock()
        line = self.line(in_flight, waiting)
        self._write(f"\r\x1b[K{line}" if self._live else f"{line}\n")

    def finish(self) -> None:
        self._write((f"\r\x1b[K{self.line(0, 0)}" if self._live else self.line(0, 0)) + "\n")

    def line(self, in_flight: int, waiting: int) -> str:
        """For example: ``alfworld/text 37/120 done, 21 solved, 32 in flight, 1.9/s, 0:43 left, 312k tokens``."""
        rate = (self._done - self._resumed) / max(self._clock() - self._started, 1e-9)
        parts = [f"{self._done}/{self._total} done", f"{self._solved} solved", f"{in_flight} in flight"]
        parts += [f"{self._missing} missing"] if self._missing else []
        parts += [f"{self._retries} retries"] if self._retries else []
        parts += [f"{waiting} wait for a retry"] if waiting else []
        parts += [f"{rate:.2f}/s"]
        if rate > 0 and self._done < self._total:
            left = round((self._total - self._done) / rate)
            parts += [f"{left // 60}:{left % 60:02d} left"]
        parts += [f"{self._tokens / 1000:.0f}k tokens"]
        return f"{self._label} {', '.join(parts)}".strip()

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
