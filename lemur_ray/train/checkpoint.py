"""Checkpoints of a run: orbax, written in the background, committed by a rename, restored onto any mesh.

Each is a Composite of the train state and one JSON item with the place in the plan, so both are there or neither is.
Knows nothing of Ray and of how a step is computed.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import re
import shutil
import time
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp

from lemur_ray.host.full_disk import is_full_disk
from lemur_ray.storage.health_probe import run_while_reachable
from lemur_ray.train.run.failures import for_a_person, passes
from lemur_ray.train.run.fence import Fence
from lemur_ray.train.run.folder import TrainingStopped
from lemur_ray.weights.checkpoints import Commit, commits, committed_once, put_aside

_log = logging.getLogger(__name__)


CHUNK_BYTES = 2**25
"""Largest piece in which an array is stored."""


class UnreadableCheckpoint(Exception):
    """A committed checkpoint cannot be read; the message says where it went."""


class SaveInterrupted(Exception):
    """A checkpoint was not written because another worker is gone, or for another passing reason: start again."""


class SaveFailed(TrainingStopped):
    """A checkpoint could not be written; the message says which one is still good and what to do."""


class Checkpoints:
    """The ``checkpoints`` folder of one run, for writing. Every process of a run makes one and calls it alike."""

    def __init__(
        self, folder: str, *, keep: int, keep_every: int = 0, primary: bool = True, fence: Fence | None = None
    ) -> None:
        """keep: newest checkpoints kept. keep_every: those of every so many steps are never removed (0: none).
        primary: this process may tidy the folder (rank 0). fence: asked before every commit, in a bucket."""
        self.folder, self._fence = folder, fence
        self._primary = primary
        self._in_a_group = jax.distributed.is_initialized()
        """Others can end a save: workers by going away, Ray by ending jax.distributed of a group that it resizes."""
        self.ignored = self._tidy() if primary else []
        """One line for every torn or uncommitted checkpoint that was found and left out."""
        if "://" not in folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
        options = ocp.CheckpointManagerOptions(
            max_to_keep=keep,
            keep_period=keep_every or None,
            enable_async_checkpointing=True,
            save_root_metadata=False,
        )
        self._manager = run_while_reachable(folder, lambda: ocp.CheckpointManager(folder, options=options))
        self._unreadable: set[int] = set()
        self._saving: int | None = None
        self._timed_out = False
        """The save before was given up for time; a second one in a row ends the run."""
        self.saved_at = time.monotonic()
        """Clock (``time.monotonic``) of the last save call."""

    def _tidy(self) -> list[str]:
        """Put aside what is torn, remove what was never committed; neither may stand in the way of a later save."""
        _, ignored = commits(self.folder)
        for line in ignored:
            name = line.removeprefix(f"{self.folder}/").split(":")[0]
            if name.isdigit():
                put_aside(f"{self.folder}/{name}")
            elif ".orbax-checkpoint-tmp" in name and "://" not in self.folder:
                shutil.rmtree(f"{self.folder}/{name}", ignore_errors=True)
        return [line for line in ignored if ".torn" not in line]

    def newest(self) -> Commit | None:
        """The newest committed checkpoint that this object has not failed to read."""
        found = [commit for commit in commits(self.folder)[0] if commit.step not in self._unreadable]
        return found[0] if found else None

    def at(self, step: int) -> Commit:
        """The committed checkpoint of that step. Raises UnreadableCheckpoint where there is none."""
        for commit in commits(self.folder)[0]:
            if commit.step == step:
                return commit
        raise UnreadableCheckpoint(
            f"checkpoint {self.folder}/{step} is not there, though rank 0 sees it: shared storage?"
        )

    def restore(self, step: int, abstract: Any) -> Any:
        """The train state of a committed step, laid out as the abstract tree says (shapes, dtypes, shardings).

        Raises:
            UnreadableCheckpoint: it is damaged. It is first put aside as ``<step>.torn``, so that the next attempt
                takes the one before; by any worker, because only those whose part is damaged see it.
            TrainingStopped: it is whole, but of other arrays than the abstract tree.
            OSError, MemoryError and others: it could not be read just now (the storage, the memory, another worker
                that is gone), which says nothing about it.
        """
        path = f"{self.folder}/{step}"
        try:
            asked = ocp.args.Composite(state=ocp.args.StandardRestore(abstract))
            out = run_while_reachable(path, lambda: self._manager.restore(step, args=asked))
        except Exception as error:  # a file that ends too soon comes as a bare Exception from tensorstore's reader
            if _of_other_arrays(error):
                raise TrainingStopped(
                    f"checkpoint {path} holds other arrays than this program trains ({_short(error)}): resume it with "
                    "the version that wrote it, or choose another --out"
                ) from error
            if not _of_the_data(error):
                raise
            self._unreadable.add(step)
            moved = ""
            with contextlib.suppress(FileNotFoundError):  # nothing of it may be left, or another worker was first
                moved = f"; put aside as {put_aside(path)}"
            if not self._in_a_group:  # which starts anew
                self._manager.reload()
            reason = error.__cause__ or error  # orbax says where, tensorstore below it says what
            raise UnreadableCheckpoint(f"checkpoint {path} cannot be read ({_short(reason)}){moved}") from error
        return out["state"]

    def damaged(self) -> list[str]:
        """Checkpoints that were committed once and put aside because they could not be read, in this start or before.

        One that was never finished does not count: what has no end is no reason not to begin.
        """
        return committed_once(self.folder)

    def save(self, step: int, state: Any, plan: dict[str, Any]) -> None:
        """Begin to save; returns once the arrays are copied. An earlier save that failed is raised here."""
        self.wait()
        self._saving, self.saved_at = step, time.monotonic()
        with self._explained(step):
            if self._fence is not None:
                self._fence.check()
                plan = {**plan, "attempt": self._fence.number}
            asked = ocp.args.Composite(
                state=ocp.args.StandardSave(state, save_args=_layers_apart(state)), plan=ocp.args.JsonSave(plan)
            )
            run_while_reachable(self.folder, lambda: self._manager.save(step, args=asked, force=True))

    def poll(self) -> None:
        """Raise the failure of a save in the background, if there is one; costs nothing."""
        if self._saving is not None:
            with self._explained(self._saving):
                self._manager.check_for_errors()

    def wait(self) -> None:
        """Wait until the save under way is committed, or raise why it is not."""
        if self._saving is not None:
            with self._explained(self._saving):
                run_while_reachable(self.folder, self._manager.wait_until_finished)
                self._manager.check_for_errors()
                self._timed_out = False
            self._saving = None

    def __enter__(self) -> Checkpoints:
        return self

    def __exit__(self, *error: object) -> None:
        """Let a save under way finish and let go of threads; a failure of that save is not raised here."""
        with contextlib.suppress(SaveFailed, SaveInterrupted):
            self.wait()
        self._manager.close()

    @contextlib.contextmanager
    def _explained(self, step: int) -> Any:
        try:
            yield
            return
        except (OSError, ValueError, RuntimeError) as error:
            self._saving = None
            if isinstance(error, TimeoutError) and not self._timed_out:
                # orbax takes its deadlines from the wall clock: one that jumps ahead ends a sound save.
                self._timed_out = True
                _log.warning("checkpoint %d was not saved in time (%s): trying again at the next", step, _short(error))
                return
            away = "://" in self.folder and passes(_short(error))
            if (self._in_a_group or away) and not _of_the_storage(error):
                # A save that loses another worker or the coordinator sees a broken call, and one that meets a bucket
                # which is away an error of its client: no reason to end the run.
                raise SaveInterrupted(f"checkpoint {step} was interrupted: {_short(error)}") from error
            try:
                good = self.newest()
                kept = f"checkpoint {good.step} is intact" if good else "there is no earlier checkpoint"
            except OSError:  # of a bucket, for the same reason
                kept = "what was committed before is intact"
            raise SaveFailed(
                f"could not save checkpoint {step} to {self.folder}: {_short(error)}{self._space()}; {kept}: make "
                "room or fix the storage, then run the same command again to resume"
            ) from error

    def _space(self) -> str:
        if "://" in self.folder:
            return ""
        return f" ({shutil.disk_usage(self.folder).free / 2**20:,.0f} MiB free)"


def _layers_apart(state: Any) -> Any:
    """Every layer of a stacked leaf in chunks of its own: an export reads layer by layer, not all for each of them."""

    def one(path: Any, leaf: Any) -> ocp.SaveArgs:
        stacked = any(getattr(key, "key", getattr(key, "name", None)) == "layers" for key in path)
        return ocp.SaveArgs(shard_axes=(0,) if stacked and leaf.ndim > 1 else (), chunk_byte_size=CHUNK_BYTES)

    return jax.tree_util.tree_map_with_path(one, state)


def _causes(error: BaseException) -> list[BaseException]:
    """An error and what led to it, the first cause last."""
    found = [error]
    while (before := found[-1].__cause__ or found[-1].__context__) is not None:
        found.append(before)
    return found


def _of_the_storage(error: BaseException) -> bool:
    """Whether a save failed for what only a person can change: no room, no permission, credentials that expired."""
    causes = _causes(error)
    if any(map(is_full_disk, causes)):
        return True
    if any(isinstance(cause, OSError) and cause.errno in (errno.EACCES, errno.EROFS) for cause in causes):
        return True
    return for_a_person("".join(map(str, causes)))


_DAMAGE = re.compile(
    r"\b(DATA_LOSS|OUT_OF_RANGE|NOT_FOUND|FAILED_PRECONDITION|INVALID_ARGUMENT): Error (reading|opening)"
)
"""How tensorstore calls what is missing, too short or cannot be unpacked. Every other code is of the storage, the
network or the memory, and a worker that is gone shows as a broken call."""


def _of_the_data(error: Exception) -> bool:
    """Whether an error while reading is of what is stored. In doubt it is not: then no good checkpoint is put aside."""
    return isinstance(error, (json.JSONDecodeError, FileNotFoundError)) or any(
        _DAMAGE.search(str(cause)) for cause in _causes(error)
    )


def _of_other_arrays(error: Exception) -> bool:
    """Whether orbax found all arrays, but by other names or of other shapes."""
    words = ("tree structures do not match", "not compatible with the stored shape")
    return isinstance(error, ValueError) and any(word in str(error) for word in words)


def _short(error: BaseException) -> str:
    """The last clause of a long storage error: its cause."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return text if len(text) <= 300 else f"{text[:120]} ... {text[-170:]}"
