"""The folder of a run: its identity, its preparation, and the lock of the process that writes it.

Reads and writes small JSON files and one lock; knows nothing of jax, Ray or the content of a checkpoint."""

import contextlib
import dataclasses
import hashlib
import json
import secrets
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lemur_ray.config import Recipe, differing_fields, identity
from lemur_ray.corpus.rows import write_atomically
from lemur_ray.host.exit_codes import CausedError, ExitCode
from lemur_ray.host.file_lock import FileHeld, hold
from lemur_ray.host.full_disk import is_full_disk
from lemur_ray.plan.plan import first_row_moved
from lemur_ray.storage.file_system import file_system, is_bucket
from lemur_ray.text.backends import TOKENIZER
from lemur_ray.text.tokenizer_folder import read_files
from lemur_ray.weights.checkpoints import CHECKPOINTS, newest_commit, weights_of

_COPY = "copy it again from where it came from"
_REPAIRS = {
    "recipe.json": f"{_COPY}, or, where this run began here, delete it and run the same command again: it is "
    "written anew and the checkpoints are compared with it",
    "result.json": "delete it, then run the same command again: the run finishes from its newest checkpoint",
    "stopped.json": "delete it, then run the same command again",
}
"""Advice for each small file of a run that is not valid JSON."""

_BUCKET = "gs://"
"""The only URI scheme that orbax writes to; fsspec, which writes the small files, supports more."""


class RunFolderError(CausedError):
    """Raised when a folder cannot be used for this run; the message says why."""


class RunInUse(RunFolderError):
    """Raised when another process writes the run; the same command resumes once that process has ended."""

    exit_code = ExitCode.TRY_AGAIN


class TrainingStopped(CausedError):
    """Raised when the run cannot continue and a restart would end the same way; the message is for a person."""


@dataclasses.dataclass(frozen=True)
class Run:
    """A run: recipe, corpus, output folder and starting weights. Picklable; the same on every worker."""

    recipe: Recipe
    corpus: str
    """Absolute path or URI of the corpus folder."""
    out: str
    """Absolute path or URI of the run folder."""
    init_from: str = ""
    """Run folder or checkpoint whose parameters start the run; empty: random parameters."""
    stage: Any = None
    """The ``stage.Stage`` of a run that continues another one's train state, else None."""

    @property
    def checkpoints(self) -> str:
        return f"{self.out}/{CHECKPOINTS}"

    @property
    def first_step(self) -> int:
        """Steps counted before the first step of this run: those of its parent if it is a stage, else 0."""
        return self.stage.first_step if self.stage else 0

    def row_after(self, step: int) -> int:
        """First plan row that the first ``step`` steps have not read."""
        first_row = self.stage.first_row if self.stage else 0
        return int(first_row + (step - self.first_step) * self.recipe.train.rows_per_step)

    @property
    def planned(self) -> Recipe:
        """The recipe with the number of steps that its plan of rows must cover, a stage's earlier rows included."""
        steps = self.row_after(self.recipe.train.steps) // self.recipe.train.rows_per_step
        return dataclasses.replace(self.recipe, train=dataclasses.replace(self.recipe.train, steps=steps))

    def described(self) -> dict[str, Any]:
        """Identity of the run as JSON; a checkpoint is only resumed by a run with an equal one."""
        about = {"recipe": identity(self.recipe), "hash": self.recipe.hash, "corpus": fingerprint(self.corpus),
                 "init_from": weights_of(self.init_from)}  # fmt: skip
        return about | {"resume_from": self.stage.parent} if self.stage else about


def read_object(path: str) -> dict[str, Any]:
    """Read a JSON object from a path or URI. Raises FileNotFoundError, and ValueError, naming the file and a remedy, if
    it is no object or an empty one."""
    fs, inner = file_system(path)
    try:
        value = json.loads(fs.cat_file(inner))
        if not isinstance(value, dict) or not value:
            raise ValueError(f"it holds {str(value)[:40]}, expected an object with something in it")
        return value
    except ValueError as error:
        raise ValueError(f"{path} is damaged ({error}): {_REPAIRS.get(path.rsplit('/', 1)[-1], _COPY)}") from error


