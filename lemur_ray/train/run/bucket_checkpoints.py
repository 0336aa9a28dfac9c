"""Checkpoints of a run in a bucket, for orbax: each attempt writes to folders of its own and commits them with a
marker, which only the newest attempt can create."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import orbax.checkpoint as ocp
from etils import epath

from lemur_ray.storage.file_system import COMMIT_MARKER
from lemur_ray.train.run.fence import Fence
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


def fenced_commit(fence: Fence) -> type[ocp.path.atomicity.CommitFileTemporaryPath]:
    """A ``temporary_path_class`` for ``CheckpointManagerOptions`` of folders in ``gs://`` that commits with ``fence``.
    orbax's own class writes the marker unconditionally: a worker that was suspended after the fence was checked could
    commit a checkpoint whose arrays a newer attempt has put aside."""

    class FencedPath(ocp.path.atomicity.CommitFileTemporaryPath):
        async def finalize(self) -> None:
            """Write the marker, without orbax's time of the commit, which nothing reads. Raises Superseded, OSError."""
            if self._checkpoint_metadata_store:
                await asyncio.to_thread(self._checkpoint_metadata_store.wait_until_finished)
            await asyncio.to_thread(fence.mark, f"{self._final_path}/{COMMIT_MARKER}")

    return FencedPath
