"""How a run is tuned: by passes over conversations instead of steps, and which matrices learn."""

from __future__ import annotations

from dataclasses import dataclass

from lemur_ray.config.ranges import COUNT, FROM_ZERO, check_ranges


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


MATRICES = ("wq", "wk", "wv", "wo", "gate", "up", "down")


@dataclass(frozen=True)
class LoraConfig:
    """Tuning by low-rank adapters: the base stays as it is, only two thin matrices beside each of its own learn."""

    rank: int = 0
    """Inner width of the adapters. 0: none, all parameters learn."""
    alpha: float = 16.0
    """The adapters' product is scaled by alpha / rank."""
    matrices: tuple[str, ...] = MATRICES
    """Matrices of a block that get adapters: of wq wk wv wo gate up down."""
    also: tuple[str, ...] = ()
    """Leaves that learn whole besides, of embed and head: new chat tokens have no meaning without them."""

    def __post_init__(self) -> None:
        check_ranges(self, rank=FROM_ZERO, alpha=FROM_ZERO)
        for found, known in ((self.matrices, MATRICES), (self.also, ("embed", "head"))):
            if unknown := [name for name in found if name not in known]:
                raise ValueError(f"lora: {', '.join(unknown)}: expected some of {', '.join(known)}")
        if self.rank and not self.matrices:
            raise ValueError(f"lora: no matrices: expected some of {', '.join(MATRICES)}")