def _read(path: str) -> dict[str, Any]:
    """``read_object``, but raises RunFolderError for a damaged file."""
    try:
        return read_object(path)
    except ValueError as error:
        raise RunFolderError(str(error)) from error


def write_json(path: str, value: Any) -> None:
    """Write JSON atomically: readers see the old or the complete new file."""
    write_file(path, json.dumps(value, indent=1).encode())


def write_file(path: str, data: bytes) -> None:
    """Write a file atomically: readers see the old or the complete new one."""
    fs, inner = file_system(path)
    if "://" in path:  # object stores replace an object as a whole
        fs.pipe_file(inner, data)
        return
    write_atomically(Path(inner), data)


def fingerprint(corpus: str) -> str:
    """Hash (16 hex digits) of the manifest and the tokenizer of a corpus, which identifies it. Raises RunFolderError if
    one is missing."""
    digest = hashlib.sha256()
    for name in ("manifest.json", "tokenizer.json"):
        fs, inner = file_system(f"{corpus}/{name}")
        try:
            digest.update(fs.cat_file(inner))
        except FileNotFoundError:
            raise RunFolderError(
                f"{corpus} is not a corpus: it has no {name}. Build one with jobs/build_corpus.py --out {corpus}, or "
                "pass --corpus"
            ) from None
    return digest.hexdigest()[:16]


def check_same_run(plan: dict[str, Any], run: Run, where: str, described: dict[str, Any] | None = None) -> None:
    """Refuse a checkpoint (``where`` for messages, its JSON item ``plan``) of another recipe, corpus or start.
    ``train.skip_rows`` may differ if every row before ``plan["rows"]`` keeps its position: rows that no checkpoint has
    consumed may still be skipped. described: what ``run.described()`` returns, if the caller has it. Raises
    RunFolderError naming every differing field with both values."""
    mine = described or run.described()
    before, after = ((value.get("recipe") or {}).get("train", {}).get("skip_rows", []) for value in (plan, mine))
    moved = first_row_moved(before, after)
    if moved is not None and moved >= plan.get("rows", 0):
        plan = {**plan, "recipe": {**plan["recipe"], "train": {**plan["recipe"]["train"], "skip_rows": after}}}
    keys = ("recipe", "corpus", "init_from", "resume_from")
    differing = differing_fields({key: plan.get(key) for key in keys}, {key: mine.get(key) for key in keys})
    if differing:
        raise RunFolderError(
            f"{where} belongs to another run (stored != requested):\n  " + "\n  ".join(map(str, differing))
            + (f"\nskip_rows moves row {moved}, but rows up to {plan.get('rows', 0)} are consumed" if moved is not None
               and moved < plan.get("rows", 0) else "")
            + "\nuse the same settings to resume it, or another --out to start a new run"
        )  # fmt: skip


def check_writable(out: str) -> None:
    """Make the folder and test a write. Raises RunFolderError, also for URIs that orbax cannot write to."""
    if out.startswith("s3://"):
        raise RunFolderError(
            f"--out {out}: checkpoints cannot be written to s3:// (orbax has no client for it): choose a folder or "
            "gs://; corpora, episodes, reports and exported weights may lie there"
        )
    if "://" in out and not out.startswith(_BUCKET):
        raise RunFolderError(
            f"--out {out}: checkpoints are written to a folder (without file://) or to {_BUCKET}: choose one of them"
        )
    try:
        fs, inner = file_system(out)
    except (ImportError, ValueError) as error:
        raise RunFolderError(f"--out {out} cannot be written from here: {error}") from error
    probe = f"{inner}/.probe-{secrets.token_hex(8)}"  # random, because process ids are alike in pods
    try:
        if not is_bucket(out):  # a bucket has no folders, and must not be created by accident
            fs.makedirs(inner, exist_ok=True)
        fs.pipe_file(probe, b"x")
        fs.rm_file(probe)
    except OSError as error:
        if is_bucket(out) and isinstance(error, FileNotFoundError):
            raise RunFolderError(
                f"--out {out}: there is no bucket {inner.split('/')[0]}: make it first, or correct its name"
            ) from error
        with contextlib.suppress(OSError):
            fs.rm_file(probe)
        if is_full_disk(error):
            raise RunFolderError(f"--out {out} has no room left: make some there, or choose another folder") from error
        raise RunFolderError(
            f"--out {out} is not writable ({error}): choose a folder that you may write, or set LEMUR_HOME"
        ) from error


