"""Serving throughput against transformers' ``generate``: python tests/perf/serve_throughput.py [--model m110].

The same random weights, prompts and greedy choice, one dtype in all, one thread each, pinned to one core, in processes
of their own that take turns within one run. In float32 the ids of all must be equal. What counts is tokens per second
of process CPU time, the Python loop included: decode is what ``new`` tokens cost beyond the first one, prefill what
the first one costs. ``--episodes N`` instead plays conversations of ten turns behind a header of 1,000 tokens that all
share, with and without the reuse of what is cached. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
SHAPES = ((1, 64, 32), (8, 32, 16), (32, 32, 16))
"""Batch, prompt and new tokens."""
SERVERS = ("exact", "fast", "int8", "transformers")
"""Ours with bits that do not depend on the shape of a step, without, and with matrices of eight bits."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=tuple(_models()), default="m110")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--episodes", type=int, default=0)
    parser.add_argument("--worker", choices=SERVERS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return _serve_turns(options)
    if options.episodes:
        return _episodes(options)
    with tempfile.TemporaryDirectory() as folder:
        _write(folder, options.model)
        workers = {name: _start(name, folder, options) for name in SERVERS}
        found: dict[tuple[int, str], dict[str, list[float]]] = {}
        for turn in range(options.rounds + 1):
            for batch, length, new in SHAPES:
                ids = {}
                for name, worker in workers.items():
                    first_s, _ = _ask(worker, turn, batch, length, 1)
                    whole_s, ids[name] = _ask(worker, turn, batch, length, new)
                    if turn:  # the first turn compiles and warms
                        rates = found.setdefault((batch, name), {"prefill": [], "decode": []})
                        rates["prefill"].append(batch * length / first_s)
                        rates["decode"].append(batch * (new - 1) / max(whole_s - first_s, 1e-9))
                # In bfloat16 and with eight bits two tokens are close too often for ids to mean anything.
                assert options.dtype == "bfloat16" or ids["exact"] == ids["fast"] == ids["transformers"], (
                    f"batch {batch}, turn {turn}: other ids"
                )
        for worker in workers.values():
            worker.communicate()
    summary: dict[str, Any] = {"model": options.model, "dtype": options.dtype}
    for batch, _, _ in SHAPES:
        for kind in ("prefill", "decode"):
            theirs = found[batch, "transformers"][kind]
            for name in SERVERS[:-1]:
                ours = found[batch, name][kind]
                ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
                print(
                    f"batch {batch:2d} {kind:7s} {name:5s} {statistics.median(ours):8.0f} against "
                    f"{statistics.median(theirs):8.0f} tokens/CPU-s: {statistics.median(ratios):.2f}x "
                    f"({min(ratios):.2f} to {max(ratios):.2f})"
                )
                summary[f"{kind}_{batch}_{name}"] = round(statistics.median(ratios), 3)
    print(json.dumps(summary))
    return 0


def _models() -> dict[str, Any]:
    from lemur_ray.config import ModelConfig

    common = {"vocab_size": 32000, "max_seq_len": 2048, "head_dim": 64}
    return {
        "m110": ModelConfig(
            **common, num_layers=12, dim=768, ffn_dim=2048, num_heads=12, num_kv_heads=12, tie_embeddings=True
        ),
        "s58": ModelConfig(**common, num_layers=8, dim=512, ffn_dim=1408, num_heads=8, num_kv_heads=8),
    }


def _write(folder: str, model: str) -> None:
    os.environ["JAX_PLATFORMS"] = "cpu"
    from lemur_ray.model.hf_export import export
    from lemur_ray.model.llama import init_params

    config = _models()[model]
    export(init_params(config, 0), config, None, f"{folder}/model")


def _start(name: str, folder: str, options: argparse.Namespace) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
    command = [sys.executable, __file__, "--worker", name, "--folder", folder, "--dtype", options.dtype]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def _ask(worker: subprocess.Popen[str], turn: int, batch: int, length: int, new: int) -> tuple[float, list[list[int]]]:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(json.dumps([turn, batch, length, new]) + "\n")
    worker.stdin.flush()
    cpu_s, ids = json.loads(worker.stdout.readline())
    return cpu_s, ids


def _serve_turns(options: argparse.Namespace) -> int:
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[0]})
    theirs = options.worker == "transformers"
    generate = _transformers(options) if theirs else _ours(options)
    print("ready", flush=True)
    for line in sys.stdin:
        turn, batch, length, new = json.loads(line)
        # Other prompts for the first token than for the whole reply: nothing is found in a cache.
        rng = np.random.default_rng((turn, batch, new))
        prompts = rng.integers(10, 32000, (batch, length)).tolist()
        begin = time.process_time()
        ids = generate(prompts, new)
        print(json.dumps([time.process_time() - begin, ids]), flush=True)
    return 0


