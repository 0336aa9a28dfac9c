"""Play a benchmark with a policy and report it; resumes. With no arguments: ALFWorld games, newest local checkpoint.

``--list`` shows all benchmarks, built in or installed: number of tasks, and what is missing here, with its size.
``--suite table5`` (table3 to table7, paper) plays all benchmarks of a table of the paper as one run with one report;
``--without NAME,...`` leaves some out; any other flag applies to the benchmarks that have it.
``--out gs://...`` or s3:// stores everything in a bucket, from which the same command resumes on any machine.
``--view [PORT]`` serves the report and the turns of running episodes meanwhile, by default on port 8009.
``--check-gold`` plays the reference answers of one benchmark or all, and names each that does not score 1."""

import _path

import sys
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from lemur_ray.evaluation.evaluate import evaluate
from lemur_ray.evaluation.suites.play import play_suite
from lemur_ray.benchmarks.listing import listing
from lemur_ray.evaluation.gold_check import FLAG, check_golds
from lemur_ray.report.pages.live_page import take_view
from lemur_ray.rollout.benchmark_tasks import parse_evaluation
from lemur_ray.rollout.evaluation_folder import with_local_folder
from lemur_ray.rollout.exit_codes import job_exit
from lemur_ray.evaluation.suites.command_line import is_suite, parse_suite

DEFAULT = "alfworld/text"


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code (``host.exit_codes``). 0: each task has a score or recorded error. 75: hosts or endpoints were away.
    argv: words of the command line, by default those of this process."""
    words = sys.argv[1:] if argv is None else argv
    with job_exit("agent_eval") as end:
        if "--list" in words:
            return _path.done(listing(words))
        if FLAG in words:
            return check_golds(words, partial(print, flush=True)) or end.code
        words, port = take_view(words)
        if is_suite(words):
            suite = parse_suite(words)
            end.print_headline(with_local_folder(suite.out, lambda out: play_suite(suite.within(out), port)))
            return end.code
        config = parse_evaluation(words, DEFAULT)
        end.print_headline(with_local_folder(config.out, lambda out: evaluate(replace(config, out=out), config, port)))
    return end.code


if __name__ == "__main__":
    _path.run(main)
