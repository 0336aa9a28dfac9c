"""Commits orbax checkpoints in a bucket with a marker that only the newest attempt of the run can create."""

from __future__ import annotations

import asyncio

import orbax.checkpoint as ocp

from lemur_ray.storage.file_system import COMMIT_MARKER
from lemur_ray.train.run.fence import Fence


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
