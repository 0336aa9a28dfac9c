"""What this machine has and lacks, and the exact command to get it: python jobs/doctor.py [--json].

Exit code 0 unless something that everything needs is missing. Runs where nothing is installed yet.
"""

import _path

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from lemur_ray import doctor


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--json", action="store_true", help="one JSON object instead of lines")
    asked = parser.parse_args(argv)
    checks = doctor.examine(doctor.Machine(Path(_path.ROOT), env=_path.GIVEN))
    healthy = doctor.healthy(checks)
    if asked.json:
        print(json.dumps({"healthy": healthy, "checks": [asdict(check) for check in checks]}))
    else:
        print("\n".join(doctor.lines(checks)))
        print("\nall that is required is there" if healthy else "\nsomething required is missing: see above")
    return 0 if healthy else 1


if __name__ == "__main__":
    sys.exit(main())
