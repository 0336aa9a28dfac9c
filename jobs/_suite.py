"""All benchmarks of a suite, one after another: looked at together, played, and one page over all of them."""

import _path  # noqa: F401

import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

from _evaluate import attached, played
from lemur_ray.rollout.progress import Prices, prices_of
from lemur_ray.evaluation.suites.command_line import Suite
from lemur_ray.evaluation.suites.live_suite_page import live_suite
from lemur_ray.evaluation.suites.suite_preflight import looked_at
from lemur_ray.evaluation.suites.page import seconds_before, write_suite
from lemur_ray.evaluation.suites.progress import PartSoFar, SuiteProgress


def play_suite(suite: Suite) -> dict[str, Any]:
    """Play what is not yet played; the suite's numbers. Raises before anything is played where anything lacks."""
    out = Path(suite.out)
    parts = looked_at(suite, attached)
    before = seconds_before(out)
    so_far = [
        PartSoFar(one.part.shown, one.num_episodes, one.num_left, before_s=before.get(one.part.folder, 0.0))
        for one in parts
    ]
    priced = any(prices_of(ready.config) != Prices() for ready in parts)
    progress = SuiteProgress(so_far, time.monotonic, priced)
    write = partial(write_suite, out, suite.name, parts, suite.missing, progress)
    write()
    ledgers = [ready.prepared.out / "episodes.jsonl" for ready in parts]
    for number, ready in enumerate(parts):
        progress.begin(number)
        print(f"suite {suite.name}: benchmark {number + 1} of {len(parts)}: {ready.part.shown}", file=sys.stderr)
        try:
            with live_suite(write, ledgers):
                result = played(ready.config, ready.prepared, progress.line)
            progress.heard(result["scored"], sum(result.get("cost", {}).values()))
        finally:  # stopped or refused: what there is stands on the page
            found = write()
    kept = ("benchmark", "column", "taught", "n", "scored", "solved", "success_rate")
    benchmarks = [{name: one.get(name) for name in kept} for one in found["benchmarks"]]
    return {**found, "benchmarks": benchmarks, "out": str(out)}
