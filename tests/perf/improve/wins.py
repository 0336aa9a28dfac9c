"""Does an algorithm gain over start and control? ``python tests/perf/improve/wins.py --out FOLDER``: hours; resumes.

For each seed a chat model is improved twice by ``jobs/improve.py``: by ``--algorithm`` (wins), and as its control. Both
runs evaluate the start and the result on the same held-out games, greedily. Prints, for each seed and over all, rates
with 95 % intervals, games gained and lost, and McNemar's exact p, against the start and against the control. The
last line is JSON; exit code 1 if over all seeds the result is worse than the control by more than ``--not-worse``.
``--print`` shows the commands only. Run it on a machine that does nothing else.

Models: ``--models`` names one run for each seed; without it they are pretrained and tuned as by ``slips.py``, whose
folder may be given as ``--out``, so that its models are used. Flags behind ``--`` go to ``jobs/improve.py``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from lemur_ray.agents.trajectory import Episode  # noqa: E402
from lemur_ray.rollout.ledger import read_episodes  # noqa: E402
from tests.perf.improve.improve_bar import compared, problems  # noqa: E402
from tests.perf.improve.slips import commands as tuning_commands  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of all runs")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--models", nargs="+", default=[], help="chat models, one for each seed")
    parser.add_argument("--algorithm", default="wins")
    parser.add_argument("--games", type=int, default=240, help="held-out games of an evaluation")
    parser.add_argument("--not-worse", type=float, default=0.03, help="than the control, as a share of the games")
    parser.add_argument("--print", action="store_true", help="print the commands and run nothing")
    parser.add_argument("more", nargs="*", help="flags of jobs/improve.py, behind --")
    options = parser.parse_args()
    options.out = options.out.resolve()
    if options.models and len(options.models) != len(options.seeds):
        parser.error(f"--models: {len(options.models)} for {len(options.seeds)} seeds")
    for command in (one for seed in options.seeds for one in commands(options, seed)):
        print(" ".join(command), flush=True)
        if not options.print:
            subprocess.run([sys.executable, *command], cwd=ROOT, check=True)
    return 0 if options.print else report(options)


def commands(options: argparse.Namespace, seed: int) -> list[list[str]]:
    """The jobs of one seed, in order; each resumes."""
    if options.models:
        jobs, model = [], options.models[options.seeds.index(seed)]
    else:
        jobs, model = (
            tuning_commands(options.out, seed, 0.0, options.games)[:2],
            str(options.out / f"chat-{seed}-plain"),
        )
    improve = ["jobs/improve.py", "--init-from", model, "--algorithm", options.algorithm, "--train.seed", str(seed)]
    improve += ["--eval-games", str(options.games), *options.more]
    for is_control in (False, True):
        jobs.append([*improve, "--out", str(folder(options, seed, is_control)), *(["--control"] if is_control else [])])
    return jobs


def folder(options: argparse.Namespace, seed: int, is_control: bool) -> Path:
    return options.out / f"{options.algorithm}-{seed}{'-control' if is_control else ''}"


def report(options: argparse.Namespace) -> int:
    """Print all comparisons; returns the exit code."""
    played: dict[str, list[Episode]] = {"start": [], "result": [], "control": []}
    result: dict[str, Any] = {}
    for seed in options.seeds:
        of_seed = episodes(options, seed)
        result[f"seed {seed}"] = both(of_seed)
        for kind, ended in of_seed.items():
            played[kind] += ended
    result["all"] = both(played)
    for name, numbers in result.items():
        print(f"{name}: {numbers}")
    print(json.dumps(result))
    return int(bool(problems(result["all"]["over control"], options.not_worse, -1.0, 1.0)))


def both(played: dict[str, list[Episode]]) -> dict[str, Any]:
    return {f"over {other}": compared(played[other], played["result"]) for other in ("start", "control")}


def episodes(options: argparse.Namespace, seed: int) -> dict[str, list[Episode]]:
    """Held-out episodes of start, result and control, with the seed in the name of each task, so that seeds join."""
    ended = {}
    for kind, is_control in (("result", False), ("control", True)):
        run = folder(options, seed, is_control)
        last = json.loads((run / "result.json").read_text())["rounds"]
        ended[kind] = read_episodes(run / "heldout" / str(last) / "episodes.jsonl")
    ended["start"] = read_episodes(folder(options, seed, False) / "heldout" / "0" / "episodes.jsonl")
    return {
        kind: [replace(one, key=replace(one.key, task=f"{seed}/{one.key.task}")) for one in of_kind]
        for kind, of_kind in ended.items()
    }


if __name__ == "__main__":
    raise SystemExit(main())
