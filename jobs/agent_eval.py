"""Play a benchmark with a policy and report it; resumes. With no arguments: ALFWorld games, newest local checkpoint."""

import _path

import contextlib
import sys
from collections.abc import Iterator, Sequence
from functools import partial

from envs.benchmarks import Choice, get_benchmark
from lemur_ray.agents.policy_spec import PolicySpec
from lemur_ray.config import parse
from lemur_ray.home import lemur_home, resolve_out
from lemur_ray.report.html import render_run
from lemur_ray.report.tables import summarise
from lemur_ray.rollout import evaluation
from lemur_ray.rollout.policy_target import named
from lemur_ray.rollout.threads import Pool


def main(argv: Sequence[str] | None = None) -> int:
    """0: every task is scored, or missing with a blame. 1: nothing was scored, or it could not run. 130: stopped."""
    config = parse(evaluation.EvalConfig, argv, bare_flags=True)
    with evaluation.ending_well("agent_eval") as end:
        benchmark, spec = get_benchmark(config.benchmark), PolicySpec.parse(config.policy, config.policy_model)
        if config.out:  # said before anything slow is begun
            evaluation.prepare_out(resolve_out(config.out, ""))
        spec = named(spec, lemur_home() / "runs", config.patience_s)
        prompt = config.prompt if config.prompt != "auto" else "brief" if spec.knows_our_words else "full"
        tasks = benchmark.load(Choice(config.limit, prompt, config.reward, config.handicap))
        settings = evaluation.settings_of(config, prompt, benchmark.max_tokens[prompt], tasks, benchmark.settings)
        out = evaluation.prepare_out(resolve_out(config.out, evaluation.default_out(config.benchmark, spec.label)))
        print(f"writing to {out}", file=sys.stderr, flush=True)
        pool = partial(_pool, config, spec)
        episodes = evaluation.run_evaluation(config, tasks, spec.label, settings, out, pool)
        evaluation.say_overflow(episodes)
        render_run(out, settings.values)
        end.say({**summarise(episodes).headline(), "out": str(out)})
    return end.code


@contextlib.contextmanager
def _pool(config: evaluation.EvalConfig, spec: PolicySpec) -> Iterator[Pool]:
    """Where the episodes are played, and what they are played against, both gone afterwards."""
    with contextlib.ExitStack() as stack:
        if config.actors or spec.kind == "checkpoint":
            _path.connect(log_to_driver=False)
        if spec.kind == "checkpoint":
            from lemur_ray.serve import app

            stack.callback(app.shutdown)
            spec = spec.at_endpoint(app.serve_model(spec.target, name=spec.label), spec.label, spec.label)
        pool = evaluation.pool_of(config, spec)
        stack.callback(pool.close)
        yield pool


if __name__ == "__main__":
    sys.exit(main())
