"""How a run is tuned: by passes over conversations instead of steps, and which matrices learn."""

from __future__ import annotations

from dataclasses import dataclass

from lemur_ray.ranges import COUNT, FROM_ZERO, check_ranges


@dataclass(frozen=True)
class TuningConfig:
    """Training by passes over a table instead of by steps: every example is visited equally often."""

    epochs: int = 0
    """Passes over the instruction table. 0: train.steps steps of train.rows_per_step rows, whatever that comes to."""
    batch_examples: int = 128
    """Conversations of one global batch, on average: rows hold several, so train.rows_per_step follows from it."""
    warmup_fraction: float = 0.03
    """Share of the steps that optimizer.warmup_steps is set to."""

    def __post_init__(self) -> None:
        check_ranges(self, epochs=FROM_ZERO, batch_examples=COUNT, warmup_fraction=(0, 1))
