"""Monitoring options: metrics sinks and profiler traces. They change no result and are not in the recipe hash."""

from dataclasses import dataclass
from typing import Literal

from lemur_ray.config.ranges import COUNT, FROM_ZERO, check_ranges


@dataclass(frozen=True)
class WatchConfig:
    """Metrics sinks in addition to metrics.jsonl, and profiler traces."""

    sinks: tuple[Literal["tensorboard", "wandb", "mlflow"], ...] = ()
    """Additional sinks: tensorboard (event files in the run folder), wandb (Weights & Biases), mlflow."""
    wandb_project: str = "lemur-ray"
    """Project of the run at Weights & Biases."""
    wandb_mode: Literal["online", "offline"] = "online"
    """offline: nothing is sent; `wandb sync` sends the folder later."""
    profile_first_step: int = 0
    """First step of a profiler trace; 0: none, unless a file named profile appears in the run folder."""
    profile_steps: int = 5
    """Steps of one profiler trace."""
    profile_ranks: Literal["first", "all"] = "first"
    """Which workers write a trace."""

    def __post_init__(self) -> None:
        check_ranges(self, profile_first_step=FROM_ZERO, profile_steps=COUNT)
