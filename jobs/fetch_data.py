"""Fetch outside data sets by name, with a check of their content, and their licences: docs/guides/data.md."""

import _path

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated

import tyro
from lemur_ray.benchmarks.data_sets import data_sets, select_data_sets
from lemur_ray.config import parse
from lemur_ray.host.home import lemur_home, outside_data
from lemur_ray.outside_data.fetching import FetchOptions, fetch
from lemur_ray.outside_data.listing import check_sets, list_sets
from lemur_ray.outside_data.source import FetchError


@dataclass(frozen=True)
class FetchJob:
    """Fetch outside data sets, or show which are present."""

    names: tyro.conf.Positional[tuple[str, ...]] = ()
    """Data sets, benchmarks, families, or files, as --list shows them; "benchmarks": the data of every benchmark."""
    list: bool = False
    """List all data sets, and which of them are in the data folder."""
    check: bool = False
    """Check that present files are as declared; with names, also that none of their files is missing."""
    accept: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = ()
    """Accept the terms of use of this family of data sets. May be given several times."""
    data: str = field(default_factory=lambda: os.environ.get("LEMUR_DATA", ""))
    """Folder of outside data sets (default $LEMUR_DATA, else LEMUR_HOME/data)."""
    rows: int = 100_000
    """Number of rows to keep of a set that is too large to keep whole."""


def main(argv: Sequence[str] | None = None) -> int:
    job = parse(FetchJob, argv, prog="fetch_data.py")
    data = outside_data(job.data) or lemur_home() / "data"
    try:
        if not (job.names or job.list or job.check):
            raise ValueError("name what to fetch; --list shows what there is")
        known = data_sets(lambda line: print(f"fetch_data: {line}", file=sys.stderr))
        chosen = select_data_sets(job.names, known) if job.names else known
        if job.list:
            list_sets(chosen, data, print)
        elif job.check:
            return int(not check_sets(chosen, data, print, all_needed=bool(job.names)))
        else:
            return int(bool(fetch(chosen, FetchOptions(data, job.accept), rows=job.rows)))
    except (FetchError, ValueError, OSError) as error:
        return _path.fail("fetch_data", error)
    return 0


if __name__ == "__main__":
    _path.run(main)
