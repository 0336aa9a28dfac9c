"""One evaluation from its command line to its pages: what agent_eval does once and fidelity for each recorded run."""

import _path

import contextlib
import sys
from collections.abc import Iterator
from functools import partial
from typing import Any

from envs.benchmarks import Choice, get_benchmark
from lemur_ray.agents.policy_spec import PolicySpec
from lemur_ray.home import lemur_home, resolve_out
from lemur_ray.report.agreement import agreement
from lemur_ray.report.pages.whole_page import render_run
from lemur_ray.report.tables import summarise
from lemur_ray.rollout.evaluation import pool_of, run_evaluation
from lemur_ray.rollout.evaluation_config import EvalConfig, settings_of
from lemur_ray.rollout.evaluation_folder import EvaluationError, default_out, prepare_out
from lemur_ray.rollout.job_ending import say_missing, say_overflow
from lemur_ray.rollout.policy_target import named
from lemur_ray.rollout.threads import Pool


def evaluate(config: EvalConfig) -> dict[str, Any]:
    """Play what is not yet played, write the pages; the numbers of the evaluation as JSON values."""
    benchmark = get_benchmark(config.benchmark)
    spec = PolicySpec.parse(config.policy, config.policy_model, benchmark.recordings)
    if spec.kind in ("expert", "random") and not benchmark.has_hints:
        raise EvaluationError(f"--policy {spec.kind}: {config.benchmark} has neither expert nor actions to draw")
    if config.out:  # said before anything slow is begun
        prepare_out(resolve_out(config.out, ""))
    spec = named(spec, lemur_home() / "runs", config.patience_s)
    prompt = config.prompt if config.prompt != "auto" else "brief" if spec.knows_our_words else "full"
    tasks = benchmark.load(Choice.of(config, prompt, spec.recording))
    tokens, stop = benchmark.max_tokens[prompt], benchmark.stop
    settings = settings_of(config, prompt, tokens, tasks, benchmark.settings, stop, spec.recording)
    out = prepare_out(resolve_out(config.out, default_out(config.benchmark, spec.label)))
    print(f"writing to {out}", file=sys.stderr, flush=True)
    episodes = run_evaluation(config, tasks, spec.label, settings, out, partial(_pool, config, spec))
    say_missing(episodes)
    say_overflow(episodes)
    notes = {**benchmark.notes(episodes), **agreement(spec.recording, benchmark.recordings, episodes)}
    render_run(out, {**settings.values, **notes}, (config.benchmark, spec.label, settings.hash))
    return {**summarise(episodes).headline(), **notes, "out": str(out)}


@contextlib.contextmanager
def _pool(config: EvalConfig, spec: PolicySpec) -> Iterator[Pool]:
    """Where the episodes are played, and what they are played against, both gone afterwards."""
    with contextlib.ExitStack() as stack:
        if config.num_actors or spec.served_here:
            _path.connect(log_to_driver=False)
        if spec.served_here:
            from lemur_ray.serve.on_ray import deployments, serve_cluster

            stack.callback(serve_cluster.shutdown)
        pool = pool_of(config, deployments.serve_policy(spec) if spec.served_here else spec)
        stack.callback(pool.close)
        yield pool