def _ours(options: argparse.Namespace) -> Any:
    from lemur_ray.model.hf import HuggingFaceWeights
    from lemur_ray.serve.config import EngineOptions
    from lemur_ray.serve.engine import Engine
    from lemur_ray.serve.generation import Generation
    from lemur_ray.serve.offline import generate

    source = HuggingFaceWeights(f"{options.folder}/model")
    kind: Any = {"batch_invariant": options.worker != "fast", "dtype": options.dtype}
    kind |= {"quantization": "int8"} if options.worker == "int8" else {}
    sized = EngineOptions(max_slots=32, context=256, prefill_tiles=8, **kind)
    engine = Engine(source, sized).start()
    return lambda prompts, new: generate(engine, [Generation(tuple(p), new) for p in prompts])


def _transformers(options: argparse.Namespace) -> Any:
    import torch
    import transformers

    torch.set_num_threads(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        f"{options.folder}/model", dtype=getattr(torch, options.dtype)
    ).eval()

    def generate(prompts: list[list[int]], new: int) -> list[list[int]]:
        ids = torch.tensor(prompts)
        limits = {"min_new_tokens": new, "max_new_tokens": new, "do_sample": False, "pad_token_id": 0}
        with torch.no_grad():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), **limits)
        return out[:, ids.shape[1] :].tolist()

    return generate


def _episodes(options: argparse.Namespace) -> int:
    """Ten turns of 30 observed and 20 generated tokens behind one header, reuse against none, turn about."""
    from lemur_ray.model.live_weights import random_weights
    from lemur_ray.serve.config import EngineOptions
    from lemur_ray.serve.engine import Engine
    from lemur_ray.serve.generation import Generation
    from lemur_ray.serve.offline import generate

    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[0]})
    config = _models()[options.model]
    engine_options = EngineOptions(max_slots=32, context=2048, cache_bytes=8 * 2**30)
    engine = Engine(random_weights(config, 0), engine_options).start()
    summary: dict[str, Any] = {"model": options.model, "episodes": options.episodes}
    for reuse in (True, False):
        rng = np.random.default_rng(0)

        def text(length: int, rng: np.random.Generator = rng) -> list[int]:
            return [int(i) for i in rng.integers(10, 32000, length)]

        header = text(1000)
        histories = [header + text(30) for _ in range(options.episodes)]
        unique = 1000 + 30 * options.episodes
        computed, begin, wall = engine.stats.prefill_tokens, time.process_time(), time.monotonic()
        for _ in range(10):
            if not reuse:
                engine._cache.forget()
            replies = generate(engine, [Generation(tuple(h), 20) for h in histories])
            for history, reply in zip(histories, replies, strict=True):
                history += reply + text(30)
                unique += 50
        unique -= 30 * options.episodes  # nobody asks about the last observation
        cpu_s, wall_s = time.process_time() - begin, time.monotonic() - wall
        computed = engine.stats.prefill_tokens - computed
        name = "reuse" if reuse else "none"
        summary[f"cpu_s_{name}"], summary[f"computed_{name}"] = round(cpu_s, 1), computed
        print(
            f"{name:5s} {cpu_s:7.1f} CPU-s {wall_s:7.1f} s, {computed} tokens prefilled, {unique} different", flush=True
        )
        engine._cache.forget()
    summary |= {"unique": unique, "speedup": round(summary["cpu_s_none"] / summary["cpu_s_reuse"], 2)}
    summary["prefilled_of_unique"] = round(summary["computed_reuse"] / unique, 3)
    engine.close()
    print(json.dumps(summary))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
