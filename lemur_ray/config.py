"""A whole run as one frozen value: the recipe, its hash, and the command line that edits it.

Knows nothing of jax, Ray or files. Every field states its unit; recipes live in ``lemur_ray/recipes``.
"""

from __future__ import annotations

import dataclasses
import difflib
import hashlib
import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_type_hints

from lemur_ray.model_config import ModelConfig, RopeScaling
from lemur_ray.ranges import BELOW_ONE, COUNT, FROM_ZERO, SEED, check_ranges
from lemur_ray.tuning_config import LoraConfig, TuningConfig
from lemur_ray.watch_config import WatchConfig

T = TypeVar("T")


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


@dataclass(frozen=True)
class SourceConfig:
    """One source of a mixture. On a command line: NAME:KIND:WEIGHT or NAME:KIND:WEIGHT:EPOCHS."""

    name: str = ""
    """Name of the source in the corpus manifest."""
    kind: Literal["code", "text", "chat"] = "text"
    """What it counts as in the code : text ratio."""
    weight: float = 1.0
    """Share of the rows; weights are normalised by their own sum."""
    epochs: float | None = None
    """Passes over the rows used. None: as many as the run needs, at most one where unstated sources run out."""

    def __post_init__(self) -> None:
        check_ranges(self, weight=FROM_ZERO, **({} if self.epochs is None else {"epochs": FROM_ZERO}))


@dataclass(frozen=True)
class DataConfig:
    """Which rows a run reads, and in which order."""

    sources: tuple[SourceConfig, ...] = ()
    """The mixture, for example python:code:72.73:2.98. Empty: every source of the corpus, each kind split by tokens."""
    code_to_text: float = 10.0
    """Rows of code per row of text where sources is empty (paper A.1.2: 10)."""
    seq_len: int = 1024
    """Tokens of one packed row."""
    seed: int = 0
    """Seed of the order of rows."""
    mask_documents: bool = True
    """Attention stays inside a document. False: packed documents see each other, as the paper's base code had it."""

    def __post_init__(self) -> None:
        check_ranges(self, code_to_text=FROM_ZERO, seq_len=COUNT, seed=SEED)


REMAT_VALUES = ("query", "key", "value", "attention", "mid", "gate", "up")
"""Values of a block that the backward pass may find kept: rotated queries and keys, values, the attention's output with
its log-sum-exp, the residual stream in mid-block, both inputs of the feed-forward product."""
REMAT_POLICIES: dict[str, tuple[str, ...]] = {
    "full": (),
    "save_dots": REMAT_VALUES,
    "save_dots_except_mlp_in": REMAT_VALUES[:5],
}
"""Policy -> the values it keeps on the device; "none" (keep everything) and "offload" besides."""


