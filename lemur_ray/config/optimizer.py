"""The update rule of a run and its schedule. Knows nothing of how it is computed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lemur_ray.config.ranges import BELOW_ONE, FROM_ZERO, check_ranges


@dataclass(frozen=True)
class OptimizerConfig:
    """Update rule and schedule: linear warm-up, then cosine to a fraction of the peak at the last step."""

    name: Literal["adamw", "muon"] = "adamw"
    """muon: orthogonalised momentum on the matrices inside the blocks, adamw on everything else."""
    peak_lr: float = 3e-3
    """Learning rate at the end of the warm-up."""
    warmup_steps: int = 30
    """Steps of linear warm-up."""
    final_lr_fraction: float = 0.1
    """Learning rate of the last step as a fraction of the peak."""
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
        check_ranges(self, **dict.fromkeys(free, FROM_ZERO), final_lr_fraction=(0, 1))
        check_ranges(self, b1=BELOW_ONE, b2=BELOW_ONE, muon_momentum=BELOW_ONE)
