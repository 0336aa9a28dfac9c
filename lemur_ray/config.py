"""A whole run as one frozen value: the recipe, its hash, and the command line that edits it.

Knows nothing of jax, Ray or files. Every field states its unit; recipes live in ``lemur_ray/recipes``.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

import tyro

T = TypeVar("T")


@dataclass(frozen=True)
class ModelConfig:
    """Shape of a Llama-family model (pre-norm RMSNorm, RoPE, grouped-query attention, SwiGLU, no biases)."""

    vocab_size: int = 2048
    """Rows of the embedding and of the output head; at least the tokenizer's vocabulary."""
    num_layers: int = 4
    """Transformer blocks."""
    dim: int = 128
    """Width of the residual stream."""
    ffn_dim: int = 384
    """Width of the gated feed-forward layer."""
    num_heads: int = 4
    """Query heads."""
    num_kv_heads: int = 4
    """Key/value heads; divides num_heads."""
    head_dim: int = 32
    """Width of one head."""
    max_seq_len: int = 1024
    """Longest context in tokens."""
    rope_theta: float = 10_000.0
    """Base of the rotary frequencies."""
    norm_eps: float = 1e-5
    """Epsilon of RMSNorm, computed in float32."""
    tie_embeddings: bool = False
    """Share the embedding with the output head."""


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


@dataclass(frozen=True)
class SourceConfig:
    """One source of a mixture."""

    name: str = ""
    """Name of the source in the corpus manifest."""
    kind: Literal["code", "text", "chat"] = "text"
    """What it counts as in the code : text ratio."""
    weight: float = 1.0
    """Share of the rows; weights are normalised by their own sum."""
    epochs: float | None = None
    """Passes over the rows used. None: as many as the run needs, at most one where unstated sources run out."""


@dataclass(frozen=True)
class DataConfig:
    """Which rows a run reads, and in which order."""

    sources: tuple[SourceConfig, ...] = ()
    """The mixture. Empty: every source of the corpus, each kind split by its number of tokens."""
    code_to_text: float = 10.0
    """Rows of code per row of text where sources is empty (paper A.1.2: 10)."""
    seq_len: int = 1024
    """Tokens of one packed row."""
    seed: int = 0
    """Seed of the order of rows."""
    mask_documents: bool = True
    """Attention stays inside a document. False: packed documents see each other, as the paper's base code had it."""


@dataclass(frozen=True)
class TrainConfig:
    """How long and how a run trains."""

    steps: int = 1000
    """Optimizer steps."""
    rows_per_step: int = 1
    """Packed rows of one global batch."""
    microbatches: int = 1
    """Pieces one batch is accumulated over; divides rows_per_step."""
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of activations and of weights in matmuls; master weights are always float32."""
    remat: Literal["none", "full", "dots"] = "none"
    """What the backward pass recomputes: nothing, whole blocks, or everything but matmul outputs."""
    seed: int = 0
    """Seed of the initial weights."""
    checkpoint_every_steps: int = 200
    """Steps between checkpoints; the last step always has one."""
    checkpoint_every_s: float = 600.0
    """Seconds between checkpoints at most."""
    keep_checkpoints: int = 2
    """Newest checkpoints kept."""
    log_every_steps: int = 10
    """Steps between two lines of metrics."""
    max_failures: int = 3
    """Restarts of the worker group after a crash before the run gives up."""
    skip_rows: tuple[tuple[int, int], ...] = ()
    """Half-open ranges of plan rows that are never trained on."""


@dataclass(frozen=True)
class MeshConfig:
    """Where a run trains: workers asked of Ray, and the mesh over their devices."""

    num_workers: int = 1
    """Ray Train workers, one per host."""
    use_tpu: bool = False
    """Workers are hosts of a TPU slice."""
    use_gpu: bool = False
    """Workers own one GPU each."""
    topology: str = ""
    """TPU slice topology, for example 4x8x8."""
    accelerator_type: str = ""
    """Ray's name of the TPU generation, for example TPU-V4."""
    cpus_per_worker: float = 1.0
    """CPUs reserved for one worker."""
    dcn: int = 1
    """Slices (data parallel over the data-centre network)."""
    fsdp: int = -1
    """Devices that parameters and batch are sharded over; -1: all that are left."""
    tp: int = 1
    """Devices that share one matmul."""


@dataclass(frozen=True)
class Recipe:
    """Everything that decides the numbers of a run. Its hash is in every checkpoint and every report."""

    name: str = "nano"
    """Name of the recipe."""
    source: str = ""
    """Where its numbers come from (section of the paper)."""
    model: ModelConfig = ModelConfig()
    optimizer: OptimizerConfig = OptimizerConfig()
    data: DataConfig = DataConfig()
    train: TrainConfig = TrainConfig()
    mesh: MeshConfig = MeshConfig()

    @property
    def hash(self) -> str:
        """16 hex digits over every field that decides the numbers; the mesh, logging and checkpoint timing do not."""
        return hashlib.sha256(json.dumps(identity(self), sort_keys=True).encode()).hexdigest()[:16]


_NOT_IDENTITY = ("checkpoint_every_steps", "checkpoint_every_s", "keep_checkpoints", "log_every_steps", "max_failures")


def identity(recipe: Recipe) -> dict[str, Any]:
    """The fields of a recipe that decide its numbers, as nested JSON values."""
    value = json.loads(json.dumps(dataclasses.asdict(recipe)))
    del value["mesh"], value["source"]
    for name in _NOT_IDENTITY:
        del value["train"][name]
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


def lemur_home() -> Path:
    """Root of everything the project writes by default: ``$LEMUR_HOME``, else ``~/lemur``. Absolute."""
    return Path(os.environ.get("LEMUR_HOME") or Path.home() / "lemur").expanduser().absolute()


def resolve_out(out: str, default: str) -> str:
    """Absolute form of ``--out``: URIs as they are, empty means ``$LEMUR_HOME/<default>``, relative paths lie in there.

    A Ray job runs in a temporary folder that vanishes, so nothing is ever resolved against the working directory.
    """
    if "://" in out:
        return out.rstrip("/")
    path = Path(out).expanduser() if out else Path(default)
    return str(path if path.is_absolute() else lemur_home() / path)


def parse(config: type[T], argv: Sequence[str] | None = None, *, default: T | None = None, prog: str | None = None) -> T:
    """Read a frozen dataclass from the command line. Unknown flags name the nearest one; exit code 2."""
    return tyro.cli(config, args=argv, default=default, prog=prog, config=(tyro.conf.FlagConversionOff,))
