"""Checkpoints of a run: orbax, written in the background, committed by a rename, restored onto any mesh.

Each is a Composite of the train state and one JSON item with the row number in the plan, so that both are committed
together. Knows nothing of Ray and of how a step is computed."""

import contextlib
import dataclasses
import errno
import json
import logging
import re
import shutil
import time
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import jax
import orbax.checkpoint as ocp
from orbax.checkpoint.checkpoint_manager import CheckpointInfo

from lemur_ray.host.exit_codes import CausedError
from lemur_ray.host.full_disk import is_full_disk
from lemur_ray.storage.file_system import note_folders
from lemur_ray.storage.health_probe import run_while_reachable
from lemur_ray.train.run.bucket_checkpoints import AttemptNames, fenced_commit
from lemur_ray.train.run.coordination import share
from lemur_ray.train.run.failures import FailureKind, classify
from lemur_ray.train.run.fence import Fence
from lemur_ray.train.run.folder import TrainingStopped
from lemur_ray.weights.checkpoints import (
    Commit,
    Uncommitted,
    commits,
    committed_once,
    is_checkpoint_name,
    newest_commit,
    put_aside,
)

_log = logging.getLogger(__name__)
CHUNK_BYTES = 2**25
"""Largest chunk of a stored array, in bytes."""


class UnreadableCheckpoint(Exception):
    """Raised when a committed checkpoint is damaged (it is renamed, if possible, so that it is not used again) or
    missing on this host."""


class SaveInterrupted(CausedError):
    """Raised when a checkpoint was not written for a transient reason, such as a lost worker: restart the workers."""


class SaveFailed(TrainingStopped):
    """Raised when a checkpoint could not be written; the message says what is still intact and what to do."""


@dataclasses.dataclass(frozen=True)
class _Contents:
    """Content of a ``checkpoints`` folder when it was opened; rank 0 lists it and shares it with all processes."""

    folders: list[str]
    """Paths or URLs of the committed checkpoints, newest first."""
    steps: list[int]
    """Their steps."""
    plan: dict[str, Any]
    """JSON item of the newest one; empty without one."""
    damaged: list[str]
    """Folders that ``Checkpoints.damaged`` returns; empty if there is a committed checkpoint."""


class _Manager(ocp.CheckpointManager):
    """CheckpointManager that is told the steps in its folder; orbax would list the folder in every process."""

    def __init__(
        self, folder: str, options: ocp.CheckpointManagerOptions, steps: Callable[[], list[int]], protected: set[int]
    ) -> None:
        self._steps, self._protected = steps, protected
        super().__init__(folder, options=options)

    def _get_old_steps_to_remove(self) -> list[int]:
        return [step for step in super()._get_old_steps_to_remove() if step not in self._protected]

    def _load_checkpoint_infos(self, skip_metadata_read: bool = False) -> list[CheckpointInfo]:
        return [CheckpointInfo(step=step, time=datetime.min, metrics=None) for step in self._steps()]


