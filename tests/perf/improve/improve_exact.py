"""Exactness of improvement runs: ``improve_exact.py [--init-from RUN] [--float64]``. Exit code 1 if not.

Two rounds of policy gradients in this process, by default of a tiny random model in a game of one letter. Shown are:

1. log-probabilities of the server that drew against those of the learner, in the first round: largest and mean
   difference, share equal to the bit; both against a learner in float64; and that weights times 1.001 stop the run;
2. with 1 and 5 episodes in flight, everything that the run writes but times is that of 64 in flight, to the bit;
3. a version once more: round 2 is removed, then played and trained from the checkpoint of round 1, at another load.

Kills: ``tests/improve/test_killed_improve.py``. Gradients: ``tests/improve/test_policy_gradient.py``.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT))
os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax  # noqa: E402
import numpy as np  # noqa: E402

from lemur_ray.improve.config import ImproveConfig  # noqa: E402
from lemur_ray.improve.learner import Committed, Programs  # noqa: E402
from lemur_ray.improve.loop import ImproveRun  # noqa: E402
from lemur_ray.improve.prepare import prepare  # noqa: E402
from lemur_ray.recipes.nano_improve import RECIPE  # noqa: E402
from lemur_ray.train.run.folder import TrainingStopped  # noqa: E402
from tests.improve.capital_game import config_of, start_run  # noqa: E402
from tests.improve.in_process import InProcess  # noqa: E402
from tests.improve.test_killed_improve import content, differing  # noqa: E402

LARGEST, LARGEST_IN_FLOAT64, MEAN, EQUAL = 1e-4, 1e-5, 2e-6, 0.7
"""Bounds of the largest difference in float32 with native kernels, and with --float64; of the mean difference, and of
the share of equal bits. The last one is that of a trained model: one that draws from 260 ids alike has larger
log-probabilities and so larger ulps."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--init-from", default="", help="chat model that plays ALFWorld")
    parser.add_argument("--games", type=int, default=8)
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--float64", action="store_true", help="server and learner compute in float64")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        failed = checked(Path(folder), options)
    print(json.dumps({"failed": failed}))
    return int(bool(failed))


def checked(folder: Path, options: argparse.Namespace) -> list[str]:
    """Names of the checks that failed; prints a line for each."""
    given: dict[str, Any] = {"algorithm": "rloo", "games": options.games, "samples": options.samples, "eval_games": 4}
    given["float64"] = options.float64
    if options.init_from:
        recipe = replace(RECIPE, optimizer=replace(RECIPE.optimizer, name="adamw", peak_lr=3e-4))
        recipe = replace(recipe, train=replace(recipe.train, steps=2))
        base = ImproveConfig(init_from=options.init_from, rounds=2, recipe=recipe, **given)
    else:
        base = config_of(start_run(folder / "start"), folder, **given)
    failed = list[str]()

    def check(name: str, is_right: bool, shown: object) -> None:
        print(f"{'ok   ' if is_right else 'WRONG'} {name}: {shown}", flush=True)
        failed.extend([] if is_right else [name])

    def run(name: str, in_flight: int, make: type[InProcess] = InProcess) -> dict[str, Any]:
        out = folder / name / "run"  # its name is part of its policy's
        play(replace(base, out=str(out), in_flight=in_flight), make)
        return content(out)

    whole = run("64", 64, Compared)
    trained = [one for one in map(json.loads, (folder / "64/run/rounds.jsonl").open()) if one["event"] == "trained"]
    for name, is_right in (
        ("mismatch_max", trained[0]["mismatch_max"] <= (LARGEST_IN_FLOAT64 if options.float64 else LARGEST)),
        ("mismatch_mean", trained[0]["mismatch_mean"] <= MEAN),
        ("equal_bits", trained[0]["equal_bits"] >= EQUAL or not options.init_from),
    ):
        check(f"server against learner, {name}", is_right, [f"{one[name]:.3g}" for one in trained])
    for load in (1, 5):
        check(f"{load} in flight against 64, differing files", not (d := differing(run(str(load), load), whole)), d)
    without_round_2(folder / "64" / "run", folder / "again" / "run")
    check("round 2 once more, differing files", not (d := differing(run("again", 7), whole)), d)
    try:
        run("scaled", 64, Scaled)
        check("weights times 1.001 stop the run", False, "they did not")
    except TrainingStopped as stopped:
        check("weights times 1.001 stop the run", "differ by" in str(stopped), stopped)
    return failed


class Compared(InProcess):
    """Prints, for the first update of each round, how far server and learner are from a learner in float64."""

    def train(self, number: int, rows: Any, order: np.ndarray, best: int) -> Committed:
        learner, batch = self._learner, {name: array for name, array in rows.items() if name != "groups"}
        drawn, served = batch.pop("drawn") > 0, batch.pop("behaviour")
        exact = Programs(learner._spec.recipe, learner._mesh, float64=True).logprobs(learner._state.params, batch)
        learned = learner._programs.logprobs(learner._state.params, batch)
        for name, values in (("server", served), ("learner", learned)):
            off = np.abs(values - exact)[drawn]
            print(
                f"      round {number}, {name} against float64: {off.max():.2g}, mean {off.mean():.2g}, {off.size} ids"
            )
        return super().train(number, rows, order, best)


class Scaled(InProcess):
    """Learns from weights that are not those served."""

    def train(self, number: int, rows: Any, order: np.ndarray, best: int) -> Committed:
        state = self._learner._state
        scaled = jax.tree.map(lambda leaf: leaf * np.float32(1.001), state.params)
        self._learner._state = replace(state, params=scaled)
        return super().train(number, rows, order, best)


def play(config: ImproveConfig, make: type[InProcess]) -> None:
    prepared = prepare(config)
    prepared.open_folder()
    length = prepared.learner.recipe.data.seq_len
    with make(prepared.learner) as backend:
        ImproveRun(config, prepared.out, prepared.tokenizer, prepared.tasks, backend, length).run()


def without_round_2(run: Path, out: Path) -> None:
    """A copy of a run as it was before round 2 was planned."""
    shutil.copytree(run, out)
    lines = (run / "rounds.jsonl").read_text().splitlines(keepends=True)
    (out / "rounds.jsonl").write_text("".join(line for line in lines if json.loads(line)["round"] == 1))
    last = max(int(one.name) for one in (run / "checkpoints").iterdir())
    for name in ("rounds/2", "heldout/2", f"checkpoints/{last}", "traces/2.npz", "result.json", "index.html"):
        path = out / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()


if __name__ == "__main__":
    raise SystemExit(main())
