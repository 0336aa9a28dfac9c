"""Pause and memory of new weights in a running engine: python tests/perf/serve_swap.py [--swaps 3].

Two simulated devices serve a model whose weights are replaced in place: with stacked layers as on TPUs, with layers of
their own as on GPUs. The pause is the longest time between two steps, from the commit on; transfer is the part of it in
which weights are read and written. Exit code 1 if the least pause of all swaps exceeds its transfer by more than
``--most-steps`` steps where replies keep their keys and values, if a device holds more beside the old weights than one
matrix, or if the largest matrix of lemur-70b-chat on 8 devices exceeds 0.5 GiB. Recomputed replies come back after
their prompts: their pause is printed without a bound. The last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import threading
import time
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from lemur_ray.config import ModelConfig
from lemur_ray.recipes import get_recipe
from lemur_ray.serve.compute import programs
from lemur_ray.serve.compute.ahead_of_time import abstract_weights
from lemur_ray.serve.compute.devices import Devices
from lemur_ray.serve.config import EngineOptions, InFlight
from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.engine.events import Event
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.loading import open_engine
from lemur_ray.weights.open_model import random_weights

CONFIG = ModelConfig(
    vocab_size=1024, num_layers=8, dim=512, ffn_dim=1536, num_heads=8, num_kv_heads=2, head_dim=64, max_seq_len=1024
)
ROWS, TOKENS = 8, 150
MOST_EXTRA = 2**29
"""Bytes of a device beside the old weights."""


class Swap(NamedTuple):
    """Times in seconds of a swap, and bytes of a device beside the old weights."""

    step: float
    pause: float
    transfer: float
    extra: int


def own_bytes(array: Any) -> int:
    """Bytes of an array on one device."""
    return math.prod(array.sharding.shard_shape(array.shape)) * array.dtype.itemsize


def live_bytes() -> int:
    """Bytes of all arrays on the first device."""
    return sum(own_bytes(array) for array in jax.live_arrays() if jax.devices()[0] in array.devices())


def largest_matrix(shapes: Any, layers: int, parts: int = 1) -> int:
    """Bytes of the largest matrix, of stacks one layer's. shapes: a tree of arrays or of shapes; parts: devices."""
    sizes = [(x.shape, x.dtype.itemsize) for x in jax.tree.leaves(shapes)]
    return max(math.prod(shape) * size // parts // (layers if len(shape) > 2 else 1) for shape, size in sizes)


def swap(engine: Engine, seed: int, kind: InFlight) -> Swap:
    """Replace the weights while ``ROWS`` replies run, after a third of their tokens."""
    times, third, ended = list[float](), threading.Event(), threading.Semaphore(0)
    transfers, peaks, plain, load = list[float](), list[int](), Devices.assemble, programs.load_weights

    def listen(events: Sequence[Event]) -> None:
        times.append(time.perf_counter())
        if len(times) > TOKENS // 3:
            third.set()
        for event in events:
            if event.finish:
                ended.release()

    def assemble(*arguments: Any) -> Any:
        placed = plain(*arguments)
        peaks.append(live_bytes())
        return placed

    def timed(*arguments: Any) -> Any:
        peaks.append(-live_bytes())  # here: elsewhere a step may be about to hand over its cache
        began = time.perf_counter()
        loaded = jax.block_until_ready(load(*arguments))
        transfers.append(time.perf_counter() - began)
        return loaded

    source = random_weights(CONFIG, seed)
    for row, prompt in enumerate(np.random.default_rng(seed).integers(10, 1000, (ROWS, 30)).tolist()):
        engine.submit(Generation((row, *prompt), TOKENS), listen)
    third.wait()
    engine.stage(source, str(seed))
    with mock.patch.object(Devices, "assemble", assemble), mock.patch.object(programs, "load_weights", timed):
        first = len(times) - 1
        engine.commit(str(seed), kind).result()
    for _ in range(ROWS):
        ended.acquire()
    gaps = [b - a for a, b in pairwise(times)]
    return Swap(statistics.median(gaps), max(gaps[first:]), sum(transfers), max(peaks) + min(peaks))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--swaps", type=int, default=3)
    parser.add_argument("--most-steps", type=float, default=2.0)
    asked = parser.parse_args()
    jax.config.update("jax_num_cpu_devices", 2)
    chat = get_recipe("lemur-70b-chat").model
    matrix = largest_matrix(abstract_weights(chat, jnp.bfloat16, "rows", parts=8, scanned=True), chat.num_layers, 8)
    out: dict[str, Any] = {"matrix_of_70b": matrix}
    too_much = matrix > MOST_EXTRA
    for name, platform in (("stacked", "tpu"), ("unrolled", "gpu")):
        options = EngineOptions(max_slots=ROWS, tensor_parallel=2, batch_invariant=False, native=False)
        with (
            mock.patch.object(jax, "default_backend", return_value=platform),
            mock.patch.object(programs, "MAX_SECOND_COPY_BYTES", 0),
        ):
            engine = open_engine(random_weights(CONFIG, 0), options, "0").start()
            largest = largest_matrix(engine._batch.programs.programs._weights, CONFIG.num_layers)  # type: ignore[attr-defined]
            kept = [swap(engine, seed + 1, "keep") for seed in range(asked.swaps)]
            recomputed = swap(engine, asked.swaps + 1, "recompute")
            engine.close()
        steps, extra = min((s.pause - s.transfer) / s.step for s in kept), max(s.extra for s in kept)
        too_much |= steps > asked.most_steps or extra > largest
        ms = [round(1e3 * seconds, 1) for seconds in kept[-1][:3]]
        print(
            f"{name}: step {ms[0]} ms, pause {ms[1]} ms, transfer {ms[2]} ms; least pause {steps:.2f} steps beyond it"
        )
        print(f"  recomputed: {(recomputed.pause - recomputed.transfer) / recomputed.step:.1f} steps beyond it")
        print(f"  beside the old weights at most {extra:,} bytes, a matrix has {largest:,}")
        out[name] = {"steps": round(steps, 2), "extra": extra, "matrix": largest}
    print(f"lemur-70b-chat on 8 devices: a matrix has {matrix / 2**30:.3f} GiB, at most {MOST_EXTRA / 2**30}")
    print(json.dumps(out))
    return int(too_much)


if __name__ == "__main__":
    raise SystemExit(main())
