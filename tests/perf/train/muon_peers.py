"""Our muon beside that of optax.contrib, on one model and the same data.

    python tests/perf/train/muon_peers.py [--steps 250]

Directions of a stacked matrix update by update, losses of a small model over a run with several seeds, and CPU time of
one update of nano's matrices in a process with one thread. The text is Python's standard library, byte by byte.
The last line is JSON.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
LENGTH, ROWS = 256, 2
OURS, ROUNDED, THEIRS = "ours, float32", "ours, bfloat16", "optax"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=250)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--turns", type=int, default=15, help="updates of each kind that are timed")
    options = parser.parse_args()
    os.environ.update(JAX_PLATFORMS="cpu", NPROC="1", XLA_FLAGS="--xla_cpu_multi_thread_eigen=false")
    sys.path.insert(0, str(ROOT))
    summary: dict[str, Any] = {"update_cpu_ms": cpu_times(options.turns), "differences": differences(40)}
    print(json.dumps(summary), flush=True)
    summary["losses"] = {}
    for seed in range(options.seeds):
        for kind in (OURS, THEIRS, ROUNDED):
            found = losses(kind, seed, options.steps)
            summary["losses"].setdefault(kind, []).append(found)
            print(
                f"seed {seed}  {kind:15s} " + "  ".join(f"{step}: {loss:.4f}" for step, loss in found.items()),
                flush=True,
            )
    print(json.dumps(summary))
    return 0


def rule(kind: str) -> Any:
    """Gradients of stacked matrices (N, I, O) to directions, by one of the two."""
    import jax
    from optax.contrib import MuonDimensionNumbers, scale_by_muon

    from lemur_ray.train import muon

    if kind != THEIRS:
        return muon.scale_by_muon(0.95, "bfloat16" if kind == ROUNDED else "float32")
    dimensions = MuonDimensionNumbers(reduction_axis=1, output_axis=2)
    return scale_by_muon(beta=0.95, weight_dimension_numbers=lambda tree: jax.tree.map(lambda leaf: dimensions, tree))


def nano_matrices() -> dict[str, Any]:

    from lemur_ray.model.llama import init_params
    from lemur_ray.recipes import get_recipe

    params = init_params(get_recipe("nano").model, 0)["layers"]
    return {name: leaf for name, leaf in params.items() if leaf.ndim == 3}


def differences(updates: int) -> dict[str, list[float]]:
    """Per update, the distance of optax's direction from ours in float32 over the length of ours; seeded gradients."""
    import jax
    import jax.numpy as jnp

    params = {"wq": jnp.zeros((4, 128, 128)), "up": jnp.zeros((4, 128, 384))}
    found: dict[str, list[float]] = {name: [] for name in params}
    rules = {kind: rule(kind) for kind in (OURS, THEIRS)}
    states = {kind: made.init(params) for kind, made in rules.items()}
    steps = {kind: jax.jit(made.update) for kind, made in rules.items()}
    common = {name: jax.random.normal(jax.random.key(7), leaf.shape) for name, leaf in params.items()}
    for number in range(updates):
        grads = {
            name: 0.3 * common[name] + jax.random.normal(jax.random.fold_in(jax.random.key(1), number), leaf.shape)
            for name, leaf in params.items()
        }
        towards = {}
        for kind in rules:
            towards[kind], states[kind] = steps[kind](grads, states[kind])
        for name in params:
            ours, theirs = towards[OURS][name], towards[THEIRS][name]
            found[name].append(float(jnp.linalg.norm(ours - theirs) / jnp.linalg.norm(ours)))
    return {name: [round(values[at], 6) for at in (0, 1, 4, 9, 19, 39)] for name, values in found.items()}


def cpu_times(turns: int) -> dict[str, list[float]]:
    """Smallest and median CPU milliseconds of one update of nano's matrices; the kinds take turns."""
    import jax

    params = nano_matrices()
    grads = jax.tree.map(lambda leaf: jax.random.normal(jax.random.key(leaf.size), leaf.shape), params)
    steps, states, spent = {}, {}, dict[str, list[float]]()
    for kind in (OURS, ROUNDED, THEIRS):
        made = rule(kind)
        steps[kind], states[kind] = jax.jit(made.update, donate_argnums=1), made.init(params)
        _, states[kind] = jax.block_until_ready(steps[kind](grads, states[kind]))
    for _ in range(turns):
        for kind, step in steps.items():
            began = time.process_time()
            _, states[kind] = jax.block_until_ready(step(grads, states[kind]))
            spent.setdefault(kind, []).append(1e3 * (time.process_time() - began))
    return {kind: [round(min(values), 2), round(statistics.median(values), 2)] for kind, values in spent.items()}


def losses(kind: str, seed: int, steps: int) -> dict[int, float]:
    """Mean loss of the last 25 steps at every fiftieth step of a run of nano's shape over bytes."""
    import jax
    import numpy as np

    from lemur_ray.config import DataConfig, TrainConfig
    from lemur_ray.recipes import get_recipe
    from lemur_ray.train import optimizer
    from lemur_ray.train.step import init_state, make_train_step

    nano = get_recipe("nano")
    recipe = dataclasses.replace(
        nano,
        model=dataclasses.replace(nano.model, vocab_size=256, max_seq_len=LENGTH),
        data=DataConfig(seq_len=LENGTH),
        train=TrainConfig(steps=steps, rows_per_step=ROWS, seed=seed, compute_dtype="bfloat16"),
    )
    optimizer.scale_by_muon = lambda momentum, dtype="float32": rule(kind)  # type: ignore[assignment]
    text = np.frombuffer(
        b"".join(path.read_bytes() for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py"))), np.uint8
    )
    starts = np.random.default_rng(seed).integers(0, len(text) - LENGTH - 1, (steps, ROWS))
    ones = np.ones((ROWS, LENGTH), np.int32)
    place = {"segment_ids": ones, "positions": np.tile(np.arange(LENGTH, dtype=np.int32), (ROWS, 1)),
             "loss_weights": ones.astype(np.float32), "source": np.zeros(ROWS, np.int32)}  # fmt: skip
    state, step = init_state(recipe), make_train_step(recipe, num_sources=1)
    seen = []
    for first in starts:
        rows = np.stack([text[at : at + LENGTH + 1] for at in first]).astype(np.int32)
        state, metrics = step(state, jax.device_put({**place, "tokens": rows[:, :-1], "targets": rows[:, 1:]}))
        seen.append(float(metrics["loss"]))
    return {at: round(float(np.mean(seen[at - 25 : at])), 4) for at in range(50, steps + 1, 50)}


if __name__ == "__main__":
    raise SystemExit(main())
