"""A stage: a run that continues a checkpoint of another run, its parent, with optimizer state under another recipe.

A stage can continue its parent's step count, so that a schedule spans both. Its rows continue where the parent's ended
if both have the same plan of rows; else they begin at row 0. Knows nothing of jax and of arrays."""

import dataclasses

from lemur_ray.config import differing_fields, from_dict
from lemur_ray.storage.file_system import file_system
from lemur_ray.train.run.folder import Run, RunFolderError, lock, read_object
from lemur_ray.train.run.lease import is_renewed
from lemur_ray.weights.checkpoints import CHECKPOINTS, Commit, commit_at, newest_commit, weights_of

_ORDER = ("data", "corpus", "train.rows_per_step", "train.skip_rows")
"""Fields of a run's identity on which the order of its rows depends."""
_ARRAYS = ("model", "lora", "optimizer.name")
"""Fields of a recipe's identity that decide the arrays of the train state."""
_SHAPE_FREE = ("model.max_seq_len", "model.family", "model.rope_theta", "model.rope_scaling")
"""Those among them that a stage may change: a stage of longer rows often has other angles."""


@dataclasses.dataclass(frozen=True)
class Stage:
    """The part of its parent run that a run takes over: checkpoint, steps and rows. Stored in ``recipe.json``."""

    spec: str
    """What the user named: a run, or a checkpoint of it."""
    checkpoint: str
    """Path or URI of the checkpoint that is continued."""
    parent: str
    """Identity of the parent's weights (``weights_of``)."""
    parent_rows: int
    """Plan rows that the parent had read."""
    first_step: int
    """Steps counted before the first step of this run."""
    first_row: int
    """Plan row at which this run begins."""
    keep_guard: bool
    """Whether the parent's state of the guard against loss spikes is kept, else it begins anew."""
    changed: tuple[str, ...]
    """Differences of the recipes: ``dotted.name: value of the parent != value of this run``."""

    @property
    def note(self) -> str:
        """One line for the log: what is continued, and which rows are read."""
        rows = f"its rows go on at {self.first_row}" if self.first_row else "its rows begin anew at 0"
        return (
            f"stage of {self.checkpoint}, which read plan rows 0 to {self.parent_rows}: counts on from step "
            f"{self.first_step}, {rows}; changed: {'; '.join(self.changed) or 'nothing'}"
        )


def staged(run: Run, spec: str, *, keep_step: bool = True, keep_guard: bool = True) -> Run:
    """``run`` as a stage of ``spec``, the folder of another run or of one of its checkpoints. Later starts take the
    stage from ``recipe.json``. keep_step: continue the parent's step count, else count from 0. keep_guard: keep the
    window of its spike guard. Raises RunFolderError if that checkpoint is absent, lacks optimizer state or has other
    arrays, or if its run is still being trained."""
    try:
        stored = read_object(f"{run.out}/recipe.json").get("stage")
        if stored and stored["spec"] == spec:
            return dataclasses.replace(run, stage=from_dict(Stage, stored))
    except FileNotFoundError:
        pass
    commit = newest_commit(f"{spec}/{CHECKPOINTS}") or commit_at(spec)
    if commit is None:
        raise RunFolderError(f"--resume-from {spec}: expected a run with a committed checkpoint, or RUN/checkpoints/N")
    _check_ended(spec, commit)
    _check_moments(spec, commit)
    described = run.described()
    if described["init_from"] != (commit.plan.get("init_from", "") if run.recipe.lora.rank else ""):
        raise RunFolderError(
            f"--init-from {run.init_from or 'is missing'} with --resume-from {spec}: adapters need the model that they "
            "were trained on, any other run nothing"
        )
    mine = {key: described[key] for key in ("recipe", "corpus")}
    changed = differing_fields({key: commit.plan.get(key) for key in mine}, mine)
    names = [field.name.removeprefix("recipe.") for field in changed]
    other = [
        str(field)
        for field, name in zip(changed, names, strict=True)
        if _under(name, _ARRAYS) and not _under(name, _SHAPE_FREE)
    ]
    if other:
        raise RunFolderError(
            f"--resume-from {spec} has another model or optimizer (parent != this run):\n  " + "\n  ".join(other)
            + "\nonly parameters can be taken over, by --init-from, if the models agree"
        )  # fmt: skip
    anew = not keep_step or any(_under(name, _ORDER) for name in names)
    stage = Stage(
        spec, commit.folder, weights_of(commit.folder), commit.plan["rows"], commit.step if keep_step else 0,
        0 if anew else commit.plan["rows"], keep_guard, tuple(map(str, changed)),
    )  # fmt: skip
    if run.recipe.train.steps <= stage.first_step:
        raise RunFolderError(
            f"--resume-from {spec} is at step {commit.step}: expected --train.steps above it, got "
            f"{run.recipe.train.steps}"
        )
    return dataclasses.replace(run, stage=stage)


def _under(name: str, fields: tuple[str, ...]) -> bool:
    return any(name == field or name.startswith(f"{field}.") for field in fields)


def _check_ended(spec: str, commit: Commit) -> None:
    """Raises RunFolderError if a process still writes the run of a checkpoint."""
    out = commit.folder.rsplit("/", 2)[0]
    try:
        with lock(out, "run"):
            running = is_renewed(out)
    except RunFolderError:
        running = True
    if running:
        raise RunFolderError(
            f"--resume-from {spec}: that run is still going on: wait for its end, or copy one of its checkpoints"
        )


def _check_moments(spec: str, commit: Commit) -> None:
    """Raises RunFolderError if a checkpoint holds parameters alone, as converted ones do."""
    fs, inner = file_system(f"{commit.folder}/state/_METADATA")
    if b"'opt'" not in fs.cat_file(inner):
        raise RunFolderError(
            f"--resume-from {spec}: {commit.folder} has no moments of an optimizer (it was converted): give it as "
            "--init-from"
        )
