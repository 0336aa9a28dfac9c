"""Training options: length, batches, precision, checkpoints, and rematerialisation. Knows nothing of jax."""

from dataclasses import dataclass
from typing import Literal

from lemur_ray.config.ranges import COUNT, FROM_ZERO, SEED, check_ranges

REMAT_VALUES = ("query", "key", "value", "attention", "mid", "gate", "up")
"""Values of a block that the forward pass may save for the backward pass: rotated queries and keys, values, the
attention's output with its log-sum-exp, the residual stream in mid-block, both inputs of the feed-forward product."""
REMAT_POLICIES: dict[str, tuple[str, ...]] = {
    "full": (),
    "save_dots": REMAT_VALUES,
    "save_dots_except_mlp_in": REMAT_VALUES[:5],
}
"""Policy -> values saved on the device. Further policies: "none" (save everything) and "offload"."""


def parse_remat(policy: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(values saved on the device, values saved in host memory) of a policy. Raises ValueError for an unknown one."""
    if policy in ("none", *REMAT_POLICIES):
        return REMAT_POLICIES.get(policy, REMAT_VALUES), ()
    if policy == "offload":
        return (), REMAT_VALUES
    saved: dict[str, tuple[str, ...]] = {"save": (), "offload": ()}
    for part in policy.split("+"):
        where, colon, values = part.partition(":")
        names = tuple(values.split(","))
        if not colon or where not in saved or not set(names) <= set(REMAT_VALUES):
            raise ValueError(
                f"remat is {policy!r}: expected none, {', '.join(REMAT_POLICIES)}, offload or "
                f"save:VALUE,..[+offload:VALUE,..] with values of {', '.join(REMAT_VALUES)}"
            )
        saved[where] = names
    return saved["save"], saved["offload"]


@dataclass(frozen=True)
class TrainConfig:
    """Length, batches, precision, checkpoints and evaluation of a run."""

    steps: int = 1000
    """Number of optimizer steps of the whole run."""
    rows_per_step: int = 1
    """Packed rows of one global batch (all workers together)."""
    microbatches: int = 1
    """Number of pieces that gradients of a batch are accumulated over; divides rows_per_step. At most the rows
    of each device, so several slices use fewer."""
    compute_dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of activations and of weights in matmuls; master weights are always float32."""
    remat: str = "none"
    """What the backward pass recomputes: none, full (whole blocks), save_dots (no matrix products),
    save_dots_except_mlp_in, offload (as save_dots, in the host's memory), or save:VALUE,..[+offload:VALUE,..] with the
    values query, key, value, attention, mid, gate, up."""
    attention_block: int = 0
    """Maximum tokens of a block of attention on TPU, which divides data.seq_len; 0: chosen by the generation."""
    seed: int = 0
    """Seed of the initial weights."""
    checkpoint_every_steps: int = 200
    """Steps between checkpoints; the last step always has one."""
    checkpoint_every_s: float = 600.0
    """Maximum seconds between checkpoints."""
    keep_checkpoints: int = 2
    """Number of newest checkpoints to keep."""
    keep_every_steps: int = 0
    """Checkpoints at multiples of this step are never removed; a multiple of checkpoint_every_steps. 0: none."""
    preemption_every_steps: int = 1
    """Steps between two checks of rank 0 for a preemption notice."""
    log_every_steps: int = 10
    """Steps between two lines of metrics."""
    max_failures: int = 3
    """Restarts of the worker group before the run gives up, per host: failures grow with the number of hosts."""
    skip_rows: tuple[tuple[int, int], ...] = ()
    """Half-open ranges of plan rows that are never trained on, as pairs: FIRST END."""
    spike_sigmas: float = 6.0
    """Standard deviations above the last 128 steps' mean at which a loss or gradient norm is a spike and its update is
    skipped. 0: skip only non-finite values."""
    max_skips_in_a_row: int = 8
    """Skipped updates in a row after which the run stops with an error."""
    eval_every_steps: int = 0
    """Steps between two held-out evaluations; 0: only after the last step."""
    eval_rows: int = 32
    """Held-out rows per kind that one evaluation reads, from every source of it; 0: no evaluation."""

    def __post_init__(self) -> None:
        counts = ("steps", "rows_per_step", "microbatches", "checkpoint_every_steps", "keep_checkpoints")
        free = ("checkpoint_every_s", "max_failures", "spike_sigmas", "eval_every_steps", "eval_rows")
        check_ranges(self, **dict.fromkeys(counts, COUNT), **dict.fromkeys(free, FROM_ZERO), keep_every_steps=FROM_ZERO)
        check_ranges(self, log_every_steps=COUNT, max_skips_in_a_row=COUNT, preemption_every_steps=COUNT, seed=SEED)
        if self.keep_every_steps % self.checkpoint_every_steps:
            raise ValueError(
                f"keep_every_steps is {self.keep_every_steps}: expected a multiple of checkpoint_every_steps, "
                f"{self.checkpoint_every_steps}"
            )
        parse_remat(self.remat)
        if self.attention_block < 0 or self.attention_block % 128:
            raise ValueError(f"attention_block is {self.attention_block}: expected a multiple of 128, or 0")
        for first, end in self.skip_rows:
            if not 0 <= first < end:
                raise ValueError(f"skip_rows has {first} {end}: expected FIRST END with 0 <= FIRST < END")
