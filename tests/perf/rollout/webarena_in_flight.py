"""Stand-in episodes of the expert, one at a time and eight in flight: rate, seconds of a step, processor time.

``python -m tests.perf.rollout.webarena_in_flight [EPISODES] [WAIT_S]``: one JSON line a run, the last with their ratio.
WAIT_S: after the beginning and every action, 0.3 as the stand-ins have it; WebArena's own is 2. The same tasks of all
applications in turn, on two copies of each, all of which run before the first is timed. Beside the wall time stands the
processor time of everything, by who took it: this process, Playwright's driver, each kind of process of the browser,
each site. Where others take processors, eight lose more by it than one: ``busy_processors`` says what they got,
``ratio_at_most`` what the processor time of an episode would allow if they had all there are.
"""

from __future__ import annotations

import io
import json
import os
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from envs.webarena.browser.host import close_shared
from envs.webarena.sites.benchmark_standin import STANDIN, StandinOptions
from envs.webarena.sites.suite.records import software_of
from lemur_ray.agents.baselines.scripted import ExpertPolicy
from lemur_ray.agents.messages import Sampling
from lemur_ray.agents.trajectory import Outcome, Task
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.rollout.attempt import EpisodeLimits
from lemur_ray.rollout.ledger import Ledger
from lemur_ray.rollout.progress import Progress
from lemur_ray.rollout.runner import run_episodes
from lemur_ray.rollout.schedule.episode_plan import EpisodePlan
from lemur_ray.rollout.schedule.retries import RetryPolicy
from lemur_ray.rollout.threads import ThreadPool
from tests.envs.webarena.processes import cpu_by_kind, family

EPISODES, MANY, COPIES = 20, 8, 2
OPTIONS = StandinOptions(site_copies=COPIES)


def main() -> None:
    given = sys.argv[1:]
    options = replace(OPTIONS, wait_s=float(given[1])) if given[1:] else OPTIONS
    tasks = in_turn(int(given[0]) if given else EPISODES, options)
    timed(in_turn(COPIES * 5, options), COPIES * 5, options)
    one, many = timed(tasks, 1, options), timed(tasks, MANY, options)
    ratio = many["episodes_per_minute"] / one["episodes_per_minute"]
    cpu = many["cpu_s_per_episode"] / one["cpu_s_per_episode"]
    most = 60 * many["processors"] / many["cpu_s_per_episode"] / one["episodes_per_minute"]
    ratios = {"ratio_of_rates": ratio, "ratio_at_most": most, "ratio_of_cpu_s_per_episode": cpu}
    for found in (one, many, {name: round(number, 2) for name, number in ratios.items()}):
        print(json.dumps(found), flush=True)
    close_shared()


def in_turn(number: int, options: StandinOptions) -> list[Task]:
    """The first tasks, one of each application after another."""
    by_software: dict[str, list[Task]] = defaultdict(list)
    for task in STANDIN.load(options, EvaluationRequest(prompt="brief")):
        by_software[software_of(task.options["record"])[0]].append(task)
    found = [task for task in chain.from_iterable(zip_longest(*by_software.values())) if task is not None]
    return found[:number]


def timed(tasks: Sequence[Task], in_flight: int, options: StandinOptions) -> dict[str, Any]:
    """Play all of them. Raises AssertionError where one is not solved: its time would be another's."""
    limits = replace(EpisodeLimits(), reset_s=600.0)
    plan = EpisodePlan(tasks, epochs=1, policy="expert", recipe="r", sampling=Sampling(), limits=limits)
    before, began = cpu_by_kind(family(os.getpid())), time.monotonic()
    with tempfile.TemporaryDirectory() as folder, Ledger(Path(folder) / "episodes.jsonl") as ledger:
        progress, pool = Progress(io.StringIO(), time.monotonic), ThreadPool(ExpertPolicy(), in_flight)
        episodes = list(
            run_episodes(plan, pool, ledger, retries=RetryPolicy(), progress=progress, clock=time.monotonic)
        )
        wall_s = time.monotonic() - began
    after = cpu_by_kind(family(os.getpid()))
    took = {kind: seconds - before.get(kind, 0.0) for kind, seconds in after.items()}
    cpu = sum(took.values())
    assert all(one.outcome is Outcome.SOLVED for one in episodes), [
        (one.key.task, one.detail) for one in episodes if one.outcome is not Outcome.SOLVED
    ]
    steps = [step.env_s for one in episodes for step in one.trajectory.steps[:-1]]
    return {
        "in_flight": in_flight,
        "episodes": len(episodes),
        "episodes_per_minute": round(60 * len(episodes) / wall_s, 1),
        "step_s_median_beside_the_wait": round(statistics.median(steps) - options.wait_s, 3),
        "cpu_s_per_episode": round(cpu / len(episodes), 2),
        "by": {kind: round(took[kind] / len(episodes), 2) for kind in sorted(took, key=took.__getitem__, reverse=True)},
        "busy_processors": round(cpu / wall_s, 2),
        "processors": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1),
    }


if __name__ == "__main__":
    main()
