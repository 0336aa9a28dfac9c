"""Do slips in the demonstrations help? ``python tests/perf/improve/slips.py --out FOLDER``: hours; resumes.

For each seed a nano model is pretrained, tuned twice (with the demonstrations as they are and with ``--slips``), and
both play the same held-out games greedily. Prints, for each seed and over all, rates with 95 % intervals, games gained
and lost, and McNemar's exact p; then the same for games in which the model without slips had a command refused.
``--print`` shows the commands only. The last line is JSON. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from lemur_ray.agents.trajectory import Episode  # noqa: E402
from lemur_ray.improve.outcome import comparison, rate  # noqa: E402
from lemur_ray.rollout.ledger import read_episodes  # noqa: E402

KINDS = ("plain", "slips")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of all runs and evaluations")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--slips", type=float, default=0.1, help="share of the turns with a slip before them")
    parser.add_argument("--games", type=int, default=240)
    parser.add_argument("--print", action="store_true", help="print the commands and run nothing")
    options = parser.parse_args()
    for seed in options.seeds:
        for command in commands(options.out.resolve(), seed, options.slips, options.games):
            print(" ".join(command), flush=True)
            if not options.print:
                subprocess.run([sys.executable, *command], cwd=ROOT, check=True)
    if options.print:
        return 0
    result = report(options.out, options.seeds)
    for name, numbers in result.items():
        print(f"{name}: {numbers}")
    print(json.dumps(result))
    return 0


def report(out: Path, seeds: Sequence[int]) -> dict[str, Any]:
    """Comparisons over all seeds, for each, and over the games in which the model without slips was refused."""
    of_seed = {seed: {kind: episodes(out, seed, kind) for kind in KINDS} for seed in seeds}
    played = {kind: [one for seed in seeds for one in of_seed[seed][kind]] for kind in KINDS}
    refused = {one.key.task for one in played["plain"] if not all(step.valid for step in one.trajectory.steps)}
    hard = {kind: [one for one in ended if one.key.task in refused] for kind, ended in played.items()}
    each = {f"seed {seed}": compared(of_seed[seed]) for seed in seeds}
    return {"all": compared(played), **each, "with a refused command": compared(hard)}


def commands(out: Path, seed: int, slips: float, games: int) -> list[list[str]]:
    """The jobs of one seed, in order; each resumes."""
    base = out / f"nano-{seed}"
    jobs = [["jobs/pretrain.py", "nano", "--train.seed", str(seed), "--out", str(base)]]
    for kind in KINDS:
        run = out / f"chat-{seed}-{kind}"
        tune = ["jobs/instruct.py", "nano-chat", "--init-from", str(base), "--train.seed", str(seed), "--out", str(run)]
        jobs.append([*tune, *(["--slips", str(slips)] if kind == "slips" else [])])
        play = ["jobs/agent_eval.py", "--policy", f"checkpoint:{run}", "--limit", str(games), "--sample", "first"]
        jobs.append([*play, "--out", str(out / f"games-{seed}-{kind}")])
    return jobs


def episodes(out: Path, seed: int, kind: str) -> list[Episode]:
    """Episodes of an evaluation, with the seed in the name of each task, so that seeds can be joined."""
    stored = read_episodes(out / f"games-{seed}-{kind}" / "episodes.jsonl")
    return [replace(one, key=replace(one.key, task=f"{seed}/{one.key.task}")) for one in stored]


def compared(played: dict[str, list[Episode]]) -> dict[str, Any]:
    both = comparison(played["plain"], played["slips"])
    rates = {kind: rate(ended) for kind, ended in played.items()}
    return {**rates, **{name: both[name] for name in ("paired", "gained", "lost", "p")}}


if __name__ == "__main__":
    raise SystemExit(main())
