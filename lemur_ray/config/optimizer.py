"""Optimizer options: the learning-rate schedule, and one value per update rule with the memory that its state needs.

Command lines, recipe hashes and checkpoints hold the flat `OptimizerConfig`; code asks its ``rule``, a tagged union. A
new optimizer is a dataclass and a case of ``rule`` here, and its mathematics in ``train/optimizer.py``. Imports no jax.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

from lemur_ray.config.ranges import BELOW_ONE, FROM_ZERO, check_ranges

_MOMENT_BYTES = 4
"""Bytes of one float32 moment of one parameter."""


@dataclass(frozen=True)
class AdamW:
    """Adam with decoupled weight decay on matrices (Loshchilov, Hutter, arXiv 1711.05101). b1, b2: decay of moments."""

    b1: float
    b2: float
    eps: float
    weight_decay: float
    trains_adapters: ClassVar[bool] = True

    def state_bytes(self, *, block_matrix: bool) -> int:
        """Bytes of optimizer state per parameter: two moments, whatever ``block_matrix`` is."""
        return 2 * _MOMENT_BYTES


@dataclass(frozen=True)
class Muon:
    """Orthogonalised momentum on the matrices inside the blocks, AdamW elsewhere (docs/decisions/015). ``lr_scale``:
    factor on the learning rate of those matrices."""

    lr_scale: float
    momentum: float
    elsewhere: AdamW
    trains_adapters: ClassVar[bool] = False

    def state_bytes(self, *, block_matrix: bool) -> int:
        """Bytes of optimizer state per parameter: one moment in a matrix of a block (``block_matrix``), else two."""
        return _MOMENT_BYTES if block_matrix else self.elsewhere.state_bytes(block_matrix=False)


UpdateRule = AdamW | Muon


@dataclass(frozen=True)
class OptimizerConfig:
    """Update rule, and schedule of the learning rate after a linear warm-up."""

    name: Literal["adamw", "muon"] = "adamw"
    """muon: orthogonalised momentum on the matrices inside the blocks, adamw on everything else."""
    peak_lr: float = 3e-3
    """Learning rate at the end of the warm-up."""
    warmup_steps: int = 30
    """Steps of linear warm-up."""
    final_lr_fraction: float = 0.1
    """Learning rate of the last step as a fraction of the peak."""
    schedule: Literal["cosine", "wsd", "constant"] = "cosine"
    """After the warm-up: cosine falls all the time; wsd stays at the peak until decay_fraction is left; constant."""
    decay_fraction: float = 0.2
    """wsd: share of train.steps, at their end, in which the rate falls to final_lr_fraction."""
    decay_shape: Literal["linear", "1-sqrt"] = "linear"
    """wsd: how the rate falls over the progress p of the decay: as 1 - p, or as 1 - sqrt(p)."""
    b1: float = 0.9
    """Decay of the first moment."""
    b2: float = 0.95
    """Decay of the second moment."""
    eps: float = 1e-5
    """Added to the root of the second moment."""
    weight_decay: float = 0.1
    """Decoupled weight decay on matrices."""
    clip_norm: float = 1.0
    """Global gradient norm above which gradients are scaled down."""
    muon_lr_scale: float = 5.0
    """Factor on the learning rate of the matrices that muon updates."""
    muon_momentum: float = 0.95
    """Momentum of muon."""

    def __post_init__(self) -> None:
        free = ("peak_lr", "warmup_steps", "eps", "weight_decay", "clip_norm", "muon_lr_scale")
        check_ranges(self, **dict.fromkeys(free, FROM_ZERO), final_lr_fraction=(0, 1), decay_fraction=(0, 1))
        check_ranges(self, b1=BELOW_ONE, b2=BELOW_ONE, muon_momentum=BELOW_ONE)

    @property
    def rule(self) -> UpdateRule:
        """The update rule named ``name``, with the options that it uses."""
        adamw = AdamW(self.b1, self.b2, self.eps, self.weight_decay)
        return adamw if self.name == "adamw" else Muon(self.muon_lr_scale, self.muon_momentum, adamw)
