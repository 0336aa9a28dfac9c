"""Play a benchmark with a policy and report it; resumes. With no arguments: ALFWorld games, newest local checkpoint."""

import _path  # noqa: F401

import sys
from collections.abc import Sequence

from _evaluate import evaluate
from lemur_ray.config import parse
from lemur_ray.rollout.evaluation_config import EvalConfig
from lemur_ray.rollout.job_ending import ending_well


def main(argv: Sequence[str] | None = None) -> int:
    """0: every task is scored, or missing with a blame. 1: nothing was scored, or it could not run. 130: stopped."""
    config = parse(EvalConfig, argv, bare_flags=True)
    with ending_well("agent_eval") as end:
        end.say(evaluate(config))
    return end.code


if __name__ == "__main__":
    sys.exit(main())
