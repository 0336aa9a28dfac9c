"""Rounds on Ray against rounds in one process: ``python tests/perf/improve/round_rate.py --init-from RUN``.

The same rounds (``wins``: play, train, swap) are made by a backend in this process and by one on a private cluster,
taking turns, the first one changing from round to round. Prints seconds of each phase by the clock, CPU seconds of
all processes, and episodes a second of both. Fails if Ray's median of episodes a second over whole rounds is below
``--least`` of the other's. The last line is JSON. Without ``--init-from`` a tiny random model plays a game of one
letter.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

import psutil  # noqa: E402

from lemur_ray.improve.config import ImproveConfig  # noqa: E402
from lemur_ray.improve.loop import ImproveRun  # noqa: E402
from lemur_ray.improve.prepare import prepare  # noqa: E402
from lemur_ray.improve.rounds import ROUNDS, Rounds  # noqa: E402
from lemur_ray.improve.training_rows import batch_order  # noqa: E402
from lemur_ray.recipes.nano_improve import RECIPE  # noqa: E402
from tests.improve.capital_game import config_of  # noqa: E402
from tests.perf.improve.toy_run import cluster, made_start  # noqa: E402

PHASES = ("play", "train", "swap")
Times = list[dict[str, float]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--init-from", default="", help="chat model that plays ALFWorld")
    parser.add_argument("--rounds", type=int, default=4, help="rounds of each; the first is not counted")
    parser.add_argument("--games", type=int, default=120, help="of a round")
    parser.add_argument("--updates", type=int, default=64, help="of a round, with --init-from")
    parser.add_argument("--in-flight", type=int, default=32)
    parser.add_argument("--actors", type=int, default=2)
    parser.add_argument("--least", type=float, default=0.7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, cluster():
        times = measured(Path(folder), options)
    of = {name: medians(rounds[1:], options.games) for name, rounds in times.items()}
    ratios = {
        name: round(of["ray"][name] / of["process"][name], 3) for name in ("episodes a second", "episodes a CPU second")
    }
    print(json.dumps({**of, "ray against process": ratios, "load": os.getloadavg()[0]}))
    return int(ratios["episodes a second"] < options.least)


def measured(folder: Path, options: argparse.Namespace) -> dict[str, Times]:
    from lemur_ray.improve.on_ray.backend import OnRay
    from tests.improve.in_process import InProcess

    given = {"rounds": options.rounds, "games": options.games, "in_flight": options.in_flight, "actors": options.actors}
    times: dict[str, Times] = {"process": [], "ray": []}
    prepared = {}
    for name in times:
        if options.init_from:
            recipe = replace(RECIPE, train=replace(RECIPE.train, steps=options.rounds * options.updates))
            config = ImproveConfig(init_from=options.init_from, out=str(folder / name), recipe=recipe, **given)
        else:
            config = config_of(
                made_start(folder / "start"), folder / name, **{**given, "games": min(40, options.games)}
            )
        prepared[name] = prepare(config)
        prepared[name].open_folder()
    with InProcess(prepared["process"].learner) as process, OnRay(prepared["ray"].learner) as ray:
        runs = {name: run_of(prepared[name], backend) for name, backend in (("process", process), ("ray", ray))}
        for number in range(1, options.rounds + 1):
            for name in ("process", "ray")[:: 1 if number % 2 else -1]:
                times[name].append(one_round(runs[name], number))
                print(f"round {number} {name}: {times[name][-1]}, load {os.getloadavg()[0]:.1f}", flush=True)
    return times


def run_of(prepared: Any, backend: Any) -> ImproveRun:
    length = prepared.learner.recipe.data.seq_len
    run = ImproveRun(prepared.config, prepared.out, prepared.tokenizer, prepared.tasks, backend, length, print)
    run._served = backend.serve(backend.open())
    return run


def one_round(run: ImproveRun, number: int) -> dict[str, float]:
    """Play, train and swap, as ``ImproveRun.run``: seconds of each, and CPU seconds of all processes."""
    config, used, clock = run.config, cpu_seconds(), [time.monotonic()]
    run._play(Rounds(run.out / ROUNDS), number)
    clock.append(time.monotonic())
    rows, _ = run._batch(number)
    assert rows is not None, "nothing was won"
    order = batch_order(len(rows["tokens"]), config.updates, config.recipe.train.rows_per_step, (0, number))
    commit = run.backend.train(number, rows, order, 0)
    clock.append(time.monotonic())
    run._served = run.backend.serve(commit)
    clock.append(time.monotonic())
    seconds = {phase: round(end - start, 2) for phase, start, end in zip(PHASES, clock, clock[1:], strict=False)}
    return {**seconds, "cpu": round(cpu_seconds() - used, 2)}


def cpu_seconds() -> float:
    """CPU seconds of this process and all processes that it started, ended ones among them."""
    total, this = 0.0, psutil.Process()
    for one in [this, *this.children(recursive=True)]:
        try:
            total += sum(one.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return total


def medians(rounds: Times, games: int) -> dict[str, float]:
    of = {name: median(one[name] for one in rounds) for name in (*PHASES, "cpu")}
    whole = median(sum(one[phase] for phase in PHASES) for one in rounds)
    rates = {"episodes a second": games / whole, "episodes a CPU second": games / of["cpu"]}
    return {**of, **{name: round(value, 2) for name, value in rates.items()}}


if __name__ == "__main__":
    raise SystemExit(main())
