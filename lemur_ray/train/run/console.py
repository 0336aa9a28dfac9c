"""Console output of a run: lines at the start, one every few seconds, one per evaluation.

Plain lines, because they pass through Ray's log files. All lines and the numbers of every source are in
``metrics.jsonl``. Knows only metrics lines and a clock."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lemur_ray.config import Recipe
from lemur_ray.host.durations import duration
from lemur_ray.model.flops import CONVENTIONS
from lemur_ray.model.llama import num_params
from lemur_ray.train.evaluate import BY_KIND, BY_SOURCE

MOST_SOURCES = 3
"""Maximum number of sources whose losses are shown on a progress line."""
EVERY_S = 5.0
"""Minimum seconds between two progress lines."""
_BITS = "/bits_per_byte"


class Console:
    """Logs metrics lines by ``say``: the first, the last, those with an evaluation, and otherwise one every 5 s.
    steps: number of steps of the run. now: clock in seconds."""

    def __init__(self, say: Callable[[str], None], steps: int, now: Callable[[], float] = time.monotonic) -> None:
        self._say, self._steps, self._now = say, steps, now
        self._logged_at: float | None = None

    def tell(self, record: Mapping[str, Any], checkpoint: int | None = None) -> None:
        """Log a metrics line if one is due. checkpoint: step of the last checkpoint begun."""
        lines, now = progress_lines(record, self._steps, checkpoint), self._now()
        waited = self._logged_at is None or now - self._logged_at >= EVERY_S
        if waited or record["step"] == self._steps or len(lines) > 1:
            self._logged_at = now
            for line in lines:
                self._say(line)


def opening_lines(recipe: Recipe, mesh: Mapping[str, int], sources: Sequence[str], workers: int, kind: str,
                  peak_known: bool) -> list[str]:  # fmt: skip
    """First log lines of a run: model, sources, devices. mesh: axis -> size. workers: their number. kind: jax's name of
    the device type. peak_known: whether MFU can be computed for that type."""
    shape = " x ".join(f"{name} {size}" for name, size in mesh.items())
    conventions = f"MFU in the conventions {' and '.join(CONVENTIONS)}"
    return [
        f"{recipe.name} {recipe.hash}: {num_params(recipe.model):,} parameters, {recipe.train.steps:,} steps of "
        f"{recipe.tokens_per_step:,} tokens",
        f"sources: {', '.join(sources)}",
        f"{workers} worker(s), mesh {shape} of {kind!r}; "
        + (conventions if peak_known else f"no MFU: the peak FLOP/s of {kind!r} is not known"),
    ]


def progress_lines(record: Mapping[str, Any], steps: int, checkpoint: int | None = None) -> list[str]:
    """A line of ``metrics.jsonl`` as text for a person: step, loss, speed, time left, last checkpoint; and a second
    line if it has an evaluation. steps: of the run. checkpoint: step of the last checkpoint, None: not shown."""
    step, loss = record["step"], record["loss"]
    by_source = {key.removeprefix("loss/"): value for key, value in record.items() if key.startswith("loss/")}
    speed, left, step_s = record["tokens_per_s"], record["eta_s"], record.get("step_s")
    parts = [
        f"step {step:>{len(str(steps))}}/{steps}",
        f"{step / steps:4.0%}",
        f"loss {loss:.4f}" if loss is not None else "loss - (all skipped)",
        f"[{'  '.join(f'{name} {value:.3f}' for name, value in by_source.items())}]"
        if 1 <= len(by_source) <= MOST_SOURCES
        else "",
        f"{speed:,.0f} tokens/s" if speed else "",
        f"{step_s:.3g} s/step" if step_s else "",
        f"MFU {record['mfu_6n']:.1%} 6n, {record['mfu_6n_causal']:.1%} 6n_causal" if record.get("mfu_6n") else "",
        f"{duration(left)} left" if left is not None else "",
        f"checkpoint {checkpoint}" if checkpoint is not None else "",
        f"SKIPPED rows {record['skipped_rows']}" if record.get("skipped_rows") else "",
    ]
    lines = ["  ".join(part for part in parts if part)]
    held_out = _bits(record, BY_KIND)
    if held_out:
        of_sources = _bits(record, BY_SOURCE)
        lines.append(
            f"held out, bits per byte: {', '.join(held_out)}" + (f"  ({', '.join(of_sources)})" if of_sources else "")
        )
    return lines


def _bits(record: Mapping[str, Any], prefix: str) -> list[str]:
    return [
        f"{key.removeprefix(prefix).removesuffix(_BITS)} {'-' if value is None else format(value, '.3f')}"
        for key, value in record.items()
        if key.startswith(prefix) and key.endswith(_BITS)
    ]
