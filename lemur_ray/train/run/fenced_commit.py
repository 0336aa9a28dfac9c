"""How orbax commits a checkpoint in a bucket: by a marker that only the newest attempt of the run can create."""

from __future__ import annotations

import asyncio

import orbax.checkpoint as ocp

from lemur_ray.storage.file_system import COMMIT_MARKER
from lemur_ray.train.run.fence import Fence


def fenced_commit(fence: Fence) -> type[ocp.path.atomicity.CommitFileTemporaryPath]:
    """A class of folders in ``gs://`` for ``CheckpointManagerOptions``, with markers of this fence. orbax's own class
    writes them whatever happened since the fence was checked: a worker that stood still in between committed a
    checkpoint whose arrays the newer attempt had put aside."""

    class FencedPath(ocp.path.atomicity.CommitFileTemporaryPath):
        async def finalize(self) -> None:
            """Write the marker; orbax's time of the commit, which nothing reads, is not. Raises Superseded, OSError."""
            if self._checkpoint_metadata_store:
                await asyncio.to_thread(self._checkpoint_metadata_store.wait_until_finished)
            await asyncio.to_thread(fence.mark, f"{self._final_path}/{COMMIT_MARKER}")

    return FencedPath
