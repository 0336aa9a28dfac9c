"""Model FLOPs utilisation of the training step: python tests/perf/train/train_mfu.py [--model 70b-layers|1b] [--toy].

``70b-layers`` is four layers of Llama-2-70B's shapes, ``1b`` a whole model of 1.1B parameters; sequence 4,096, bfloat16
compute, float32 master weights, AdamW, packed documents of 512 to 4,096 tokens, on the devices that jax finds. One
line per remat policy, then JSON. Steps are timed back to back after two to warm up, and the time is that of the
whole step, optimizer included. ``--toy`` runs the same code at toy size, for machines without an accelerator.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import jax
import jax.numpy as jnp
import numpy as np

from lemur_ray.config import DataConfig, MeshConfig, ModelConfig, Recipe, TrainConfig
from lemur_ray.model.flops import CONVENTIONS, flops_per_token
from lemur_ray.model.sharding import batch_sharding, make_mesh
from lemur_ray.recipes.llama2 import LLAMA2_70B, llama2_optimizer
from lemur_ray.train.run.speed import PEAK_FLOPS
from lemur_ray.train.step import abstract_state, execution, init_state, make_train_step

MODELS = {
    "70b-layers": dataclasses.replace(LLAMA2_70B, num_layers=4),
    "1b": ModelConfig(vocab_size=32_000, num_layers=22, dim=2048, ffn_dim=5632, num_heads=16, num_kv_heads=4,
                      head_dim=128, max_seq_len=4096),
}  # fmt: skip
TOY = ModelConfig(vocab_size=512, num_layers=2, dim=256, ffn_dim=512, num_heads=2, num_kv_heads=2, head_dim=128)


def packed(rows: int, length: int, vocab: int) -> dict[str, np.ndarray]:
    """Random tokens in documents of an eighth of the row to all of it."""
    rng = np.random.default_rng(0)
    tokens = rng.integers(1, vocab, (rows, length)).astype(np.int32)
    segments, positions = np.zeros((2, rows, length), np.int32)
    for row in range(rows):
        cuts = np.sort(rng.choice(np.arange(1, 8), rng.integers(0, 4), replace=False)) * (length // 8)
        starts = np.concatenate([[0], cuts])
        segments[row] = np.searchsorted(starts, np.arange(length), side="right")
        positions[row] = np.arange(length) - starts[segments[row] - 1]
    return {
        "tokens": tokens, "targets": np.roll(tokens, -1, 1), "segment_ids": segments, "positions": positions,
        "loss_weights": np.ones((rows, length), np.float32), "source": np.zeros(rows, np.int32),
    }  # fmt: skip


def measure(recipe: Recipe, steps: int) -> dict[str, Any]:
    """Seconds of a step and what follows from them."""
    mesh = make_mesh(recipe.mesh)
    place = jax.tree.map(lambda leaf: leaf.sharding, abstract_state(recipe, mesh))
    state = jax.jit(lambda: init_state(recipe), out_shardings=place)()
    step = make_train_step(recipe, mesh, num_sources=1)
    arrays = packed(recipe.train.rows_per_step, recipe.data.seq_len, recipe.model.vocab_size)
    batch = jax.device_put({name: jnp.asarray(array) for name, array in arrays.items()}, batch_sharding(mesh))
    for _ in range(2):
        state, metrics = step(state, batch)
        jax.block_until_ready(metrics)
    began = time.perf_counter()
    for _ in range(steps):
        state, metrics = step(state, batch)
    jax.block_until_ready(state)
    step_s = (time.perf_counter() - began) / steps
    device, speed = jax.devices()[0], recipe.tokens_per_step / step_s
    peak = PEAK_FLOPS.get(device.device_kind, 0.0) * mesh.size
    flops = {c: speed * flops_per_token(recipe.model, recipe.data.seq_len, c) for c in CONVENTIONS}
    used = {f"mfu_{c}": round(flops[c] / peak, 4) for c in CONVENTIONS if peak}
    memory = (device.memory_stats() or {}).get("peak_bytes_in_use", 0) / 2**30
    return {
        "remat": recipe.train.remat, "rows": recipe.train.rows_per_step, "microbatches": recipe.train.microbatches,
        "attention": execution(recipe, mesh).forward.attention, "step_s": round(step_s, 4),
        "tokens_per_s": round(speed),
        "loss": float(metrics["loss"]), "peak_gib": round(memory, 2), **used,
    }  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=tuple(MODELS), default="70b-layers")
    parser.add_argument("--rows", type=int, default=2)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--remat", nargs="*", default=["none", "save_dots", "save_dots_except_mlp_in", "full"])
    parser.add_argument("--toy", action="store_true")
    options = parser.parse_args()
    model, length = (TOY, 256) if options.toy else (MODELS[options.model], 4096)
    results = []
    for remat in options.remat:
        recipe = Recipe(
            name=options.model, model=model, optimizer=llama2_optimizer(3e-4), data=DataConfig(seq_len=length),
            train=TrainConfig(rows_per_step=options.rows, compute_dtype="bfloat16", remat=remat), mesh=MeshConfig(),
        )  # fmt: skip
        try:
            results.append(measure(recipe, options.steps))
        except jax.errors.JaxRuntimeError as error:
            results.append({"remat": remat, "error": str(error).splitlines()[0][:200]})
        print(results[-1], flush=True)
    device = jax.devices()[0].device_kind
    print(json.dumps({"model": "toy" if options.toy else options.model, "device": device, "results": results}))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