class Checkpoints:
    """The ``checkpoints`` folder of one run (path or URL), open for writing; a context that ends by finishing the
    current save. Every process of a run makes the same calls."""

    def __init__(
        self, folder: str, *, keep: int, keep_every: int = 0, primary: bool = True, fence: Fence | None = None
    ) -> None:
        """List the folder; the primary process removes temporary folders and renames unfinished checkpoints.
        keep: number of newest checkpoints to keep. keep_every: those at multiples of this step are never removed (0:
        none). primary: this process is rank 0. fence: that of this attempt (``run.fence``), given to every process; the
        primary one checks it before each save and each commit."""
        self.folder, self._fence, self._primary = folder, fence, primary
        self.before_commit: Callable[[], object] = lambda: None
        """Called by the primary process in the background before each commit; an exception prevents the commit."""
        self._distributed = jax.distributed.is_initialized()
        """Lost workers, and Ray when it resizes the group, can interrupt a save."""
        self.ignored: list[Uncommitted] = []
        """Torn and uncommitted checkpoints that were in the folder at the start; empty if not ``primary``."""
        self._start = _Contents(**share(self._tidy))
        self._paths = dict(zip(reversed(self._start.steps), reversed(self._start.folders), strict=True))
        """Path or URL of each known checkpoint by step."""
        if "://" not in folder:
            Path(folder).mkdir(parents=True, exist_ok=True)
        attempt = fence.number if fence is not None else 1
        self._names = AttemptNames(self._paths, attempt, self._check_fence) if "://" in folder else None
        options = ocp.CheckpointManagerOptions(
            max_to_keep=keep, keep_period=keep_every or None, enable_async_checkpointing=True, save_root_metadata=False,
            create=False, step_name_format=self._names,
            temporary_path_class=fenced_commit(fence) if fence is not None and folder.startswith("gs://") else None,
            async_options=ocp.AsyncOptions(post_finalization_callback=self._allow_commit),
        )  # fmt: skip
        self._unreadable: set[int] = set()
        self.protected = set[int]()
        """Steps that are not removed; to be changed between saves."""
        self._manager = _Manager(folder, options, lambda: sorted({*self._paths} - self._unreadable), self.protected)
        self._saving: int | None = None
        self._timed_out = False
        """The previous save timed out; a second timeout in a row ends the run."""
        self.saved_at = time.monotonic()
        """Clock (``time.monotonic``) of the last save call."""

    def _tidy(self) -> dict[str, Any]:
        """List the folder as the arguments of ``_Contents``. The primary process then renames torn checkpoints and
        removes temporary folders, which would block a later save."""
        committed, ignored = commits(self.folder)
        self._check_fence()
        for entry in ignored if self._primary else ():
            if is_checkpoint_name(entry.name):
                put_aside(entry.folder)
            elif ".orbax-checkpoint-tmp" in entry.name and "://" not in self.folder:
                shutil.rmtree(entry.folder, ignore_errors=True)
        self.ignored = [entry for entry in ignored if self._primary and ".torn" not in entry.name]
        return {
            "folders": [commit.folder for commit in committed], "steps": [commit.step for commit in committed],
            "plan": committed[0].plan if committed else {},
            "damaged": [] if committed else committed_once(self.folder),
        }  # fmt: skip

    def newest(self) -> Commit | None:
        """The newest checkpoint that was committed when the folder was opened, except those that ``restore`` failed to
        read; None if there is none. All processes of jax.distributed get the same one."""
        start = self._start
        if not self._unreadable:
            return Commit(start.steps[0], start.plan, start.folders[0]) if start.steps else None
        committed = commits(self.folder)[0]  # a process alone; several would restart
        return next((commit for commit in committed if commit.step not in self._unreadable), None)

    def path(self, step: int) -> str:
        """Path or URL of a checkpoint that was committed at the start or saved since."""
        return self._paths.get(step, f"{self.folder}/{step}")

    def restore(self, step: int, abstract: Any) -> Any:
        """Read the train state of a committed step, with the shapes, dtypes and shardings of the tree ``abstract``.
        Raises UnreadableCheckpoint if the checkpoint is damaged; it is then renamed to ``<step>.torn``, so that the
        next attempt restores the one before. Raises TrainingStopped if its arrays differ in name or shape from
        ``abstract``, and OSError, MemoryError and others if storage, memory or another worker failed."""
        path, args = self.path(step), ocp.args.Composite(state=ocp.args.StandardRestore(abstract))
        # Not among them: array_metadatas, in which every process would read the files of all to learn which arrays are
        # random keys. A train state has none.
        forget = note_folders(path, f"{path}/state", f"{path}/plan")
        try:
            out = run_while_reachable(path, lambda: self._manager.restore(step, args=args))
        except Exception as error:  # tensorstore raises a bare Exception for a truncated file
            forget()
            if _has_other_arrays(error):
                raise TrainingStopped(
                    f"checkpoint {path} holds other arrays than this program trains ({_short(error)}): resume it with "
                    "the version that wrote it, or choose another --out"
                ) from error
            if not _is_damage(error):
                raise
            self._unreadable.add(step)
            moved = ""
            with contextlib.suppress(FileNotFoundError):  # all files may be gone, or another worker was first
                moved = f"; put aside as {put_aside(path)}"
            if not self._distributed:  # which restarts instead
                self._manager.reload()
            reason = error.__cause__ or error  # orbax names the place, tensorstore below it the reason
            raise UnreadableCheckpoint(f"checkpoint {path} cannot be read ({_short(reason)}){moved}") from error
        forget()
        return out["state"]

    def damaged(self) -> list[str]:
        """Folders of checkpoints that were committed and later found unreadable, by this process or an earlier one.
        Unfinished checkpoints are not among them: they do not prevent a run from beginning at step 0."""
        return committed_once(self.folder) if self._unreadable else self._start.damaged

    def save(self, step: int, state: Any, plan: dict[str, Any]) -> None:
        """Begin to save ``state`` and the JSON object ``plan`` in the background; returns once the arrays are copied.
        Waits for the previous save first. step: number of steps that ``state`` has taken. Raises SaveFailed if a person
        must act, SaveInterrupted if a restart may help."""
        self.wait()
        self._saving, self.saved_at = step, time.monotonic()
        with self._save_errors(step):
            self._check_fence()
            if self._fence is not None:
                plan = {**plan, "attempt": self._fence.number}
            if self._names is not None:
                self._paths[step] = f"{self.folder}/{self._names.build_name(step)}"
            args = ocp.args.Composite(
                state=ocp.args.StandardSave(state, save_args=_chunked_by_layer(state)), plan=ocp.args.JsonSave(plan)
            )
            run_while_reachable(self.folder, lambda: self._manager.save(step, args=args, force=True))

    def _allow_commit(self) -> None:
        if self._primary:
            self._check_fence()
            self.before_commit()
            self._check_fence()  # again: before_commit may take long

    def _check_fence(self) -> None:
        if self._primary and self._fence is not None:
            self._fence.check()

    def poll(self) -> None:
        """Raise SaveFailed or SaveInterrupted if the save in the background has failed; does not wait, and does nothing
        if there is none."""
        if self._saving is not None:
            with self._save_errors(self._saving):
                self._manager.check_for_errors()

    def wait(self) -> None:
        """Wait until the current save, if any, is committed. Raises SaveFailed if it could not be written,
        SaveInterrupted for a transient reason such as a lost worker."""
        if self._saving is not None:
            with self._save_errors(self._saving):
                run_while_reachable(self.folder, self._manager.wait_until_finished)
                self._manager.check_for_errors()
                self._timed_out = False
            self._saving = None

    def __enter__(self) -> "Checkpoints":
        return self

    def __exit__(self, *error: object) -> None:
        """Finish the current save and stop its threads; suppresses a failure of that save."""
        with contextlib.suppress(SaveFailed, SaveInterrupted):
            self.wait()
        self._manager.close()

    @contextlib.contextmanager
    def _save_errors(self, step: int) -> Iterator[None]:
        """Context in which errors of orbax and the storage become SaveInterrupted, SaveFailed or a logged warning."""
        try:
            yield
            return
        except (OSError, ValueError, RuntimeError) as error:
            self._saving = None
            if isinstance(error, TimeoutError) and not self._timed_out:
                # orbax computes deadlines from the wall clock: a jump ahead ends a healthy save.
                self._timed_out = True
                _log.warning("checkpoint %d was not saved in time (%s): trying again at the next", step, _short(error))
                return
            transient = "://" in self.folder and classify(error) is FailureKind.TRANSIENT
            if (self._distributed or transient) and not _needs_person(error):
                # A lost worker or coordinator shows as a broken call, an unreachable bucket as a client error: a
                # restart can help.
                raise SaveInterrupted(f"checkpoint {step} was interrupted: {_short(error)}") from error
            try:
                good = newest_commit(self.folder)
                intact = f"checkpoint {good.step} is intact" if good else "there is no earlier checkpoint"
            except OSError:  # the bucket cannot be listed either
                intact = "what was committed before is intact"
            free = "" if "://" in self.folder else f" ({shutil.disk_usage(self.folder).free / 2**20:,.0f} MiB free)"
            raise SaveFailed(
                f"could not save checkpoint {step} to {self.folder}: {_short(error)}{free}; {intact}: make room or fix "
                "the storage, then run the same command again to resume"
            ) from error


