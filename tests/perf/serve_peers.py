"""What the serving benchmarks compare: our engine and its peers, each in a process of its own on one pinned core.

A process takes a line of JSON, [prompts, new tokens], and answers one, [CPU seconds, ids, prompt tokens computed].
Knows nothing of what is measured.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
OURS = {
    "exact": {"batch_invariant": True},
    "fast": {"batch_invariant": False},
    "int8": {"batch_invariant": True, "quantization": "int8"},
    "no reuse": {"batch_invariant": True},
}
"""Ours: bits that do not depend on the shape of a step, without, matrices of eight bits, and with a cache in which
nothing is ever found."""
LLAMA_CPP = ("llama.cpp", "llama.cpp float32", "llama.cpp copying")
"""With its own choices (keys and values in float16) and prompts treated as its server does; keys and values in float32;
and with what all prompts begin with computed once."""
Answer = tuple[float, list[list[int]], int]
Generate = Callable[[list[list[int]], int], tuple[list[list[int]], int]]


def models() -> dict[str, Any]:
    from lemur_ray.config import ModelConfig

    common = {"vocab_size": 32000, "max_seq_len": 2048, "head_dim": 64}
    return {
        "m110": ModelConfig(
            **common, num_layers=12, dim=768, ffn_dim=2048, num_heads=12, num_kv_heads=12, tie_embeddings=True
        ),
        "s58": ModelConfig(**common, num_layers=8, dim=512, ffn_dim=1408, num_heads=8, num_kv_heads=8),
        # Heads wider than dim and half as many of keys and values, as Qwen3 0.6B has them.
        "qwen3": ModelConfig(
            **{**common, "head_dim": 128},
            num_layers=12,
            dim=768,
            ffn_dim=2304,
            num_heads=12,
            num_kv_heads=6,
            tie_embeddings=True,
            family="qwen3",
            qk_norm=True,
        ),
    }


def write(folder: str, model: str) -> int:
    """Random weights as a Hugging Face folder; returns how many of their bytes a decoded token reads, in float32."""
    os.environ["JAX_PLATFORMS"] = "cpu"
    import jax

    from lemur_ray.model.llama import init_params
    from tests.weights.whole_models import write_model

    config = models()[model]
    params = init_params(config, 0)
    write_model(params, config, None, f"{folder}/model")
    # Of a table that is not the last matrix too, a token reads one row.
    looked_up = 0 if config.tie_embeddings else config.vocab_size * config.dim
    return 4 * (sum(leaf.size for leaf in jax.tree.leaves(params)) - looked_up)


def pin() -> None:
    """This process and those that it starts, to the first core that it may use."""
    os.sched_setaffinity(0, {sorted(os.sched_getaffinity(0))[0]})


class Peer:
    """One of OURS, "transformers", or one of LLAMA_CPP, which the Python ``llama_cpp`` runs."""

    def __init__(self, name: str, folder: str, dtype: str, slots: int, context: int, llama_cpp: str = "") -> None:
        env = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "JAX_PLATFORMS": "cpu"}
        python = llama_cpp if name in LLAMA_CPP else sys.executable
        command = [python, __file__, name, folder, dtype, str(slots), str(context)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=env)
        assert self._line() == "ready\n"

    def ask(self, prompts: list[list[int]], new: int) -> Answer:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([prompts, new]) + "\n")
        self._process.stdin.flush()
        cpu_s, ids, computed = json.loads(self._line())
        return cpu_s, ids, computed

    def close(self) -> None:
        self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("name", "folder", "dtype"):
        parser.add_argument(name)
    for name in ("slots", "context"):
        parser.add_argument(name, type=int)
    options = parser.parse_args()
    pin()
    if options.name in OURS:
        generate = _ours(options)
    else:
        generate = _transformers(options) if options.name == "transformers" else _llama_cpp(options)
    print("ready", flush=True)
    for line in sys.stdin:
        prompts, new = json.loads(line)
        begin = time.process_time()
        ids, computed = generate(prompts, new)
        print(json.dumps([time.process_time() - begin, ids, computed]), flush=True)
    return 0


def _ours(options: argparse.Namespace) -> Generate:
    from lemur_ray.serve.config import EngineOptions
    from lemur_ray.serve.engine.generation import Generation
    from lemur_ray.serve.loading import open_engine
    from lemur_ray.weights.hf_tensors import HuggingFaceWeights
    from tests.serve import offline

    source = HuggingFaceWeights(f"{options.folder}/model")
    kind: dict[str, Any] = OURS[options.name]
    sized = EngineOptions(
        max_slots=options.slots,
        context=options.context,
        prefill_tiles=8,
        cache_bytes=2 * 2**30,
        dtype=options.dtype,
        **kind,
    )
    engine = open_engine(source, sized).start()
    if options.name == "no reuse":
        engine._batch.cache.tree.find = lambda tokens: ([], None, 0)  # type: ignore[method-assign]

    def generate(prompts: list[list[int]], new: int) -> tuple[list[list[int]], int]:
        before = engine.stats.prefill_tokens
        ids = offline.generate(engine, [Generation(tuple(p), new) for p in prompts])
        return ids, engine.stats.prefill_tokens - before

    return generate


def _transformers(options: argparse.Namespace) -> Generate:
    import torch
    import transformers

    torch.set_num_threads(1)
    model = transformers.AutoModelForCausalLM.from_pretrained(
        f"{options.folder}/model", dtype=getattr(torch, options.dtype)
    ).eval()

    def generate(prompts: list[list[int]], new: int) -> tuple[list[list[int]], int]:
        ids = torch.tensor(prompts)
        limits = {"min_new_tokens": new, "max_new_tokens": new, "do_sample": False, "pad_token_id": 0}
        with torch.no_grad():
            out = model.generate(ids, attention_mask=torch.ones_like(ids), **limits)
        return out[:, ids.shape[1] :].tolist(), ids.numel()

    return generate


def _llama_cpp(options: argparse.Namespace) -> Generate:
    import llama_cpp_peer

    path = f"{options.folder}/{options.name.replace(' ', '-')}.gguf"
    llama_cpp_peer.write_gguf(f"{options.folder}/model", path, options.dtype)
    kind = {"float32_cache": options.name == "llama.cpp float32", "copies": options.name == "llama.cpp copying"}
    model = llama_cpp_peer.LlamaCpp(path, options.slots, options.context, **kind)

    def generate(prompts: list[list[int]], new: int) -> tuple[list[list[int]], int]:
        before = model.prefilled
        return model.generate(prompts, new), model.prefilled - before

    return generate


if __name__ == "__main__":
    raise SystemExit(main())
