"""Plan a served model on devices that are not here: python jobs/plan_serving.py lemur-70b-chat --slice v4:2x2x4.

Compiles a decode step and a prefill step for all devices of a slice or GPUs and prints the memory of one device, the
collectives by the line that asked for them and an estimate of the speed; the last line is one JSON object. Without
devices, the smallest slices and boxes of GPUs that fit, by formula. Exit code 1: it does not fit, or with --check a
bound is broken. TPUs need libtpu (extra [tpu]), GPUs `make gpu-compiler`, whose python runs the job."""

import _path

import sys
from collections.abc import Sequence

from lemur_ray.serve.planning import plan_job
from lemur_ray.train.aot.absent_devices import NoLibtpu
from lemur_ray.train.job_arguments import parse_job


def main(argv: Sequence[str] | None = None) -> int:
    job = parse_job(plan_job.PlanServingJob, argv, prog="plan_serving.py", recipe="llama2-7b")
    try:
        return plan_job.run(job, plan_job.given_flags(sys.argv[1:] if argv is None else argv), print)
    except (ValueError, NoLibtpu) as error:
        return _path.fail("plan_serving", error)


if __name__ == "__main__":
    _path.run(main)
