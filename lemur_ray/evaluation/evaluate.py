"""One evaluation from its configuration to its pages: preflight, episodes that have no score yet, report.

Ray, the server of a model and the pool are started only if there is something to play."""

import contextlib
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

from lemur_ray.agents.messages import Policy
from lemur_ray.agents.policy_spec import PolicySpec
from lemur_ray.benchmarks.discovery import find
from lemur_ray.benchmarks.plugin_calls import call_notes
from lemur_ray.benchmarks.resource_request import TEXT
from lemur_ray.cluster.connection import connect, has_cluster
from lemur_ray.config.config_file import CONFIG_FILE, config_text
from lemur_ray.evaluation.preflight import Prepared, prepare
from lemur_ray.report.agreement import compare_recording
from lemur_ray.report.ledgers.stored_episodes import drop_texts
from lemur_ray.report.pages.live_page import live_page, live_view
from lemur_ray.report.pages.whole_page import render_run
from lemur_ray.report.samples import single_turn_sample_rates
from lemur_ray.report.tables import summarise
from lemur_ray.rollout.evaluation import create_pool, run_evaluation
from lemur_ray.rollout.evaluation_config import EvalConfig
from lemur_ray.rollout.evaluation_folder import replace_file
from lemur_ray.rollout.exit_codes import warn_of_anomalies
from lemur_ray.rollout.progress import Suffix, token_costs
from lemur_ray.rollout.threads import Pool
from lemur_ray.serve.on_ray.attach import attach

RAY_ACTORS = 2
"""Maximum number of actors if Ray is chosen without --actors; each plays half of the episodes in flight."""


def evaluate(config: EvalConfig[Any], given: EvalConfig[Any] | None = None, view: int | None = None) -> dict[str, Any]:
    """Run the preflight, play all episodes without a score and write the pages. Returns the headline numbers as JSON
    values. ``given``: the configuration to store, if ``config`` has the local copy of a bucket as its folder. ``view``:
    port of a report that is served meanwhile, as in ``live_view``. Raises PreflightError, and as ``run_evaluation``."""
    prepared = prepare(config, find(config.benchmark), attach_policy)
    with live_view(prepared.out, view, [prepared.out]):
        return play_prepared(config, prepared, given=given)


def play_prepared(
    config: EvalConfig[Any], prepared: Prepared, suffix: Suffix | None = None, given: EvalConfig[Any] | None = None
) -> dict[str, Any]:
    """Play and report an evaluation that has passed the preflight; returns its numbers. ``suffix``: returns text for
    the end of the progress line. ``given``: the configuration to store, if ``config`` has the local copy of a bucket.
    Raises as ``run_evaluation``."""
    benchmark, spec, tasks, out = find(config.benchmark), prepared.policy, prepared.tasks, prepared.out
    settings, plan = prepared.settings, prepared.plan(config, benchmark)
    departures = prepared.print_departures()
    replace_file(out / CONFIG_FILE, config_text(given or config, flat=True))
    with live_page(out, tasks, spec.label, settings.hash, config.epochs) as made:
        episodes = run_evaluation(plan, partial(open_pool, config, prepared), suffix)
    warn_of_anomalies(counted := drop_texts(episodes))
    notes = call_notes(benchmark, counted) | compare_recording(
        spec.recording, benchmark.details.recording_format, episodes, tasks
    )
    notes |= {**token_costs(counted, config.prices), **single_turn_sample_rates(counted), **departures}
    headline = summarise(counted).headline()
    del counted  # the page reads the ledger anew
    render_run(out, {**settings.values, **notes}, made)
    return {**headline, **notes, "out": str(out)}


def attach_policy(spec: PolicySpec) -> PolicySpec:
    """Add to a ``handle:`` policy the Ray Serve application that already serves its model; unchanged without one.
    Raises ValueError if several do."""
    return attach(spec, connect=partial(connect, log_to_driver=False))


def choose_actors(config: EvalConfig[Any], policy: PolicySpec) -> int:
    """Number of Ray actors to play with: --actors if given, else chosen and printed to stderr; 0 means threads in this
    process. Threads start at once and suffice for text environments, whose episodes mostly wait for a reply; Ray
    spreads episodes that run programs or browsers over processes and hosts."""
    if config.by_hand:
        return 0
    each = find(config.benchmark).resources
    if has_cluster():
        where, reason = RAY_ACTORS, "a Ray cluster is there"
    elif policy.served_here:
        where, reason = RAY_ACTORS, "the model is served on Ray"
    elif each.cpus > TEXT.cpus or each.memory_bytes > TEXT.memory_bytes:
        where, reason = RAY_ACTORS, "its episodes run programs or a browser"
    else:
        where, reason = 0, "its episodes are texts and queries"
    chosen, other = ("Ray actors", "--actors 0 plays in threads") if where else ("threads", "--actors 2 starts Ray")
    print(f"{config.benchmark} is played in {chosen}: {reason} ({other})", file=sys.stderr, flush=True)
    return where


@contextlib.contextmanager
def open_pool(config: EvalConfig[Any], prepared: Prepared) -> Iterator[Pool]:
    """Context manager for the pool that plays the episodes; it also runs the model's server if the policy needs one.
    prepared: the evaluation after its preflight."""
    with contextlib.ExitStack() as stack:
        policy: Callable[[], Policy] = prepared.policy
        if config.actors is None:
            config = replace(config, actors=choose_actors(config, prepared.policy))
        if prepared.policy.served_here:  # imported first, so that messages of Ray Serve go to the log, too
            from lemur_ray.serve.on_ray import deployments, serve_cluster
        if config.actors or prepared.policy.served_here:
            connect(log_to_driver=False)
        if prepared.policy.served_here:
            stack.callback(serve_cluster.shutdown)
            policy = deployments.serve_policy(prepared.policy)
        yield stack.enter_context(contextlib.closing(create_pool(config, policy, prepared.tasks)))