def parse_remat(policy: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The values a policy keeps on the device, and those it keeps in the host's memory.

    Raises:
        ValueError: what was found and what was expected.
    """
    if policy in ("none", *REMAT_POLICIES):
        return REMAT_POLICIES.get(policy, REMAT_VALUES), ()
    if policy == "offload":
        return (), REMAT_VALUES
    kept: dict[str, tuple[str, ...]] = {"save": (), "offload": ()}
    for part in policy.split("+"):
        where, colon, values = part.partition(":")
        names = tuple(values.split(","))
        if not colon or where not in kept or not set(names) <= set(REMAT_VALUES):
            raise ValueError(
                f"remat is {policy!r}: expected none, {', '.join(REMAT_POLICIES)}, offload or "
                f"save:VALUE,..[+offload:VALUE,..] with values of {', '.join(REMAT_VALUES)}"
            )
        kept[where] = names
    return kept["save"], kept["offload"]


@dataclass(frozen=True)
class TrainConfig:
    """How long and how a run trains."""

    steps: int = 1000
    """Number of optimizer steps of the whole run."""
    rows_per_step: int = 1
    """Packed rows of one global batch (all workers together)."""
    microbatches: int = 1
    """Number of pieces one batch is accumulated over; divides rows_per_step."""
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of activations and of weights in matmuls; master weights are always float32."""
    remat: str = "none"
    """What the backward pass recomputes: none, full (whole blocks), save_dots (nothing that a matrix product gave),
    save_dots_except_mlp_in, offload (as save_dots, in the host's memory), or save:VALUE,..[+offload:VALUE,..] with the
    values query, key, value, attention, mid, gate, up."""
    seed: int = 0
    """Seed of the initial weights."""
    checkpoint_every_steps: int = 200
    """Steps between checkpoints; the last step always has one."""
    checkpoint_every_s: float = 600.0
    """Seconds between checkpoints at most."""
    keep_checkpoints: int = 2
    """Newest checkpoints kept."""
    keep_every_steps: int = 0
    """Checkpoints of every so many steps are kept for good; a multiple of checkpoint_every_steps. 0: none."""
    preemption_every_steps: int = 1
    """Steps between two looks whether a host is about to be taken away; each waits for all workers, milliseconds."""
    log_every_steps: int = 10
    """Steps between two lines of metrics."""
    max_failures: int = 3
    """Restarts of the worker group after a crash before the run gives up."""
    skip_rows: tuple[tuple[int, int], ...] = ()
    """Half-open ranges of plan rows that are never trained on, as pairs: FIRST END."""
    spike_sigmas: float = 6.0
    """Standard deviations above the last 128 steps' mean at which a loss or gradient norm is a spike and its update is
    skipped. 0: only what is not finite is skipped."""
    max_skips_in_a_row: int = 8
    """Skipped updates in a row after which the run stops with an error."""
    eval_every_steps: int = 0
    """Steps between two held-out evaluations; 0: only after the last step."""
    eval_rows: int = 32
    """Held-out rows per kind that one evaluation reads, from every source of it; 0: no evaluation."""

    def __post_init__(self) -> None:
        counts = ("steps", "rows_per_step", "microbatches", "checkpoint_every_steps", "keep_checkpoints")
        free = (
            "checkpoint_every_s",
            "max_failures",
            "spike_sigmas",
            "eval_every_steps",
            "eval_rows",
            "keep_every_steps",
        )
        check_ranges(self, **dict.fromkeys(counts, COUNT), **dict.fromkeys(free, FROM_ZERO))
        check_ranges(self, log_every_steps=COUNT, max_skips_in_a_row=COUNT, preemption_every_steps=COUNT, seed=SEED)
        if self.keep_every_steps % self.checkpoint_every_steps:
            raise ValueError(
                f"keep_every_steps is {self.keep_every_steps}: expected a multiple of checkpoint_every_steps, "
                f"{self.checkpoint_every_steps}"
            )
        parse_remat(self.remat)
        for first, end in self.skip_rows:
            if not 0 <= first < end:
                raise ValueError(f"skip_rows has {first} {end}: expected FIRST END with 0 <= FIRST < END")


@dataclass(frozen=True)
class MeshConfig:
    """Where a run trains: workers asked of Ray, and the mesh over their devices."""

    num_workers: int = 1
    """Number of Ray Train workers, one per host; TPU: hosts per slice x slices."""
    min_workers: int = 0
    """Workers the run goes on with while hosts are missing, growing back when they return; TPU: whole slices. 0: as
    many as num_workers, always."""
    resize_check_s: float = 60.0
    """Seconds between two looks whether a run that lost hosts can grow back."""
    use_tpu: bool = False
    """Workers are hosts of a TPU slice."""
    use_gpu: bool = False
    """Workers own one GPU each."""
    topology: str = ""
    """TPU slice topology, for example 4x8x8."""
    accelerator_type: str = ""
    """Ray's name of the TPU generation, for example TPU-V4."""
    cpus_per_worker: float = 1.0
    """CPU cores reserved for one worker (XLA uses every core of the host all the same)."""
    dcn: int = 1
    """Number of slices (data parallel over the data-centre network)."""
    fsdp: int = -1
    """Number of devices that parameters and batch are sharded over; -1: all that are left."""
    tp: int = 1
    """Number of devices that share one matmul."""

    def __post_init__(self) -> None:
        check_ranges(self, num_workers=COUNT, dcn=COUNT, tp=COUNT)
        check_ranges(self, min_workers=FROM_ZERO, resize_check_s=FROM_ZERO, cpus_per_worker=FROM_ZERO)
        if self.fsdp != -1:
            check_ranges(self, fsdp=COUNT)


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the numbers of a run. Its hash is in every checkpoint and every report."""

    name: str = "nano"
    """Name of the recipe (what the run is called in checkpoints and reports)."""
    source: str = ""
    """Where its numbers come from (section of the paper)."""
    model: ModelConfig = ModelConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    data: DataConfig = DataConfig()
    train: TrainConfig = TrainConfig()
    mesh: MeshConfig = MeshConfig()
    watch: WatchConfig = WatchConfig()
    tuning: TuningConfig = TuningConfig()
    lora: LoraConfig = LoraConfig()

    @property
    def tokens_per_step(self) -> int:
        """Tokens of one global batch, padding included."""
        return self.train.rows_per_step * self.data.seq_len

    @property
    def hash(self) -> str:
        """16 hex digits over every field that decides the numbers; the mesh, watching and checkpoint timing do not."""
        return hashlib.sha256(json.dumps(identity(self), sort_keys=True).encode()).hexdigest()[:16]


_NOT_IDENTITY = (
    "microbatches",  # this and remat change roundings only, as the mesh does
    "remat",
    "checkpoint_every_steps",
    "checkpoint_every_s",
    "keep_checkpoints",
    "keep_every_steps",
    "preemption_every_steps",
    "log_every_steps",
    "max_failures",
    "max_skips_in_a_row",
    "eval_every_steps",
    "eval_rows",
)


def identity(recipe: Recipe) -> dict[str, Any]:
    """The fields of a recipe that decide its numbers, as nested JSON values."""
    value = json.loads(json.dumps(dataclasses.asdict(recipe)))
    del value["mesh"], value["source"], value["watch"]
    if recipe.model.rope_scaling == RopeScaling():
        del value["model"]["rope_scaling"]  # a recipe without it keeps the hash it had before the field existed
    for name in _NOT_IDENTITY:
        del value["train"][name]
    if not recipe.tuning.epochs:  # without passes it decides nothing
        del value["tuning"]
    if not recipe.lora.rank:
        del value["lora"]
    return value


def differing_fields(a: dict[str, Any], b: dict[str, Any], prefix: str = "") -> list[str]:
    """Dotted names of the fields in which two recipe identities differ, with both values."""
    out: list[str] = []
    for key in sorted(a.keys() | b.keys()):
        left, right = a.get(key), b.get(key)
        if isinstance(left, dict) and isinstance(right, dict):
            out += differing_fields(left, right, f"{prefix}{key}.")
        elif left != right:
            out.append(f"{prefix}{key}: {left!r} != {right!r}")
    return out


def from_dict(config: type[T], value: dict[str, Any]) -> T:
    """A frozen dataclass from its JSON form (``dataclasses.asdict``). Fields it does not know are an error.

    Raises:
        ValueError: naming the unknown field and the nearest known one.
    """
    hints, out = get_type_hints(config), {}
    for name, item in value.items():
        if name not in hints:
            raise ValueError(f"{config.__name__} has no field {name!r}{did_you_mean(name, hints)}")
        out[name] = _revive(hints[name], name, item)
    return config(**out)


def _revive(hint: Any, name: str, item: Any) -> Any:
    if isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return from_dict(hint, item)
    if name == "sources":
        return tuple(from_dict(SourceConfig, entry) for entry in item)
    if isinstance(item, list):
        return tuple(tuple(entry) if isinstance(entry, list) else entry for entry in item)
    return item


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``: did you mean 'x'?`` for the nearest of the known names, where there is one, and the list of them."""
    names = list(known)
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return (f": did you mean {near[0]!r}?" if near else "") + f" (known: {', '.join(names)})"


def parse_source(text: str) -> SourceConfig:
    """``NAME:KIND:WEIGHT[:EPOCHS]`` as one source of a mixture.

    Raises:
        ValueError: what was found and what was expected.
    """
    parts = text.split(":")
    if len(parts) not in (3, 4) or parts[1] not in ("code", "text", "chat"):
        raise ValueError(f"source {text!r}: expected NAME:KIND:WEIGHT[:EPOCHS] with KIND code, text or chat")
    epochs = float(parts[3]) if len(parts) == 4 else None
    return SourceConfig(parts[0], parts[1], float(parts[2]), epochs)  # type: ignore[arg-type]


def format_source(source: SourceConfig) -> str:
    """Inverse of `parse_source`."""
    text = f"{source.name}:{source.kind}:{source.weight!r}"
    return text if source.epochs is None else f"{text}:{source.epochs!r}"


def parse(
    config: type[T],
    argv: Sequence[str] | None = None,
    *,
    default: T | None = None,
    prog: str | None = None,
    bare_flags: bool = False,
) -> T:
    """Read a frozen dataclass from the command line. Unknown flags name the nearest one; exit code 2.

    A value that the dataclass itself refuses (ValueError) is said in one line, with the same exit code.

    ``bare_flags``: a bool is ``--handicap`` or ``--no-handicap`` instead of ``--handicap True``.
    """
    import tyro  # here: workers and the server import this module and never see a command line

    registry = tyro.constructors.ConstructorRegistry()

    @registry.primitive_rule
    def source_rule(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec | None:
        if info.type is not SourceConfig:
            return None
        return tyro.constructors.PrimitiveConstructorSpec(
            nargs=1,
            metavar="NAME:KIND:WEIGHT[:EPOCHS]",
            instance_from_str=lambda args: parse_source(args[0]),
            is_instance=lambda value: isinstance(value, SourceConfig),
            str_from_instance=lambda value: [format_source(value)],
        )

    try:
        parsed: T = tyro.cli(  # type: ignore[assignment]
            config,
            args=argv,
            default=default,
            prog=prog,
            config=() if bare_flags else (tyro.conf.FlagConversionOff,),
            registry=registry,
        )
    except ValueError as error:
        print(f"{prog or Path(sys.argv[0]).name}: {error}", file=sys.stderr)
        raise SystemExit(2) from error
    return parsed
