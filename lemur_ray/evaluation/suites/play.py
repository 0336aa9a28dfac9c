"""Plays all benchmarks of a suite one after another: one preflight of all, episodes, and one page about all."""

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from lemur_ray.evaluation.evaluate import attach_policy, play_prepared
from lemur_ray.evaluation.suites.command_line import Suite
from lemur_ray.evaluation.suites.page import seconds_before, write_suite
from lemur_ray.evaluation.suites.progress import PartSoFar, SuiteProgress
from lemur_ray.evaluation.suites.suite_preflight import prepare_suite
from lemur_ray.report.pages.live_page import EVERY_S, SHARE, live_view
from lemur_ray.rollout.attempt import Prices


@contextlib.contextmanager
def live_suite(write: Callable[[], object], ledgers: Sequence[Path], every_s: float = EVERY_S) -> Iterator[None]:
    """Context manager: during the block a thread calls ``write`` every ``every_s`` seconds if a file of ``ledgers`` has
    grown, less often if ``write`` is slow. An error of ``write`` is printed once and ignored."""
    over = threading.Event()

    def rewrite(last_bytes: int) -> None:
        pause, reported = every_s, False
        while not over.wait(pause):
            if (now := _bytes(ledgers)) == last_bytes:
                continue
            began = time.monotonic()
            try:
                write()
                last_bytes = now
            except Exception as error:  # whatever it is, the run goes on, and its end writes the page again
                if not reported:
                    reported = True
                    reason = f"{type(error).__name__}: {error}"
                    print(f"the suite's page cannot be written while it goes on: {reason}", file=sys.stderr, flush=True)
            pause = max(every_s, (time.monotonic() - began) * (1 / SHARE - 1))

    thread = threading.Thread(target=rewrite, args=(_bytes(ledgers),), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _bytes(ledgers: Sequence[Path]) -> int:
    return sum(path.stat().st_size for path in ledgers if path.is_file())


BENCHMARK_KEYS = ("benchmark", "column", "taught", "n", "scored", "solved", "success_rate")
"""Keys of each benchmark in a suite's last line; report.json has more."""


def play_suite(suite: Suite, view: int | None = None) -> dict[str, Any]:
    """Play all episodes of a suite without a score, and write its page. Returns the suite's numbers. ``view``: port of
    a report that is served meanwhile, None: none. Raises EvaluationError before any episode if a need is not met."""
    out = Path(suite.out)
    parts = prepare_suite(suite, attach_policy)
    earlier_s = seconds_before(out)
    so_far = [
        PartSoFar(one.part.shown, one.num_episodes, one.num_left, before_s=earlier_s.get(one.part.folder, 0.0))
        for one in parts
    ]
    priced = any(ready.config.prices != Prices() for ready in parts)
    progress = SuiteProgress(so_far, time.monotonic, priced)
    write = partial(write_suite, out, suite.name, parts, suite.missing, progress)
    numbers = write()
    ledgers = [ready.prepared.out / "episodes.jsonl" for ready in parts]
    with live_view(out, view, [ready.prepared.out for ready in parts]):
        for index, ready in enumerate(parts):
            progress.start_part(index)
            print(f"suite {suite.name}: benchmark {index + 1} of {len(parts)}: {ready.part.shown}", file=sys.stderr)
            given = replace(ready.config, out=f"{suite.given_out or suite.out}/{ready.part.folder}")
            try:
                with live_suite(write, ledgers):
                    result = play_prepared(ready.config, ready.prepared, progress.line, given)
                progress.update(result["scored"], sum(result.get("cost", {}).values()))
            finally:  # the page is complete also where the run was stopped or refused
                numbers = write()
    benchmarks = [{key: one.get(key) for key in BENCHMARK_KEYS} for one in numbers["benchmarks"]]
    return {**numbers, "benchmarks": benchmarks, "out": str(out)}
