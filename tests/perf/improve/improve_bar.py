"""Is a model better than another? ``python tests/perf/improve/improve_bar.py --before RUN --after RUN``; resumes.

Both play the same held-out games of ALFWorld greedily. Prints n, rates with 95 % intervals (Wilson), games gained
and lost, and McNemar's exact p; the last line is JSON. Exit code 1 if the rate is lower by more than ``--not-worse``,
is not higher by ``--gain``, or p is above ``--p``. Instead of ``--before``, ``--control`` names the run of a control.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))

from lemur_ray.agents.trajectory import Episode  # noqa: E402
from lemur_ray.improve.outcome import comparison, rate  # noqa: E402
from lemur_ray.rollout.ledger import read_episodes  # noqa: E402


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    other = parser.add_mutually_exclusive_group(required=True)
    other.add_argument("--before", help="run that the other one started from")
    other.add_argument("--control", help="run that made the same updates on other data")
    parser.add_argument("--after", required=True)
    parser.add_argument("--out", type=Path, required=True, help="folder of the evaluations")
    parser.add_argument("--games", type=int, default=240)
    parser.add_argument("--not-worse", type=float, default=1.0, help="share of the games")
    parser.add_argument("--gain", type=float, default=-1.0, help="share of the games")
    parser.add_argument("--p", type=float, default=1.0)
    options = parser.parse_args()
    played = [
        play(run, options.out.resolve(), options.games) for run in (options.before or options.control, options.after)
    ]
    result = compared(*played)
    print(json.dumps(result))
    return int(bool(problems(result, options.not_worse, options.gain, options.p)))


def play(run: str, out: Path, games: int) -> list[Episode]:
    """Held-out episodes of a run, in a folder of its name."""
    folder = out / Path(run).name
    words = ["jobs/agent_eval.py", "--policy", f"checkpoint:{run}", "--limit", str(games), "--sample", "first"]
    subprocess.run([sys.executable, *words, "--out", str(folder)], cwd=ROOT, check=True)
    return read_episodes(folder / "episodes.jsonl")


def compared(before: list[Episode], after: list[Episode]) -> dict[str, Any]:
    """Rates of two evaluations of the same games, games gained and lost, and McNemar's exact p."""
    both = comparison(before, after)
    return {
        "before": rate(before),
        "after": rate(after),
        **{name: both[name] for name in ("paired", "gained", "lost", "p")},
    }


def problems(result: dict[str, Any], not_worse: float, gain: float, p: float) -> list[str]:
    """Printed sentences, one for each bound that is missed."""
    change = result["after"]["rate"] - result["before"]["rate"]
    missed = [f"lower by {-change:.1%}, at most {not_worse:.1%} was asked"] if -change > not_worse else []
    missed += [f"higher by {change:.1%}, {gain:.1%} was asked"] if change < gain else []
    missed += [f"p {result['p']:.3g}, at most {p:g} was asked"] if result["p"] > p else []
    for sentence in missed:
        print(sentence)
    return missed


if __name__ == "__main__":
    raise SystemExit(main())
