"""The list of benchmarks on this machine: number of tasks, size and licence of the data, other requirements, and which
of them are not met."""

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.benchmarks.data_sets import ALL_BENCHMARKS
from lemur_ray.benchmarks.discovery import Offer, offers
from lemur_ray.benchmarks.needs import NoDataProblem, missing_requirements
from lemur_ray.host.commands import as_typed
from lemur_ray.host.home import outside_data
from lemur_ray.outside_data.checking import is_there
from lemur_ray.outside_data.source import Source, readable

READY = "ready"


@dataclass(frozen=True)
class BenchmarkStatus:
    """A benchmark on this machine. ``size``: its number of tasks, in words. ``needs``: kinds of requirements with
    default options; ``lacks``: problems with them. ``to_fetch``: declared files of its data that are not there."""

    name: str
    size: str
    needs: tuple[str, ...]
    lacks: tuple[str, ...]
    to_fetch: tuple[Source, ...] = ()

    @property
    def is_ready(self) -> bool:
        return not self.lacks


def listing(words: Sequence[str]) -> str:
    """The text that ``--list [--data DIR]`` prints: all benchmarks, their requirements, and which are not met.
    ``words``: the rest of the command line. Raises ValueError for other words."""
    rest = [word for word in words if word != "--list"]
    if rest and (len(rest) != 2 or rest[0] != "--data"):
        raise ValueError(f"--list {' '.join(rest)}: expected nothing beside it but --data DIR")
    data = outside_data(rest[1] if rest else os.environ.get("LEMUR_DATA", ""))
    return as_typed("\n".join(status_lines(benchmark_statuses(data))))


def benchmark_statuses(data: Path | None) -> list[BenchmarkStatus]:
    """Statuses of all declared benchmarks, checked in parallel. ``data``: folder of downloaded data sets, if any."""
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda offer: _of(offer, data), offers()))


def _of(offer: Offer, data: Path | None) -> BenchmarkStatus:
    if offer.benchmark is None or offer.why:
        return BenchmarkStatus(offer.name, "", (), (offer.why,))
    size = offer.benchmark.details.size or "unknown"
    try:
        needs = offer.benchmark.requirements(offer.benchmark.options(), EvaluationRequest(data))
    except (Exception, SystemExit) as error:  # an installed package may raise anything
        problem = f"{offer.name}: what it needs cannot be had: {type(error).__name__}: {error}"
        return BenchmarkStatus(offer.name, size, (), (problem,))
    kinds = dict.fromkeys("data" if "/" in need.what else need.what for need in needs if need.what)
    lacks = tuple(missing_requirements(needs))
    absent = tuple(one for one in offer.benchmark.sources if data is None or not is_there(one, data))
    to_fetch = absent if any(_is_about_files(lack, absent) for lack in lacks) else ()
    return BenchmarkStatus(offer.name, size, tuple(kinds), lacks, to_fetch)


def _is_about_files(lack: str, files: Sequence[Source]) -> bool:
    """Whether fetching some of ``files`` is the remedy of a problem."""
    return bool(files) and (isinstance(lack, NoDataProblem) or any(f.path in lack and not f.by_hand for f in files))


def status_lines(everything: Sequence[BenchmarkStatus]) -> Iterator[str]:
    """Lines of text: a table of the benchmarks by name, then the command that fetches all data, then each other missing
    requirement once, with its remedy."""
    ordered = sorted(everything, key=lambda one: one.name)
    yield from _table([_HEAD, *map(_row, ordered)])
    missing: dict[str, dict[str, None]] = {}
    for one in ordered:
        for lack in one.lacks:
            shared = _ABOUT_DATA if _is_about_files(lack, one.to_fetch) else lack.removeprefix(f"{one.name}: ")
            missing.setdefault(shared, {})[one.name] = None
    if names := missing.pop(_ABOUT_DATA, None):
        sizes = {part.path: part.size for one in ordered for part in one.to_fetch}
        unknown = list(sizes.values()).count(0)
        total = readable(sum(sizes.values())) + (f" and {unknown} files of unknown size" if unknown else "")
        yield f"\nThe data of {len(names)} benchmarks is not there ({total}). {_ABOUT_DATA}"
    for lack, names in missing.items():
        yield f"\nMissing for {', '.join(names)}:\n  {lack}"


_ABOUT_DATA = (
    f"`python jobs/fetch_data.py {ALL_BENCHMARKS}` fetches all of it, `python jobs/fetch_data.py NAME` that of one; if "
    "it lies elsewhere, say where with --data or LEMUR_DATA."
)
_HEAD = ("BENCHMARK", "HERE", "DATA TO FETCH", "OTHER NEEDS", "TASKS")


def _row(one: BenchmarkStatus) -> tuple[str, ...]:
    state = READY if one.is_ready else f"{len(one.lacks)} missing"
    others = ", ".join(kind for kind in one.needs if kind != "data")
    licences = dict.fromkeys(part.licence.partition(";")[0].partition(",")[0] for part in one.to_fetch)
    known = all(part.size for part in one.to_fetch)
    to_fetch = readable(sum(part.size for part in one.to_fetch) if known else 0) if one.to_fetch else ""
    return one.name, state, ", ".join((to_fetch, *licences)), others, one.size


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
