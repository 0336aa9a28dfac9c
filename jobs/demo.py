"""The whole project once, on a Ray head that it starts: what ``make demo`` runs. Prints the path of the report last."""

import _path

import signal
import sys
from collections.abc import Sequence

from lemur_ray.config import parse
from lemur_ray.cluster.demo import DemoConfig, DemoFailed, run


def main(argv: Sequence[str] | None = None) -> int:
    config = parse(DemoConfig, argv, prog="demo.py")
    for number in (signal.SIGTERM, signal.SIGHUP):  # as Ctrl-C: what was started ends, what was finished stays
        signal.signal(number, signal.default_int_handler)
    try:
        run(config)
    except DemoFailed as error:
        return _path.fail("demo", error)
    except KeyboardInterrupt:
        print("demo: stopped; the same command goes on where it left off", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    _path.run(main)
