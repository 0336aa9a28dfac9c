"""Host time of the engine's steps where steps draw their tokens: python tests/perf/serve_host.py [--rows 64].

The engine, its cache and the packing of a step's inputs are the real ones, also jax's dispatch of a program with the
arguments of an unrolled model of 80 layers. The program itself computes nothing; first it ends at once, which leaves
the CPU time of the whole process for a step, then it takes ``--device-ms``, as if on an accelerator. Half of the rows
sample. Exit code 1 if a step exceeds ``--most-cpu-ms`` of CPU time, or ``--most-step-ms`` beside a program of
``--device-ms``. The last line is JSON.
"""

from __future__ import annotations

import argparse
import cProfile
import json
import queue
import statistics
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np

from lemur_ray.config import ModelConfig
from lemur_ray.serve.compute import on_devices
from lemur_ray.serve.compute.attention import block_bytes
from lemur_ray.serve.compute.drawing.step import StepInputs, StepResults
from lemur_ray.serve.compute.programs import Programs
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.engine.events import Event
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.engine.sampling_options import SamplingOptions
from lemur_ray.serve.engine.token_logprobs import ALTERNATIVES
from lemur_ray.serve.loading import open_engine
from lemur_ray.weights.open_model import random_weights

CONFIG = ModelConfig(
    vocab_size=1024, num_layers=80, dim=32, ffn_dim=32, num_heads=2, num_kv_heads=2, head_dim=16, max_seq_len=4096
)
BETWEEN = 16
"""Steps between the last prompt's and the first one that counts."""


class _Ids:
    """Ids of a step that takes until ``due`` on the clock of ``time.perf_counter``."""

    def __init__(self, ids: jax.Array, due: float):
        self.ids, self.due, self.shape = ids, due, ids.shape

    def copy_to_host_async(self) -> None:
        self.ids.copy_to_host_async()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if (left := self.due - time.perf_counter()) > 0:
            time.sleep(left)
        return np.asarray(self.ids, dtype)


class NoDevice(Programs):
    """Programs that draw the token 9 for every row, one after another, ``device_s`` seconds each."""

    device_s = 0.0
    free_at = 0.0
    begun: list[tuple[int, float, float]]
    """New tokens of a row, seconds and CPU seconds of each step that was sent"""

    def warm_up(self, threads: int = 1) -> None:
        self.begun = []
        for rows in self.decode_rows:
            self._program("forward", rows, 1)
        for rows in self.prefill_rows:
            self._program("forward", rows, 32)

    def _program(self, name: str, rows: int, length: int) -> Any:
        if name in ("copy", "write_slot"):
            return lambda kept, *numbers: kept
        assert name == "forward", name
        if (name, rows, length) not in self._programs:
            nothing = partial(_nothing, rows=rows, length=length, dim=self.config.dim)
            self._programs[name, rows, length] = jax.jit(nothing, donate_argnums=(1, 2), keep_unused=True)
        return partial(self._run, self._programs[name, rows, length], length)

    def _run(
        self, program: Callable[..., Any], length: int, weights: Any, cache: Any, slots: Any, inputs: StepInputs
    ) -> Any:
        self.begun.append((length, time.perf_counter(), time.process_time()))
        last = inputs.last_ids.ids if isinstance(inputs.last_ids, _Ids) else inputs.last_ids
        results, cache, slots = program(weights, cache, slots, inputs._replace(last_ids=last))
        self.free_at = max(self.free_at, time.perf_counter()) + self.device_s
        return results._replace(ids=_Ids(results.ids, self.free_at)), cache, slots


def _nothing(weights: Any, cache: Any, slots: Any, inputs: StepInputs, *, rows: int, length: int, dim: int) -> Any:
    logprobs = jnp.zeros(rows), jnp.zeros((rows, ALTERNATIVES), jnp.int32), jnp.zeros((rows, ALTERNATIVES))
    ids = jnp.full_like(inputs.last_ids, 9)
    return StepResults(jnp.zeros((rows, 1)), jnp.zeros((rows * length, dim)), ids, logprobs), cache, slots


def steps(engine: Engine, rows: int, number: int, device_ms: float, *, edits: bool = False) -> tuple[float, float]:
    """(milliseconds, milliseconds of CPU time) of a step in which all rows decode. Of four parts the median and the
    least, because other processes only add to CPU time."""
    programs = engine._batch.programs.programs  # type: ignore[attr-defined]
    programs.begun.clear()
    programs.device_s = device_ms / 1e3
    prompts = np.random.default_rng(0).integers(10, 1000, (rows, 30))
    ended: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen(events: Sequence[Event]) -> None:
        for event in events:
            if event.finish:
                ended.put(event.finish)

    for i, prompt in enumerate(prompts.tolist()):
        sampling = SamplingOptions(i, float(i % 2), 0.9, frequency_penalty=0.1 * edits)
        engine.submit(Generation(tuple(prompt), number + 4 * BETWEEN + rows, sampling, logprobs=edits), listen)
    assert {ended.get() for _ in prompts} == {"length"}
    first = max(i for i, (length, *_) in enumerate(programs.begun) if length > 1) + BETWEEN
    marks = programs.begun[first : first + number + 1 : number // 4]
    assert len(marks) == 5, "too few steps"
    parts = [[(b - a) * 1e3 / (number // 4) for a, b in zip(x, y, strict=True)] for x, y in pairwise(marks)]
    return statistics.median(p[1] for p in parts), min(p[2] for p in parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=64)
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--device-ms", type=float, default=14.0)
    parser.add_argument("--most-cpu-ms", type=float, default=1.5)
    parser.add_argument("--most-step-ms", type=float, default=14.3)
    parser.add_argument("--edits", action="store_true", help="every row has a penalty and wants log-probabilities")
    parser.add_argument("--profile", action="store_true", help="print the costliest functions of the engine's thread")
    asked = parser.parse_args()
    cache_bytes = 8 * asked.rows * block_bytes(CONFIG)
    options = EngineOptions(max_slots=asked.rows, cache_bytes=cache_bytes, batch_invariant=False, native=False)
    with (
        mock.patch.object(on_devices, "Programs", NoDevice),
        mock.patch.object(jax, "default_backend", return_value="tpu"),
    ):
        engine = open_engine(random_weights(CONFIG, 0), options).start()
        steps(engine, asked.rows, 40, 0.0)  # compiles
        if asked.profile:
            _profile(engine, asked.rows, asked.steps)
        _, cpu_ms = steps(engine, asked.rows, asked.steps, 0.0, edits=asked.edits)
        step_ms, _ = steps(engine, asked.rows, asked.steps, asked.device_ms, edits=asked.edits)
        engine.close()
    print(f"{asked.rows} rows: {cpu_ms:.2f} ms of CPU time a step, at most {asked.most_cpu_ms}")
    print(f"{step_ms:.2f} ms a step beside a program of {asked.device_ms} ms, at most {asked.most_step_ms}")
    print(json.dumps({"rows": asked.rows, "cpu_ms": round(cpu_ms, 3), "step_ms": round(step_ms, 3)}))
    return int(cpu_ms > asked.most_cpu_ms or step_ms > asked.most_step_ms)


def _profile(engine: Engine, rows: int, number: int) -> None:
    plain, profile = engine._step, cProfile.Profile()
    engine._step = lambda: profile.runcall(plain)  # type: ignore[method-assign]
    steps(engine, rows, number, 0.0)
    engine._step = plain  # type: ignore[method-assign]
    profile.print_stats("tottime")


if __name__ == "__main__":
    raise SystemExit(main())
