"""Memory, files and processes over many rounds of a toy on Ray: ``python tests/perf/improve/many_rounds.py``.

A tiny random model plays a game of one letter on a private cluster: policy gradients with traces, a server of
``--replicas``, an evaluation every ``--every`` rounds. Then it prints, for the driver, the learner, the replicas and
all other processes of the cluster, their number, own memory in MB, open files and threads. Fails if anything but
memory grew by more than one from the second count to the last, if memory grew by more than ``--growth``, or if a
process of the cluster is there after the run. The last line is JSON.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
import tempfile
import time
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

import psutil  # noqa: E402

from lemur_ray.improve.loop import ImproveRun  # noqa: E402
from lemur_ray.improve.prepare import prepare  # noqa: E402
from tests.improve.capital_game import SEQ_LEN, config_of  # noqa: E402
from tests.perf.improve.toy_run import cluster, made_start  # noqa: E402

KINDS = {"ray::_LearnerActor": "learner", "ray::ServeReplica": "replicas"}
Counts = dict[str, dict[str, float]]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--replicas", type=int, default=2, help="0: all in this process, without Ray")
    parser.add_argument("--every", type=int, default=10, help="rounds between two counts, and between evaluations")
    parser.add_argument("--growth", type=float, default=0.1, help="largest growth of memory that counts as flat")
    options = parser.parse_args()
    counts: dict[int, Counts] = {}
    with tempfile.TemporaryDirectory() as folder:
        made_start(Path(folder) / "start")
        play(Path(folder), options, counts)
    _, alive = psutil.wait_procs(psutil.Process().children(recursive=True), timeout=30)
    left = [" ".join(one.cmdline())[:80] for one in alive]
    grown = growth(counts, options.growth)
    for problem in [*(f"left behind: {one}" for one in left), *grown]:
        print(problem)
    print(json.dumps({"counts": counts, "left": left, "grown": grown}))
    return 1 if left or grown else 0


def play(folder: Path, options: argparse.Namespace, counts: dict[int, Counts]) -> None:
    rounds, replicas, every = options.rounds, options.replicas, options.every
    config = config_of(
        folder / "start", folder / "run", rounds=rounds, games=8, samples=4, eval_games=4, eval_every=every, actors=1,
        algorithm="rloo", replicas=max(1, replicas),
    )  # fmt: skip
    recipe = config.recipe
    recipe = replace(
        recipe, train=replace(recipe.train, steps=rounds), optimizer=replace(recipe.optimizer, peak_lr=1e-4)
    )
    begun = time.monotonic()

    def say(line: str) -> None:
        number = line.partition("/")[0].removeprefix("round ")
        if number.isdigit():
            print(f"{time.monotonic() - begun:6.0f} s  {line}", flush=True)
            if int(number) % every == 0:
                counts[int(number)] = count()
                print(json.dumps(counts[int(number)]), flush=True)

    config = replace(config, recipe=recipe)
    if replicas:
        from lemur_ray.improve.on_ray.backend import improve

        with cluster():
            improve(config, say)
    else:
        from tests.improve.in_process import InProcess

        prepared = prepare(config)
        prepared.open_folder()
        with InProcess(prepared.learner) as backend:
            ImproveRun(config, prepared.out, prepared.tokenizer, prepared.tasks, backend, SEQ_LEN, say).run()


def count() -> Counts:
    """Number of processes, anonymous memory in MB, open files and threads of each kind of this run's processes."""
    counts: Counts = defaultdict(lambda: dict.fromkeys(("processes", "mb", "files", "threads"), 0))
    this = psutil.Process()
    for one in [this, *this.children(recursive=True)]:
        with contextlib.suppress(psutil.NoSuchProcess):
            title = one.cmdline()[0]
            kind = next((kind for start, kind in KINDS.items() if title.startswith(start)), "other")
            if title.startswith("ray::") and kind == "other":
                kind = "idle and environment"
            numbers = counts["driver" if one == this else kind]
            memory = one.memory_full_info().uss / 2**20
            more = {"processes": 1, "mb": memory, "files": one.num_fds(), "threads": one.num_threads()}
            for name, value in more.items():
                numbers[name] = round(numbers[name] + value, 1)
    return dict(counts)


def growth(counts: dict[int, Counts], most: float) -> list[str]:
    """A sentence for everything that grew from the second count to the last, or for too few counts."""
    if len(counts) < 3:
        return [f"{len(counts)} counts, 3 are needed: give --rounds three times --every, if the run did not end early"]
    second, last = list(counts.values())[1], list(counts.values())[-1]
    return [
        f"{kind}: {name} grew from {second[kind][name]:g} to {last[kind][name]:g}"
        for kind in second.keys() & last.keys()
        for name in second[kind]
        if last[kind][name] > (second[kind][name] * (1 + most) if name == "mb" else second[kind][name] + 1)
    ]


if __name__ == "__main__":
    raise SystemExit(main())
