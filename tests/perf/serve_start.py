"""Time of a first and a second start of an engine, by phase: python tests/perf/serve_start.py [--model random:nano].

On this machine two processes load a model and warm its engine, one after the other with the same, at first empty,
folder of compiled programs. Then, if libtpu is installed, all programs of lemur-70b-chat on ``--slice``, whose chips
need not be there, are traced and lowered, which a second start pays beside reading them and the weights. Exit code 1 if
they are more than ``--most-programs``, or if that takes more than ``--most-lowering-s`` of CPU time, or with
``--compile`` compiling them more than ``--most-compile-s``. The last line is JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any
from unittest import mock

Phases = dict[str, list[float]]
"""Phase -> seconds and CPU seconds of the whole process"""


@contextlib.contextmanager
def timed(phases: Phases, name: str) -> Iterator[None]:
    """Context manager that adds its time to a phase."""
    before = time.perf_counter(), time.process_time()
    try:
        yield
    finally:
        after = time.perf_counter(), time.process_time()
        phases[name] = [total + b - a for total, a, b in zip(phases[name], before, after, strict=True)]


def within(phases: Phases, name: str, function: Callable) -> Callable:
    """The function, whose time is added to a phase."""

    def call(*arguments: Any, **named: Any) -> Any:
        with timed(phases, name):
            return function(*arguments, **named)

    return call


def start(model: str) -> dict[str, Any]:
    """Phases of this process until an engine of ``model`` is warm, and what its folder of compiled programs gave."""
    phases: Phases = defaultdict(lambda: [0.0, 0.0])
    with timed(phases, "imports"):
        from lemur_ray.model import compile_cache
        from lemur_ray.serve import loading
        from lemur_ray.serve.compute import on_devices
        from lemur_ray.serve.compute.programs import Programs
    lower, warm_up = within(phases, "lowered", Programs._lower), within(phases, "warm-up", Programs.warm_up)
    with (
        mock.patch.object(on_devices, "load_weights", within(phases, "weights", on_devices.load_weights)),
        mock.patch.object(Programs, "_lower", lower),
        mock.patch.object(Programs, "warm_up", warm_up),
        timed(phases, "all"),
    ):
        engine = loading.load_text_engine(model).engine
        engine.close()
    lowered, warm, whole = (phases.pop(name) for name in ("lowered", "warm-up", "all"))
    phases["tracing and lowering"] = lowered
    phases["compiling or reading"] = [a - b for a, b in zip(warm, lowered, strict=True)]
    phases["rest"] = [a - b - c for a, b, c in zip(whole, warm, phases["weights"], strict=True)]
    (counts,) = compile_cache._active
    return {"phases": phases, "found": counts.hits, "compiled": counts.misses}


def absent_programs(slice_name: str) -> Any:
    """The ``Programs`` of lemur-70b-chat on a slice that is not there, with the options that a server would choose."""
    from lemur_ray.serve.planning import machines
    from lemur_ray.train.aot import absent_devices

    where = machines.parse_machine(slice_name, "")
    assert where is not None
    os.environ.update(absent_devices.environment(where))
    import jax.numpy as jnp
    import numpy as np
    from jax.sharding import AxisType, Mesh

    from lemur_ray.recipes import get_recipe
    from lemur_ray.serve.compute.ahead_of_time import abstract_weights
    from lemur_ray.serve.compute.devices import AXIS, Devices
    from lemur_ray.serve.compute.programs import Programs
    from lemur_ray.serve.config import BY_MACHINE
    from lemur_ray.serve.planning.machine_defaults import chosen

    config = get_recipe("lemur-70b-chat").model
    group = Devices(Mesh(np.asarray(absent_devices.devices(where)), (AXIS,), axis_types=(AxisType.Auto,)))
    weights = abstract_weights(config, jnp.bfloat16, "rows", parts=group.parts, scanned=True)
    return Programs(weights, config, chosen(BY_MACHINE, config, machines.machine_of(where)), group)


def lowered_70b(slice_name: str, *, compiled: bool) -> dict[str, Any]:
    """Phases of tracing and lowering all programs of lemur-70b-chat on a slice, and their number. compiled: compile
    them, too."""
    phases: Phases = defaultdict(lambda: [0.0, 0.0])
    import jax

    from lemur_ray.serve.compute.devices import Devices

    with contextlib.ExitStack() as patches:
        patches.enter_context(mock.patch.object(jax, "default_backend", return_value="tpu"))
        patches.enter_context(mock.patch.object(Devices, "allocate", Devices.abstract))
        if not compiled:
            patches.enter_context(mock.patch.object(jax.stages.Lowered, "compile"))
        programs = absent_programs(slice_name)
        lower = within(phases, "tracing and lowering", programs._lower)
        patches.enter_context(mock.patch.object(programs, "_lower", lower))
        with timed(phases, "compiling"):
            programs.warm_up()
    lowered, whole = phases["tracing and lowering"], phases.pop("compiling")
    if compiled:
        phases["compiling"] = [a - b for a, b in zip(whole, lowered, strict=True)]
    return {"phases": phases, "programs": len(programs._programs)}


def report(name: str, phases: Phases) -> None:
    """Print the phases of a start."""
    total = [sum(column) for column in zip(*phases.values(), strict=True)]
    parts = "; ".join(f"{phase} {cpu:.1f} ({wall:.1f})" for phase, (wall, cpu) in phases.items())
    print(f"{name}, CPU seconds (seconds): {total[1]:.1f} ({total[0]:.1f}): {parts}", flush=True)


def _child(*words: str, **variables: str) -> Any:
    command = [sys.executable, __file__, *words]
    done = subprocess.run(command, env=os.environ | variables, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="random:nano")
    parser.add_argument("--slice", default="v4:2x2x2")
    parser.add_argument("--most-programs", type=int, default=12)
    parser.add_argument("--most-lowering-s", type=float, default=30.0)
    parser.add_argument("--compile", action="store_true", help="also compile the programs of lemur-70b-chat")
    parser.add_argument("--most-compile-s", type=float, default=300.0)
    parser.add_argument("--child", choices=("here", "70b"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.child:
        here = asked.child == "here"
        print(json.dumps(start(asked.model) if here else lowered_70b(asked.slice, compiled=asked.compile)))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        words = ("--child", "here", "--model", asked.model)
        begin = partial(_child, *words, JAX_COMPILATION_CACHE_DIR=folder, JAX_PLATFORMS="cpu")
        out: dict[str, Any] = {"here": [begin(), begin()]}
    for name, one in zip(("first start", "second start"), out["here"], strict=True):
        report(f"{asked.model}, {name}, {one['found']} programs found, {one['compiled']} compiled", one["phases"])
    if importlib.util.find_spec("libtpu") is None:
        print("lemur-70b-chat: libtpu is not installed: pip install 'lemur-ray[tpu]'")
        print(json.dumps(out))
        return 0
    chat = out["lemur-70b-chat"] = _child("--child", "70b", "--slice", asked.slice, *["--compile"] * asked.compile)
    report(f"lemur-70b-chat on {asked.slice}, {chat['programs']} programs", chat["phases"])
    print(json.dumps(out))
    lowering_s, compile_s = (chat["phases"].get(name, [0, 0])[1] for name in ("tracing and lowering", "compiling"))
    takes_long = lowering_s > asked.most_lowering_s or compile_s > asked.most_compile_s
    return int(chat["programs"] > asked.most_programs or takes_long)


if __name__ == "__main__":
    raise SystemExit(main())
