"""One evaluation from its command line to its pages: what agent_eval does once and fidelity for each recorded run."""

import _path

import contextlib
from collections.abc import Iterator
from functools import partial
from typing import Any

from lemur_ray.benchmarks.discovery import find
from lemur_ray.evaluation.preflight import Prepared, prepare
from lemur_ray.report.agreement import agreement
from lemur_ray.report.ledgers.stored_episodes import without_texts
from lemur_ray.report.pages.live_page import live_page
from lemur_ray.report.pages.whole_page import render_run
from lemur_ray.report.samples import headline_samples
from lemur_ray.report.tables import summarise
from lemur_ray.rollout.evaluation import Beside, pool_of, run_evaluation
from lemur_ray.rollout.evaluation_config import EvalConfig
from lemur_ray.rollout.exit_codes import say_what_is_odd
from lemur_ray.rollout.progress import costs
from lemur_ray.rollout.threads import Pool
from lemur_ray.serve.on_ray.attach import attach

attached = partial(attach, connect=partial(_path.connect, log_to_driver=False))


def evaluate(config: EvalConfig[Any]) -> dict[str, Any]:
    """Look at everything, play what is not yet played, write the pages; the numbers as JSON values."""
    return played(config, prepare(config, find(config.benchmark), attached))


def played(config: EvalConfig[Any], ready: Prepared, beside: Beside | None = None) -> dict[str, Any]:
    """Of what was looked at. ``beside``: as in ``run_evaluation``."""
    benchmark, spec, tasks, out = find(config.benchmark), ready.policy, ready.tasks, ready.out
    settings, told, kept = ready.settings, ready.told(), ready.kept(config.benchmark, benchmark)
    with live_page(out, tasks, spec.label, settings.hash, config.epochs) as made:
        start = partial(_pool, config, ready)
        episodes = run_evaluation(config, tasks, spec.label, settings, out, start, beside=beside, **kept)
    say_what_is_odd(counted := without_texts(episodes))
    notes = ready.notes(benchmark, counted) | agreement(spec.recording, benchmark.recordings, episodes, tasks)
    notes |= {**costs(counted, config), **headline_samples(counted), **told}
    headline = summarise(counted).headline()
    del counted  # the page reads the ledger anew
    render_run(out, {**settings.values, **notes}, made)
    return {**headline, **notes, "out": str(out)}


@contextlib.contextmanager
def _pool(config: EvalConfig[Any], ready: Prepared) -> Iterator[Pool]:
    """Where the episodes are played, and what they are played against, both gone afterwards."""
    with contextlib.ExitStack() as stack:
        if config.num_actors or ready.policy.served_here:
            _path.connect(log_to_driver=False)
        if ready.policy.served_here:
            from lemur_ray.serve.on_ray import deployments, serve_cluster

            stack.callback(serve_cluster.shutdown)
        asked = deployments.serve_policy(ready.policy) if ready.policy.served_here else ready.policy
        yield stack.enter_context(contextlib.closing(pool_of(config, asked, ready.tasks)))