def _chunked_by_layer(state: Any) -> Any:
    """Save arguments that give each layer of a stacked leaf its own chunks: exports read layer by layer."""

    def one(path: Any, leaf: Any) -> ocp.SaveArgs:
        stacked = any(getattr(key, "key", getattr(key, "name", None)) == "layers" for key in path)
        return ocp.SaveArgs(shard_axes=(0,) if stacked and leaf.ndim > 1 else (), chunk_byte_size=CHUNK_BYTES)

    return jax.tree_util.tree_map_with_path(one, state)


def _causes(error: BaseException) -> list[BaseException]:
    """An error and the errors that caused it or in whose handling it was raised; the first one last."""
    chain = [error]
    while (before := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(before)
    return chain


def _needs_person(error: BaseException) -> bool:
    """Whether only a person can fix a failed save: no space, no permission, expired credentials."""
    causes = _causes(error)
    if any(is_full_disk(c) or (isinstance(c, OSError) and c.errno in (errno.EACCES, errno.EROFS)) for c in causes):
        return True
    return any(classify(cause) is FailureKind.NEEDS_PERSON for cause in causes)


_DAMAGE = re.compile(
    r"\b(DATA_LOSS|OUT_OF_RANGE|NOT_FOUND|FAILED_PRECONDITION|INVALID_ARGUMENT): Error (reading|opening)"
)
"""Status codes of tensorstore for missing, truncated or corrupt data. Every other code is about storage, network or
memory; a lost worker shows as a broken call."""


def _is_damage(error: Exception) -> bool:
    """Whether a read error is about the stored data; False in doubt, so that no intact checkpoint is put aside."""
    return isinstance(error, (json.JSONDecodeError, FileNotFoundError)) or any(
        _DAMAGE.search(str(cause)) for cause in _causes(error)
    )


def _has_other_arrays(error: Exception) -> bool:
    """Whether orbax read intact arrays, but of other names or shapes than requested."""
    phrases = ("tree structures do not match", "not compatible with the stored shape")
    return isinstance(error, ValueError) and any(phrase in str(error) for phrase in phrases)


def _short(error: BaseException) -> str:
    """The first line of an error, shortened in the middle: storage errors name their cause at the end."""
    text = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    return text if len(text) <= 300 else f"{text[:120]} ... {text[-170:]}"
