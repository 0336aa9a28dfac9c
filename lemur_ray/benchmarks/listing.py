"""The list of benchmarks on this machine: number of tasks, requirements, and which of them are not met."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.benchmarks.discovery import Offer, offers
from lemur_ray.benchmarks.needs import NoDataFolder, NoDataProblem, missing_requirements
from lemur_ray.host.home import outside_data

READY = "ready"


@dataclass(frozen=True)
class BenchmarkStatus:
    """A benchmark on this machine. ``needs``: kinds of requirements with default options; ``lacks``: problems with
    them."""

    name: str
    size: str
    needs: tuple[str, ...]
    lacks: tuple[str, ...]

    @property
    def is_ready(self) -> bool:
        return not self.lacks


def listing(words: Sequence[str]) -> str:
    """The text that ``--list [--data DIR]`` prints: all benchmarks and their requirements. Raises ValueError for other
    ``words``."""
    rest = [word for word in words if word != "--list"]
    if rest and (len(rest) != 2 or rest[0] != "--data"):
        raise ValueError(f"--list {' '.join(rest)}: expected nothing beside it but --data DIR")
    data = outside_data(rest[1] if rest else os.environ.get("LEMUR_DATA", ""))
    return "\n".join(status_lines(benchmark_statuses(data)))


def benchmark_statuses(data: Path | None) -> list[BenchmarkStatus]:
    """Statuses of all declared benchmarks, checked in parallel. ``data``: folder of outside data sets, if any."""
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
    return BenchmarkStatus(offer.name, size, tuple(kinds), tuple(missing_requirements(needs)))


def status_lines(everything: Sequence[BenchmarkStatus]) -> Iterator[str]:
    """Lines of text: a table of the benchmarks by name, then each missing requirement once, with its remedy."""
    ordered = sorted(everything, key=lambda one: one.name)
    yield from _table([_HEAD, *map(_row, ordered)])
    missing: dict[str, list[str]] = {}
    for one in ordered:
        for lack in one.lacks:
            is_shared = isinstance(lack, NoDataProblem)
            shared = f"What they ask is {NoDataFolder.remedy}" if is_shared else lack.removeprefix(f"{one.name}: ")
            missing.setdefault(shared, []).append(one.name)
    for lack, names in missing.items():
        yield f"\nMissing for {', '.join(names)}:\n  {lack}"


_HEAD = ("BENCHMARK", "HERE", "NEEDS", "TASKS")


def _row(one: BenchmarkStatus) -> tuple[str, ...]:
    state = READY if one.is_ready else f"{len(one.lacks)} missing"
    return one.name, state, ", ".join(one.needs) or ("nothing" if one.size else ""), one.size


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
