"""Stages of the demo: state, progress read from the lines that a job prints, and a runner with log and display."""

import contextlib
import json
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TextIO, TypeVar

from lemur_ray.cluster.demo.head import DemoFailed, LineCallback

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
_DONE = re.compile(
    r"\bstep +(?P<s>\d+)/(?P<steps>\d+)\b|(?P<e>\d+)/(?P<tasks>\d+) done\b|(?P<p>\d+) of (?P<parts>\d+) parts\b"
)
_NUMBER = re.compile(r"\bloss [\d.]+|\b\d+ solved\b")
_RATE = re.compile(r"[\d,.]+(?: tokens)?/s\b")
_LEFT = re.compile(r"\b(?:\d+ d \d+ h|[\d:]+) left\b")


@dataclass(frozen=True)
class Progress:
    """Progress that a job prints: ``done`` of ``total`` units, and texts as printed (rate, time left, a number such as
    the loss), empty if missing."""

    done: int
    total: int
    rate: str = ""
    left: str = ""
    number: str = ""

    @property
    def share(self) -> float:
        """Share of the job that is done, 0 to 1."""
        return min(1.0, self.done / self.total) if self.total else 0.0


def plain(line: str) -> str:
    """The line without terminal escapes and blanks at its end."""
    return _ESCAPES.sub("", line).rstrip()


def of_line(line: str) -> Progress | None:
    """Progress that a line of a training, evaluation or corpus job reports; None for any other line."""
    done_of = _DONE.search(line)
    if done_of is None:
        return None
    done, total = (int(text) for text in done_of.groups() if text is not None)
    number, rate, left = (pattern.search(line, done_of.end()) for pattern in (_NUMBER, _RATE, _LEFT))
    return Progress(done, total, *(match[0] if match else "" for match in (rate, left, number)))


def result_of(line: str) -> dict[str, Any] | None:
    """The JSON object that ``line`` consists of, as jobs print it last; None for any other line."""
    if not line.startswith("{"):
        return None
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def number_of(result: Mapping[str, Any]) -> str:
    """The number shown for a job's result (episodes solved, loss or tokens) as text; empty if the result has none."""
    if isinstance(result.get("solved"), int) and "n" in result:
        missing = f", {result['missing']} missing" if result.get("missing") else ""
        return f"{result['solved']} of {result['n']} solved{missing}"
    if isinstance(result.get("loss"), float):
        return f"loss {result['loss']:.3f}"
    if isinstance(result.get("tokens"), dict):
        return f"{sum(result['tokens'].values()) / 1e6:.1f} million tokens"
    return ""


State = Literal["", "now", "done", "failed", "stopped"]
TAIL_LINES = 12
"""Maximum lines of a failed stage's output in its error."""
T = TypeVar("T")


@dataclass
class Stage:
    """One stage of the demo and its state. ``began_s``, ``ended_s``: monotonic seconds, None until the end; ``tail``:
    the last lines of its output."""

    title: str
    state: State = ""
    progress: Progress | None = None
    number: str = ""
    """The result number, once the stage has one."""
    began_s: float = 0.0
    ended_s: float | None = None
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))

    @property
    def seconds(self) -> float:
        """Seconds from the stage's start to its end, or until now if it runs."""
        if not self.state:
            return 0.0
        return (time.monotonic() if self.ended_s is None else self.ended_s) - self.began_s


Display = Callable[[Stage], object]
"""Shows the stages of the demo; called when a stage starts, progresses or ends."""


class StageRunner:
    """Runs stages, updates the display, and writes all output to the log."""

    def __init__(self, stages: Sequence[Stage], display: Display, log: TextIO) -> None:
        self._stages, self._display, self._log = {stage.title: stage for stage in stages}, display, log

    def run(self, title: str, work: Callable[[LineCallback], T]) -> T:
        """Run a stage: call ``work`` with a function that takes the lines of its output, and return its result. Raises
        the work's errors; a DemoFailed includes the end of the output."""
        stage = self._stages[title]
        self._log.write(f"=== {title}, {time.strftime('%Y-%m-%d %H:%M:%S')}\n")
        with self._shown(stage):
            try:
                return work(lambda line: self._receive(stage, line))
            except DemoFailed as error:
                self._log.write(f"{error}\n")
                output = "".join(f"\n  | {line}" for line in stage.tail)
                raise DemoFailed(
                    f"{title} failed: {error}" + (f"\nthe end of its output:{output}" if output else "")
                ) from None

    @contextlib.contextmanager
    def _shown(self, stage: Stage) -> Iterator[None]:
        stage.state, stage.began_s = "now", time.monotonic()
        self._display(stage)
        state: State = "failed"
        try:
            yield
            state = "done"
        except KeyboardInterrupt:
            state = "stopped"
            raise
        finally:
            stage.state, stage.ended_s = state, time.monotonic()
            self._display(stage)

    def _receive(self, stage: Stage, line: str) -> None:
        line = plain(line)
        self._log.write(f"{line}\n")
        if stage.state != "now":  # a server prints more after its first answer
            return
        if line.strip():
            stage.tail.append(line)
        if (result := result_of(line)) is not None:
            stage.number = number_of(result)
        elif (progress := of_line(line)) is not None:
            stage.progress = progress
            self._display(stage)
