"""Training throughput against transformers + torch: python tests/perf/train/train_throughput.py [--width 256].

The same architecture, batch, length and optimizer (AdamW, clipping), float32 in both, one thread each, pinned to one
core, in processes of their own that take turns within one run. What counts is tokens per second of process CPU time;
wall time is printed beside it and means little on a shared machine. ``--operands bfloat16`` rounds the operands of our
matrix products and gives torch its autocast to bfloat16, both with float32 master weights. ``--documents`` packs
several documents into a row (torch then still attends over the whole row). The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
HEAD = 32


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--length", type=int, default=1024)
    parser.add_argument("--rows", type=int, default=1)
    parser.add_argument("--vocab", type=int, default=2048)
    parser.add_argument("--at-least", type=float, default=1.1, help="median ratio below which the exit status is 1")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--steps", type=int, default=4, help="steps of one turn")
    parser.add_argument("--operands", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--documents", action="store_true")
    parser.add_argument("--worker", choices=tuple(MAKERS), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return serve_turns(options)
    workers = {name: start(name) for name in MAKERS}
    rates: dict[str, list[float]] = {name: [] for name in workers}
    for turn in range(options.rounds + 1):
        for name, worker in workers.items():
            assert worker.stdin is not None
            assert worker.stdout is not None
            worker.stdin.write("go\n")
            worker.stdin.flush()
            cpu_s, wall_s = json.loads(worker.stdout.readline())
            tokens = options.steps * options.rows * options.length
            if turn:  # the first turn compiles and warms
                rates[name].append(tokens / cpu_s)
                print(f"{name:6s} {tokens / cpu_s:8.0f} tokens/CPU-s {tokens / wall_s:8.0f} tokens/s", flush=True)
    for worker in workers.values():
        worker.communicate()
    ratios = sorted(ours / torch for ours, torch in zip(rates["ours"], rates["torch"], strict=True))
    summary: dict[str, Any] = {
        "width": options.width, "layers": options.layers, "length": options.length, "rows": options.rows,
        "vocab": options.vocab, "operands": options.operands, "documents": options.documents, "rounds": options.rounds,
        **{f"{name}_tokens_per_cpu_s": [round(value) for value in spread(rate)] for name, rate in rates.items()},
        "ratio": [round(value, 3) for value in spread(ratios)],
    }  # fmt: skip
    print(json.dumps(summary))
    return 0 if summary["ratio"][1] >= options.at_least else 1


def spread(values: list[float]) -> list[float]:
    """Smallest, median, largest."""
    return [min(values), statistics.median(values), max(values)]


def start(name: str) -> subprocess.Popen[str]:
    """A worker with one thread on the last core, with the allocator that our training workers have (ours only)."""
    sys.path.insert(0, str(ROOT))
    from lemur_ray.train.on_ray.worker_environment import allocator_environment

    core = max(os.sched_getaffinity(0))
    env = {**os.environ, "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    if name == "ours":
        env |= allocator_environment()
    return subprocess.Popen(
        [sys.executable, __file__, *sys.argv[1:], "--worker", name],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env,
        preexec_fn=lambda: os.sched_setaffinity(0, {core}),
    )  # fmt: skip


def serve_turns(options: argparse.Namespace) -> int:
    """Run a turn for every line on stdin and answer with its CPU and wall seconds."""
    step: Callable[[], None] | None = None
    for _ in sys.stdin:
        if step is None:
            step = MAKERS[options.worker](options)
            step()
        cpu, wall = time.process_time(), time.perf_counter()
        for _ in range(options.steps):
            step()
        print(json.dumps([time.process_time() - cpu, time.perf_counter() - wall]), flush=True)
    return 0


def ours(options: argparse.Namespace) -> Callable[[], None]:
    import jax
    import numpy as np

    from lemur_ray.config import DataConfig, ModelConfig, OptimizerConfig, Recipe, TrainConfig
    from lemur_ray.train.step import init_state, make_train_step

    width, heads = options.width, options.width // HEAD
    recipe = Recipe(
        model=ModelConfig(
            vocab_size=options.vocab, num_layers=options.layers, dim=width, ffn_dim=3 * width, num_heads=heads,
            num_kv_heads=heads, head_dim=HEAD, max_seq_len=options.length,
        ),
        optimizer=OptimizerConfig(name="adamw", peak_lr=1e-3, eps=1e-8),
        data=DataConfig(seq_len=options.length),
        train=TrainConfig(rows_per_step=options.rows, compute_dtype=options.operands),
    )  # fmt: skip
    rows, length = options.rows, options.length
    shares = (29, 25, 31) if options.documents else ()
    lengths = [length * share // 100 for share in shares]
    lengths.append(length - sum(lengths))
    tokens = np.random.default_rng(0).integers(0, options.vocab, (rows, length + 1)).astype(np.int32)
    segments = np.repeat(np.arange(1, len(lengths) + 1, dtype=np.int32), lengths)
    positions = np.concatenate([np.arange(n, dtype=np.int32) for n in lengths])
    batch = {
        "tokens": tokens[:, :-1],
        "targets": tokens[:, 1:],
        "loss_weights": np.ones((rows, length), np.float32),
        "segment_ids": np.tile(segments, (rows, 1)),
        "positions": np.tile(positions, (rows, 1)),
        "source": np.zeros(rows, np.int32),
    }
    state = [init_state(recipe)]
    compiled = make_train_step(recipe, num_sources=1)

    def step() -> None:
        state[0], metrics = compiled(state[0], jax.device_put(batch))
        float(metrics["loss"])

    return step


def torch(options: argparse.Namespace) -> Callable[[], None]:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.set_num_threads(1)
    width, heads = options.width, options.width // HEAD
    model = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=options.vocab, hidden_size=width, intermediate_size=3 * width,
            num_hidden_layers=options.layers, num_attention_heads=heads, num_key_value_heads=heads,
            max_position_embeddings=options.length,
            tie_word_embeddings=False, attn_implementation="sdpa",
        )
    ).train()  # fmt: skip
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=1e-3, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, fused=True
    )
    tokens = torch.randint(0, options.vocab, (options.rows, options.length))
    rounded = options.operands == "bfloat16"

    def step() -> None:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=rounded):
            loss = model(input_ids=tokens, labels=tokens, use_cache=False).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        loss.item()

    return step


MAKERS = {"ours": ours, "torch": torch}

if __name__ == "__main__":
    raise SystemExit(main())
