"""Metrics of a run: sums since the last line, and the lines of ``metrics.jsonl``.

A line's loss is the weighted mean since the previous line. Checkpoints store the sums, so a resumed run writes exactly
the lines of an uninterrupted one. Knows nothing of jax arrays, Ray and of how a step is computed."""

import dataclasses
import json
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lemur_ray.storage.append_file import AppendFile
from lemur_ray.train.run.folder import RunFolderError


@dataclass
class Window:
    """Sums of step metrics over the ``steps`` since the last line, and totals of the run. ``loss``, ``source_loss``:
    sums over tokens, in nats; divided by ``weight`` and ``source_weight`` (trained tokens) they are means. Every field
    is plain JSON, so that checkpoints store it."""

    steps: int = 0
    loss: float = 0.0
    weight: float = 0.0
    source_loss: dict[str, float] = field(default_factory=dict)
    source_weight: dict[str, float] = field(default_factory=dict)
    skipped: list[list[int]] = field(default_factory=list)
    """Half-open row ranges of the skipped steps of this window, in the numbering of ``train.skip_rows``."""
    skips_in_a_row: int = 0
    skipped_steps: int = 0
    """Skipped steps of the whole run."""
    train_s: float = 0.0
    """Seconds of training over the whole run, all attempts."""

    def add(self, metrics: Mapping[str, Any], sources: Sequence[str], ranges: Sequence[list[int]] = ()) -> None:
        """Add one step's metrics, arrays on the host. sources: name of each source index. ranges: the step's row
        ranges, recorded if its update was skipped."""
        self.steps += 1
        if bool(metrics["skipped"]):
            self.skipped += ranges
            self.skips_in_a_row += 1
            self.skipped_steps += 1
            return
        self.skips_in_a_row = 0
        self.weight += float(metrics["weight_sum"])
        self.loss += float(metrics["loss"]) * float(metrics["weight_sum"])
        for name, loss, weight in zip(
            sources, metrics["source_loss_sum"].tolist(), metrics["source_weight_sum"].tolist(), strict=False
        ):
            if weight > 0:
                self.source_loss[name] = self.source_loss.get(name, 0.0) + loss
                self.source_weight[name] = self.source_weight.get(name, 0.0) + weight

    def values(self) -> dict[str, Any]:
        """``loss`` and ``loss/<source>`` in nats per trained token (None without one), and ``skipped_rows`` if any."""
        out: dict[str, Any] = {"loss": self.loss / self.weight if self.weight else None}
        for name in sorted(self.source_loss):
            out[f"loss/{name}"] = self.source_loss[name] / self.source_weight[name]
        if self.skipped:
            out["skipped_rows"] = self.skipped
        return out

    def cleared(self) -> "Window":
        """The next window: empty sums, same totals of the run and ``skips_in_a_row``."""
        return Window(skips_in_a_row=self.skips_in_a_row, skipped_steps=self.skipped_steps, train_s=self.train_s)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


class MetricsLog:
    """The append-only file ``metrics.jsonl`` (path or URL), at most one line per step: a step that is run again keeps
    its first line."""

    def __init__(self, path: str, check: Callable[[], None] = lambda: None) -> None:
        """Open for appending and remove an incomplete last line. check: called before writes; raises if a newer attempt
        has taken the run over. Raises RunFolderError for a damaged line, OSError."""
        self.path = path
        self._file = AppendFile(path, check)
        self.losses: dict[int, Any] = {}
        """Step -> loss of its line."""
        self.last: dict[str, Any] = {}
        """The newest line."""
        for number, line in enumerate(self._file.content.splitlines(), 1):
            record = _record(line, path, number)
            self.losses.setdefault(record["step"], record.get("loss"))
            self.last = record
        self.replayed = 0
        """Number of lines that were computed again after a restart."""
        self.differing: list[int] = []
        """Steps whose loss differed when computed again: the resume was not exact."""

    def records(self) -> list[dict[str, Any]]:
        """The lines that were there when the file was opened."""
        return [json.loads(line) for line in self._file.content.splitlines()]

    def write(self, record: Mapping[str, Any]) -> bool:
        """Append a line; for a file in a bucket it is stored in the background. If its step has a line already, only
        the losses are compared. record: has ``step`` and ``loss``. Returns whether the line was appended. Raises what
        ``check`` raises, OSError."""
        step = record["step"]
        if step in self.losses:
            self.replayed += 1
            if self.losses[step] != record["loss"]:
                self.differing.append(step)
            return False
        self.losses[step] = record["loss"]
        self._file.write((json.dumps(record, allow_nan=False) + "\n").encode())
        return True

    def flush(self) -> None:
        """Wait until every line is stored. Raises what ``check`` raises, OSError."""
        self._file.flush()

    def close(self) -> None:
        """Store every line and end the uploads. Raises OSError, and what ``check`` raises."""
        self._file.close()


def _record(line: bytes, path: str, number: int) -> dict[str, Any]:
    """Parse one line of the log. Raises RunFolderError with the number of a damaged one."""
    try:
        record = json.loads(line)
        record["step"] = int(record["step"])
    except (ValueError, KeyError, TypeError) as error:
        raise RunFolderError(
            f"{path}, line {number} is damaged ({error!r}): delete that line; a step that is run again is logged again"
        ) from error
    return dict(record)


def finite(value: Any) -> float | None:
    """A float for JSON: None for NaN and infinity."""
    number = float(value)
    return number if math.isfinite(number) else None
