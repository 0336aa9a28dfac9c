"""Play a benchmark with a policy and report it; resumes. With no arguments: ALFWorld games, newest local checkpoint.

``--list`` shows all benchmarks, built in or installed: number of tasks, requirements, and which of them are missing.
``--suite table5`` (table3 to table7, paper) plays all benchmarks of a table of the paper as one run with one report;
``--without NAME,...`` leaves some out; any other flag applies to the benchmarks that have it.
``--out gs://...`` or s3:// stores everything in a bucket, from which the same command resumes on any machine.
``--check-gold`` plays the reference answers of one benchmark or all, and names each that does not score 1.
"""

import _path

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from lemur_ray.evaluation.evaluate import evaluate
from lemur_ray.evaluation.suites.play import play_suite
from lemur_ray.benchmarks.listing import status_lines, benchmark_statuses
from lemur_ray.evaluation.gold_check import FLAG, check_golds
from lemur_ray.host.home import outside_data
from lemur_ray.rollout.benchmark_tasks import parse_evaluation
from lemur_ray.rollout.evaluation_folder import with_local_folder
from lemur_ray.rollout.exit_codes import job_exit
from lemur_ray.evaluation.suites.command_line import is_suite, parse_suite

DEFAULT = "alfworld/text"


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code (``host.exit_codes``). 0: each task has a score or recorded error. 75: hosts or endpoints were away."""
    words = sys.argv[1:] if argv is None else argv
    with job_exit("agent_eval") as end:
        if "--list" in words:
            return show(words)
        if FLAG in words:
            return check_golds(words, partial(print, flush=True)) or end.code
        if is_suite(words):
            suite = parse_suite(words)
            end.print_headline(with_local_folder(suite.out, lambda out: play_suite(suite.within(out))))
            return end.code
        config = parse_evaluation(words, DEFAULT)
        end.print_headline(with_local_folder(config.out, lambda out: evaluate(replace(config, out=out), config)))
    return end.code


def show(words: Sequence[str]) -> int:
    """``--list [--data DIR]``: print all benchmarks and their requirements. Returns exit code 0."""
    rest = [word for word in words if word != "--list"]
    if rest and (len(rest) != 2 or rest[0] != "--data"):
        raise ValueError(f"--list {' '.join(rest)}: expected nothing beside it but --data DIR")
    print(
        "\n".join(status_lines(benchmark_statuses(outside_data(rest[1] if rest else os.environ.get("LEMUR_DATA", "")))))
    )
    return 0


if __name__ == "__main__":
    _path.run(main)
