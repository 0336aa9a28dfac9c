"""Ten turns behind a shared header, with and without reuse and against llama.cpp: python tests/perf/serve_episodes.py.

Every turn each of N conversations adds 30 observed tokens and asks for 20; a header of 1,000 tokens begins them all.
The peers (``serve_peers.py``) have the same weights, one pinned core each, and take turns at every turn of the
conversation. What counts is CPU time of the process and how many prompt tokens were computed, against how many are
different. "llama.cpp" does what its server does: a slot keeps its conversation, and each slot computes the header as
all conversations begin at once. "llama.cpp copying" computes it once. Both keep keys and values in float16, their
default and faster than float32, and skip HTTP, as ours does. Weights are float32 and choices greedy; it is told how
many conversations of each peer are those of the first. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
from typing import Any

import numpy as np
from serve_peers import OURS, Peer, models, pin, write

LLAMA_CPP = ("llama.cpp", "llama.cpp copying")
HEADER, OBSERVED, NEW, TURNS = 1000, 30, 20, 10


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", choices=tuple(models()), default="m110")
    parser.add_argument("--episodes", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--peers", nargs="+", choices=tuple(OURS), default=["exact", "fast", "no reuse"])
    parser.add_argument("--llama-cpp", default="", metavar="PYTHON", help="has llama-cpp-python and gguf: both join in")
    options = parser.parse_args()
    pin()
    names = [*options.peers, *LLAMA_CPP] if options.llama_cpp else options.peers
    cpu_s: dict[str, list[float]] = {name: [] for name in names}
    computed: dict[str, int] = {}
    equal = dict.fromkeys(names, 0)
    with tempfile.TemporaryDirectory() as folder:
        write(folder, options.model)
        peers = {
            name: Peer(name, folder, "float32", options.episodes, context=2048, llama_cpp=options.llama_cpp)
            for name in names
        }
        for peer in peers.values():
            peer.ask(_texts(np.random.default_rng(0), options.episodes, 64), 4)  # warms
        for number in range(1, options.rounds + 1):
            played = _play(peers, np.random.default_rng(number), options.episodes)
            for name, (seconds, computed[name], histories) in played.items():
                cpu_s[name].append(seconds)
                equal[name] += sum(a == b for a, b in zip(histories, played[names[0]][2], strict=True))
        for peer in peers.values():
            peer.close()
    unique = HEADER + options.episodes * TURNS * (OBSERVED + NEW)
    summary: dict[str, Any] = {"model": options.model, "episodes": options.episodes, "unique": unique}
    for name in names:
        times = [theirs / first for theirs, first in zip(cpu_s[name], cpu_s[names[0]], strict=True)]
        print(
            f"{name:17s} {statistics.median(cpu_s[name]):7.1f} CPU-s, {statistics.median(times):.2f} times that of "
            f"{names[0]} ({min(times):.2f} to {max(times):.2f}); {computed[name]} tokens prefilled, "
            f"{unique} different; {equal[name]} of {options.episodes * options.rounds} conversations are the same"
        )
        summary |= {f"cpu_s {name}": round(statistics.median(cpu_s[name]), 1), f"computed {name}": computed[name]}
        summary[f"times {name}"] = round(statistics.median(times), 3)
    print(json.dumps(summary))
    return 0


def _texts(rng: np.random.Generator, count: int, length: int) -> list[list[int]]:
    return rng.integers(10, 32000, (count, length)).tolist()


def _play(
    peers: dict[str, Peer], rng: np.random.Generator, episodes: int
) -> dict[str, tuple[float, int, list[list[int]]]]:
    """By peer: CPU seconds, prompt tokens computed, and the conversations at the end."""
    header = _texts(rng, 1, HEADER)[0]
    histories: dict[str, list[list[int]]] = {name: [header[:] for _ in range(episodes)] for name in peers}
    cpu_s, computed = dict.fromkeys(peers, 0.0), dict.fromkeys(peers, 0)
    for _ in range(TURNS):
        observed = _texts(rng, episodes, OBSERVED)
        for name, peer in peers.items():
            for history, text in zip(histories[name], observed, strict=True):
                history += text
            seconds, replies, tokens = peer.ask(histories[name], NEW)
            for history, reply in zip(histories[name], replies, strict=True):
                history += reply
            cpu_s[name] += seconds
            computed[name] += tokens
    return {name: (cpu_s[name], computed[name], histories[name]) for name in peers}


if __name__ == "__main__":
    raise SystemExit(main())
