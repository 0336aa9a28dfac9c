"""What weights of fewer bits cost in quality: python tests/perf/rounding_cost.py --model RUN --corpus FOLDER.

Held-out rows of a corpus are scored by the engine with float32, bfloat16 and int8 weights of one trained model: nats a
token, and against float32 the share of positions with the same first choice, the difference of a token's
log-probability and the divergence over the twenty likeliest tokens and the rest. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import queue
import sys
from pathlib import Path
from typing import Any

import numpy as np

ROOT = Path(__file__).resolve().parents[2]
KINDS = {"float32": {}, "bfloat16": {"dtype": "bfloat16"}, "int8": {"quantization": "int8"}}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True, help="run folder or Hugging Face folder")
    parser.add_argument("--corpus", required=True, help="corpus folder of the same tokenizer")
    parser.add_argument("--rows", type=int, default=8, help="rows of every held-out source")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    from lemur_ray.corpus.manifest import row_folder
    from lemur_ray.corpus.rows import RowReader
    from lemur_ray.serve.config import EngineOptions
    from lemur_ray.serve.loading import open_engine
    from lemur_ray.weights.open_model import open_chat_model

    source = open_chat_model(options.model).source
    folders = sorted(row_folder(options.corpus, "x").parent.glob("heldout-*"))
    readers = [RowReader(folder) for folder in folders]
    prompts = [
        tuple(row[: source.config.max_seq_len].tolist())
        for reader in readers
        for row in reader.read(np.arange(min(options.rows, len(reader)))).tokens
    ]
    found = {}
    for name, kind in KINDS.items():
        engine = open_engine(source, EngineOptions(max_slots=8, **kind)).start()  # type: ignore[arg-type]
        found[name] = _scored(engine, prompts)
        engine.close()
    plain = found["float32"]
    summary = {}
    for name, (logprob, top_ids, top_logprobs) in found.items():
        off = np.abs(logprob - plain[0])
        numbers = {
            "nats_per_token": -logprob.mean(),
            "same_first_choice": (top_ids[:, 0] == plain[1][:, 0]).mean(),
            "mean_difference": off.mean(),
            "largest_difference": off.max(),
            "divergence": _divergence(plain, (logprob, top_ids, top_logprobs)).mean(),
        }
        summary[name] = {key: round(float(value), 6) for key, value in numbers.items()}
        print(f"{name:9s} " + "  ".join(f"{key} {value:.6f}" for key, value in numbers.items()), flush=True)
    print(json.dumps({"positions": len(plain[0]), **summary}))
    return 0


def _scored(engine: Any, prompts: list[tuple[int, ...]]) -> tuple[np.ndarray, ...]:
    """(N,) log-probabilities, (N, 20) likeliest ids and theirs: of the tokens of all prompts but the first of each."""
    from lemur_ray.serve.engine.generation import Generation

    done: queue.SimpleQueue[Any] = queue.SimpleQueue()
    logprobs: dict[int, Any] = {}
    for prompt in prompts:
        request = Generation(prompt[:-1], 0, prompt_logprobs=True)
        number = engine.submit(request, lambda events: [done.put(event) for event in events], every_token=False)
        logprobs[number] = None
    while any(value is None for value in logprobs.values()):
        event = done.get(timeout=600)
        assert event.finish == "length", event
        logprobs[event.number] = event.prompt_logprobs
    return tuple(np.concatenate([value[field][1:] for value in logprobs.values()]) for field in range(3))


def _divergence(plain: tuple[np.ndarray, ...], other: tuple[np.ndarray, ...]) -> np.ndarray:
    """(N,) Kullback-Leibler divergence, over those of the 20 that both name, and the rest."""
    out = np.zeros(len(plain[0]))
    for i in range(len(out)):
        _, mine, theirs = np.intersect1d(plain[1][i], other[1][i], return_indices=True)
        p, q = np.exp(plain[2][i][mine].astype(float)), np.exp(other[2][i][theirs].astype(float))
        p, q = np.append(p, max(1 - p.sum(), 1e-9)), np.append(q, max(1 - q.sum(), 1e-9))
        out[i] = (p * np.log(p / q)).sum()
    return out


if __name__ == "__main__":
    raise SystemExit(main())
