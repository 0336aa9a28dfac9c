"""What this machine has and lacks, and the exact command to get it: python jobs/doctor.py [--json].

``--cluster`` looks at all hosts of a cluster instead: ray job submit --working-dir . -- python jobs/doctor.py --cluster
There every host also writes, reads and removes an object in ``--bucket gs://...`` ($LEMUR_STORE), through every client.
Exit code 1 if something is missing that everything needs. Needs no installed package."""

import _path

import argparse
import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from lemur_ray.cluster import connection
from lemur_ray.cluster.ray_environment import PROJECT_ROOT, USER_ENVIRONMENT
from lemur_ray.host.commands import as_typed, program
from lemur_ray import doctor


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(program("doctor.py"), description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--help-all", action="help", help=argparse.SUPPRESS)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    parser.add_argument("--cluster", action="store_true", help="the hosts of the cluster of RAY_ADDRESS")
    parser.add_argument("--bucket", default="", help="with --cluster: a URL that every host is to try; $LEMUR_STORE")
    asked = parser.parse_args(argv)
    here = doctor.Machine(Path(PROJECT_ROOT), env=USER_ENVIRONMENT)
    checks = of_cluster(asked.bucket) if asked.cluster else doctor.examine(here)
    healthy = doctor.healthy(checks)
    if asked.json:
        print(json.dumps({"healthy": healthy, "checks": [asdict(check) for check in checks]}))
    else:
        print(as_typed("\n".join(doctor.lines(checks))))
        print("\nall that is required is there" if healthy else "\nsomething required is missing: see above")
    return 0 if healthy else 1


def of_cluster(bucket: str) -> list[doctor.Check]:
    """Checks of all hosts of the cluster of RAY_ADDRESS, and of ``bucket``. SystemExit if RAY_ADDRESS is not set."""
    bucket = bucket or next((url for url in [os.environ.get("LEMUR_STORE", "")] if "://" in url), "")
    if not os.environ.get("RAY_ADDRESS"):
        command = "ray job submit --working-dir . -- python jobs/doctor.py --cluster"
        raise SystemExit(f"doctor --cluster: RAY_ADDRESS is not set, so there is no cluster to look at: {command}")
    connection.connect(require_same_code=False, log_to_driver=False)  # what differs is what is asked for
    from lemur_ray.doctor.hosts.survey import ask, lock_of
    from lemur_ray.doctor.hosts.cluster_checks import checks

    lock = Path(PROJECT_ROOT) / "requirements.lock"
    found = ask(bucket=bucket)
    locked = lock_of(lock.read_text().splitlines() if lock.is_file() else ())
    return checks(found.hosts, found.silent, found.free_cpus, locked, bucket, found.bucket, found.most_cpus)


if __name__ == "__main__":
    _path.run(main)
