"""Instruction tuning options: passes over conversations instead of steps, and LoRA adapters."""

from dataclasses import dataclass

from lemur_ray.config.ranges import COUNT, FROM_ZERO, check_ranges


@dataclass(frozen=True)
class TuningConfig:
    """Training by passes over an instruction table instead of by steps; every example is visited equally often."""

    epochs: int = 0
    """Passes over the instruction table. 0: train.steps steps of train.rows_per_step rows."""
    batch_examples: int = 128
    """Average conversations of one global batch; determines train.rows_per_step, as rows hold several."""
    warmup_fraction: float = 0.03
    """Share of the steps that optimizer.warmup_steps is set to."""

    def __post_init__(self) -> None:
        check_ranges(self, epochs=FROM_ZERO, batch_examples=COUNT, warmup_fraction=(0, 1))


MATRICES = ("wq", "wk", "wv", "wo", "gate", "up", "down")
"""Matrices of a block that can have adapters."""


@dataclass(frozen=True)
class LoraConfig:
    """Tuning by low-rank adapters: the base is frozen, two thin matrices per adapted matrix are trained."""

    rank: int = 0
    """Inner width of the adapters. 0: no adapters, all parameters are trained."""
    alpha: float = 16.0
    """The adapters' product is scaled by alpha / rank."""
    matrices: tuple[str, ...] = MATRICES
    """Matrices of a block that get adapters: of wq wk wv wo gate up down."""
    also: tuple[str, ...] = ()
    """Fully trained leaves, of embed and head: new chat tokens need them."""

    def __post_init__(self) -> None:
        check_ranges(self, rank=FROM_ZERO, alpha=FROM_ZERO)
        for names, known in ((self.matrices, MATRICES), (self.also, ("embed", "head"))):
            if unknown := [name for name in names if name not in known]:
                raise ValueError(f"lora: {', '.join(unknown)}: expected some of {', '.join(known)}")
        if self.rank and not self.matrices:
            raise ValueError(f"lora: no matrices: expected some of {', '.join(MATRICES)}")
