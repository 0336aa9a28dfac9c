"""Improve a chat model by play: rounds of episodes, selection and training on one Ray cluster. Resumes.

    python jobs/improve.py --init-from nano-chat                                      # what it won is trained
    python jobs/improve.py --init-from nano-chat --algorithm teacher                  # ALFWorld's expert corrects it
    python jobs/improve.py --init-from nano-chat --algorithm teacher --control        # the expert's own games instead
    python jobs/improve.py --init-from RUN --benchmark intercode/sql                  # by the benchmark's reward

Prints a line for each round; the last line is the result as JSON. The run folder is a model like any other."""

import _path

import json
from collections.abc import Sequence

from lemur_ray.config import parse
from lemur_ray.host.exit_codes import CausedError
from lemur_ray.improve.config import ImproveConfig
from lemur_ray.rollout.exit_codes import job_exit


def main(argv: Sequence[str] | None = None) -> int:
    config = parse(ImproveConfig, argv, default=ImproveConfig(), prog="improve.py")
    from lemur_ray.improve.on_ray.backend import improve
    from lemur_ray.train.run.needs import RUN_ERRORS

    with job_exit("improve") as end:
        try:
            print(json.dumps(improve(config, lambda line: print(line, flush=True)), allow_nan=False), flush=True)
        except (CausedError, *RUN_ERRORS) as error:
            return _path.fail("improve", error)
    return end.code


if __name__ == "__main__":
    _path.run(main)