Write = Callable[[str, bytes], None]
"""Writes a small file of a run folder: (name in the folder, content)."""


def prepare(run: Run, write: Write | None = None) -> dict[str, Any] | None:
    """Prepare the run folder once, before any worker: write ``recipe.json`` and the tokenizer's files, remove
    ``stopped.json``. write: writes with the attempt's fence; default: without. Returns the content of ``result.json``
    if the run is finished, else None. Raises RunFolderError if the folder is not writable, or holds another run."""
    check_writable(run.out)
    fs, inner = file_system(run.out)
    described = run.described()
    try:
        written = _read(f"{run.out}/recipe.json")
    except FileNotFoundError:
        written = None
    if written is not None and fs.exists(f"{inner}/metrics.jsonl"):
        commit = newest_commit(run.checkpoints)
        rows = commit.plan["rows"] if commit else 0
        check_same_run({**written, "recipe": written["identity"], "rows": rows}, run, run.out)
    if written is not None and fs.exists(f"{inner}/result.json"):
        return _read(f"{run.out}/result.json")
    write = write or (lambda name, content: write_file(f"{run.out}/{name}", content))
    for stale in ("stopped.json", "checkpoint_manager_snapshot.json"):  # the second is Ray's, of earlier versions
        if fs.exists(f"{inner}/{stale}"):
            fs.rm_file(f"{inner}/{stale}")
    for name, content in {TOKENIZER: b"", **read_files(run.corpus)}.items():
        write(name, content)
    written = {
        "recipe": dataclasses.asdict(run.recipe), "hash": described["hash"], "identity": described["recipe"],
        "corpus": described["corpus"], "corpus_path": run.corpus, "init_from": described["init_from"],
        "init_from_path": run.init_from,
    } | ({"resume_from": run.stage.parent, "stage": dataclasses.asdict(run.stage)} if run.stage else {})  # fmt: skip
    write("recipe.json", json.dumps(written, indent=1).encode())
    return None


def tokenizer_of(folder: str) -> bytes | None:
    """Content of ``tokenizer.json`` of a corpus, run or model folder, or of a checkpoint's run; None without one."""
    fs, inner = file_system(folder)
    for place in (inner, inner.rstrip("/").rsplit("/", 2)[0]):  # buckets know no ".."
        if fs.isfile(f"{place}/tokenizer.json"):
            return bytes(fs.cat_file(f"{place}/tokenizer.json"))
    return None


@contextlib.contextmanager
def lock(out: str, name: str, *, wait_s: float = 0.0) -> Iterator[None]:
    """Context manager: hold the file lock ``out/.<name>.lock``; the kernel releases it when the process dies. Does
    nothing for a bucket (see ``lease``). Raises RunInUse if another process holds it for ``wait_s`` seconds."""
    if "://" in out:
        yield
        return
    with contextlib.ExitStack() as held:
        try:
            held.enter_context(hold(Path(out) / f".{name}.lock", wait_s=wait_s))
        except FileHeld as other:
            raise RunInUse(
                f"{out} is being written by another run (process {other.holder}): wait for it, end it, or choose "
                "another --out"
            ) from None
        yield
