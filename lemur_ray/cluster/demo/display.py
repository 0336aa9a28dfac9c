"""Display of the demo: one screen on a terminal, else a few plain lines. Knows stages, not their work."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TextIO

from lemur_ray.cluster.demo.stages import Display, Stage
from lemur_ray.host.durations import duration

if TYPE_CHECKING:
    from rich.table import Table

MARKS = (1 / 3, 2 / 3)
"""Shares of a stage at which a line is printed if there is no terminal: 11 stages stay below 41 lines."""
_COLOURS = {"": "dim", "now": "bold cyan", "done": "green", "failed": "bold red", "stopped": "yellow"}


@contextlib.contextmanager
def open_display(stages: Sequence[Stage], heading: str, stream: TextIO) -> Iterator[Display]:
    """Context manager with a display of the demo's stages on ``stream``: one live screen on a terminal, else plain
    lines. ``heading``: text above the stages."""
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        print(heading, file=stream, flush=True)
        yield PlainLines(stream).update
        return
    from rich.console import Console, Group
    from rich.live import Live
    from rich.text import Text

    live = Live(
        get_renderable=lambda: Group(Text(heading), table(stages)), console=Console(file=stream, highlight=False),
        refresh_per_second=2,
        redirect_stdout=False, redirect_stderr=False,  # the jobs write to a log and not to this stream
    )  # fmt: skip
    with live:
        yield lambda stage: None  # rich redraws all stages twice a second


class PlainLines:
    """Display without a terminal: a line when a stage begins, at each of ``MARKS`` and when it ends."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._marks: dict[str, int] = {}

    def update(self, stage: Stage) -> None:
        if stage.state != "now":
            number = f": {stage.number}" if stage.number else ""
            self._print(f"{stage.title} {stage.state} after {duration(stage.seconds)}{number}")
        elif stage.progress is None:
            self._print(f"{stage.title} ...")
        else:
            passed = sum(stage.progress.share >= mark for mark in MARKS)
            if passed > self._marks.get(stage.title, 0) and stage.progress.share < 1:
                self._marks[stage.title] = passed
                self._print(f"{stage.title} {', '.join(filter(None, progress_texts(stage)))}")

    def _print(self, line: str) -> None:
        print(line, file=self._stream, flush=True)


def table(stages: Sequence[Stage]) -> Table:
    """The live screen's table (rich), one row per stage: state, title, time, share, rate, time left, number."""
    from rich.table import Table

    rows = Table.grid(padding=(0, 1))
    for justify in ("left", "left", "right", "right", "right", "right", "left"):
        rows.add_column(justify=justify, no_wrap=True)
    for stage in stages:
        texts = progress_texts(stage) if stage.state == "now" else ("", "", "", stage.number)
        share, rate, left, number = texts
        passed = duration(stage.seconds) if stage.state else ""
        rows.add_row(f"{stage.state:7}", f"{stage.title:18}", f"{passed:>6}", f"{share:>4}", rate, left, number,
                     style=_COLOURS[stage.state])  # fmt: skip
    return rows


def progress_texts(stage: Stage) -> tuple[str, str, str, str]:
    """(share done, rate, time left, a number such as the loss) of a stage as texts; all empty without progress."""
    progress = stage.progress
    if progress is None:
        return "", "", "", ""
    return f"{progress.share:.0%}", progress.rate, progress.left, progress.number
