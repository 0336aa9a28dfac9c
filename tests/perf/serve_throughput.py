"""Serving throughput against transformers and llama.cpp: python tests/perf/serve_throughput.py [--model m110].

The same random weights, prompts and greedy choice, one dtype in all, one thread each, pinned to one core, in processes
of their own that take turns within one run. In float32 the ids of all but llama.cpp must be equal; of its replies it is
told how many are. What counts is tokens per second of process CPU time, the Python loop included: decode is what
``new`` tokens cost beyond the first one, prefill what the first one costs. In float32 it is also told what share decode
of one sequence has of the rate at which a plain sum would read the weights, measured in between. llama.cpp takes part
with ``--llama-cpp``, a Python that has ``llama-cpp-python`` and ``gguf``: once as it comes, with keys and values in
float16 and flash attention, once with them in float32 without. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections import defaultdict
from typing import Any

import numpy as np
import torch
from serve_peers import Peer, models, pin, write

SHAPES = ((1, 64, 32), (8, 32, 16), (32, 32, 16))
"""Batch, prompt and new tokens."""
OURS = ("exact", "fast", "int8")
LLAMA_CPP = ("llama.cpp", "llama.cpp float32")
Rates = dict[tuple[int, str, str], list[float]]
"""By batch, peer and "prefill" or "decode", tokens per CPU-second in each round."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=tuple(models()), default="m110")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--llama-cpp", default="", metavar="PYTHON")
    options = parser.parse_args()
    pin()
    theirs = ("transformers", *LLAMA_CPP) if options.llama_cpp else ("transformers",)
    rates: Rates = defaultdict(list)
    equal: dict[str, list[bool]] = {name: [] for name in theirs[1:]}
    sums_gb_s: list[float] = []
    numbers = torch.from_numpy(np.ones(10**8, np.float32))
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        read_bytes = write(folder, options.model)
        peers = {
            name: Peer(name, folder, options.dtype, slots=32, context=256, llama_cpp=options.llama_cpp)
            for name in OURS + theirs
        }
        for turn in range(options.rounds + 1):  # the first turn compiles and warms
            found = [_sum_gb_s(numbers) for _ in range(3)]
            sums_gb_s += found if turn else []
            for batch, length, new in SHAPES:
                ids = {}
                for name, peer in peers.items():
                    # Other prompts for the first token than for the whole reply: nothing is found in a cache.
                    first_s, _, _ = peer.ask(_prompts(turn, batch, length, 1), 1)
                    whole_s, ids[name], _ = peer.ask(_prompts(turn, batch, length, new), new)
                    if turn:
                        rates[batch, name, "prefill"].append(batch * length / first_s)
                        rates[batch, name, "decode"].append(batch * (new - 1) / max(whole_s - first_s, 1e-9))
                # In bfloat16 and with eight bits two tokens are close too often for ids to mean anything.
                assert options.dtype == "bfloat16" or ids["exact"] == ids["fast"] == ids["transformers"], (
                    f"batch {batch}, turn {turn}: other ids"
                )
                for name, same in equal.items():
                    same += [a == b for a, b in zip(ids["transformers"], ids[name], strict=True)]
        for peer in peers.values():
            peer.close()
    summary: dict[str, Any] = {"model": options.model, "dtype": options.dtype}
    for other in theirs:
        summary |= _compare(rates, other)
    for name, same in equal.items():
        print(f"{name}: {sum(same)} of {len(same)} replies have the ids of transformers")
        summary |= {"replies": len(same), f"equal_{name}": sum(same)}
    if options.dtype == "float32":
        summary |= _shares(rates, ("exact", "fast", *theirs), sums_gb_s, read_bytes)
    print(json.dumps(summary))
    return 0


def _prompts(turn: int, batch: int, length: int, new: int) -> list[list[int]]:
    return np.random.default_rng((turn, batch, new)).integers(10, 32000, (batch, length)).tolist()


def _sum_gb_s(numbers: torch.Tensor) -> float:
    """In torch: numpy's and jax's sums wait for their additions, not for the memory."""
    begin = time.process_time()
    numbers.sum()
    return numbers.nbytes / (time.process_time() - begin) / 1e9


def _compare(rates: Rates, other: str) -> dict[str, float]:
    summary = {}
    for batch, _, _ in SHAPES:
        for kind in ("prefill", "decode"):
            theirs = rates[batch, other, kind]
            for name in OURS:
                ours = rates[batch, name, kind]
                ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
                print(
                    f"batch {batch:2d} {kind:7s} {name:5s} {statistics.median(ours):8.0f} against "
                    f"{statistics.median(theirs):8.0f} of {other}, tokens/CPU-s: {statistics.median(ratios):.2f}x "
                    f"({min(ratios):.2f} to {max(ratios):.2f})"
                )
                against = "" if other == "transformers" else f"_{other}"
                summary[f"{kind}_{batch}_{name}{against}"] = round(statistics.median(ratios), 3)
    return summary


def _shares(rates: Rates, names: tuple[str, ...], sums_gb_s: list[float], read_bytes: int) -> dict[str, float]:
    gb_s = statistics.median(sums_gb_s)
    limit = gb_s * 1e9 / read_bytes
    print(
        f"a plain sum reads {gb_s:.1f} GB/s of CPU time ({min(sums_gb_s):.1f} to {max(sums_gb_s):.1f}): {limit:.1f} "
        f"tokens/CPU-s of {read_bytes / 1e6:.0f} MB each"
    )
    summary = {"sum_gb_s": round(gb_s, 2)}
    for name in names:
        share = statistics.median(rates[1, name, "decode"]) / limit
        print(f"batch  1 decode  {name} {share:.2f} of that")
        summary[f"share_{name}"] = round(share, 3)
    return summary


if __name__ == "__main__":
    raise SystemExit(main())
