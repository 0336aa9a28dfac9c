"""Names of a run's checkpoints in a bucket: each attempt writes to folders of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import orbax.checkpoint as ocp
from etils import epath

from lemur_ray.weights.checkpoints import checkpoint_name


class AttemptNames(ocp.path.step.NameFormat[ocp.path.step.Metadata]):
    """Names for orbax: step and attempt, so no two attempts share one."""

    def __init__(self, paths: dict[int, str], attempt: int, check: Callable[[], object]) -> None:
        """paths: URL of each known checkpoint by step. check: called before a checkpoint is read or removed."""
        self._paths, self._attempt, self._check = paths, attempt, check

    def build_name(self, step: int) -> str:
        return checkpoint_name(step, self._attempt)

    def find_all(self, base_path: Any) -> Iterator[ocp.path.step.Metadata]:
        return iter([ocp.path.step.Metadata(step, epath.Path(path)) for step, path in sorted(self._paths.items())])

    def find_step(self, base_path: Any, step: int) -> ocp.path.step.Metadata:
        self._check()
        if step not in self._paths:
            raise ValueError(f"no checkpoint of step {step} in {base_path}")
        return ocp.path.step.Metadata(step, epath.Path(self._paths[step]))
