"""The list of benchmarks on this machine: number of tasks, what is missing, size and licence of missing data, and how
to get it."""

import os
import re
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.benchmarks.data_sets import ALL_BENCHMARKS, files_to_fetch, how_to_fetch
from lemur_ray.benchmarks.discovery import Offer, offers
from lemur_ray.benchmarks.needs import problems_by_requirement
from lemur_ray.host.commands import as_typed
from lemur_ray.host.home import outside_data
from lemur_ray.outside_data.source import Source, readable

READY = "ready"
WIDTH = 118
"""Columns of the longest line of text, except where a word is longer"""
_NAME_WIDTH = 36


@dataclass(frozen=True)
class BenchmarkStatus:
    """A benchmark on this machine. ``size``: its number of tasks, in words. ``lacks``: problems with its requirements
    at default options; ``kinds``: kinds of these requirements; ``files``: those of its data that are not there and
    ``about_files``: the problems that they remedy."""

    name: str
    size: str
    lacks: tuple[str, ...] = ()
    kinds: tuple[str, ...] = ()
    files: tuple[Source, ...] = ()
    about_files: frozenset[str] = frozenset()

    @property
    def is_ready(self) -> bool:
        return not self.lacks


def listing(words: Sequence[str]) -> str:
    """The text that ``--list [--data DIR]`` prints: all benchmarks, what each lacks here, and how to get it. ``words``:
    the rest of the command line. Raises ValueError for other words."""
    rest = [word for word in words if word != "--list"]
    if rest and (len(rest) != 2 or rest[0] != "--data"):
        raise ValueError(f"--list {' '.join(rest)}: expected nothing beside it but --data DIR")
    given = rest[1] if rest else ""
    statuses = benchmark_statuses(outside_data(given or os.environ.get("LEMUR_DATA", "")))
    return as_typed("\n".join(status_lines(statuses, given)))


def benchmark_statuses(data: Path | None) -> list[BenchmarkStatus]:
    """Statuses of all declared benchmarks, checked in parallel. ``data``: folder of downloaded data sets, if any."""
    with ThreadPoolExecutor(8) as pool:
        return list(pool.map(lambda offer: _of(offer, data), offers()))


def _of(offer: Offer, data: Path | None) -> BenchmarkStatus:
    if offer.benchmark is None or offer.why:
        return BenchmarkStatus(offer.name, "", (offer.why,), ("benchmark",))
    size = offer.benchmark.details.size or "unknown"
    try:
        needs = offer.benchmark.requirements(offer.benchmark.options(), EvaluationRequest(data))
    except (Exception, SystemExit) as error:  # an installed package may raise anything
        problem = f"{offer.name}: what it needs cannot be had: {type(error).__name__}: {error}"
        return BenchmarkStatus(offer.name, size, (problem,), ("benchmark",))
    problems = problems_by_requirement(needs)
    files = files_to_fetch(offer.benchmark, data, problems)
    kinds = dict.fromkeys("data" if "/" in need.what else need.what or "benchmark" for need in problems.values())
    missing = dict.fromkeys(chain.from_iterable(files.values()))
    return BenchmarkStatus(offer.name, size, tuple(problems), tuple(kinds), tuple(missing), frozenset(files))


def status_lines(everything: Iterable[BenchmarkStatus], data: str = "") -> Iterator[str]:
    """Lines of text: a table of the benchmarks by name, those of a family that lack the same in one row; the command
    that fetches all data; each other missing requirement once, with its remedy. ``data``: folder given with --data."""
    ordered = sorted(everything, key=lambda one: one.name)
    groups: dict[tuple[object, ...], list[BenchmarkStatus]] = {}
    for one in ordered:
        family, variant = one.name.partition("/")[::2]
        groups.setdefault((family, bool(variant), one.kinds, _licences([one])), []).append(one)
    yield from _table([_HEAD, *(row for group in groups.values() for row in _rows(group))])
    if files := {one.name: one.files for one in ordered if one.files}:
        yield ""
        words = f"{ALL_BENCHMARKS} --data {shlex.quote(data)}" if data else ALL_BENCHMARKS
        yield from chain.from_iterable(map(_wrapped, how_to_fetch(files, words)))
    missing: dict[str, list[str]] = {}
    for one in ordered:
        for lack in (lack for lack in one.lacks if lack not in one.about_files):
            missing.setdefault(lack.removeprefix(f"{one.name}: "), []).append(one.name)
    for lack, names in missing.items():
        yield from _wrapped(f"- {', '.join(names)}: {lack}")


_HEAD = ("BENCHMARK", "STATE", "DATA TO FETCH", "TASKS")


def _wrapped(line: str) -> list[str]:
    """The line in lines of at most ``WIDTH`` columns; a command, which begins with a blank, stays one line."""
    if line.startswith(" "):
        return [line]
    indent = "  " if line.startswith("- ") else ""
    return textwrap.wrap(line, WIDTH, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False)


def _licences(group: Iterable[BenchmarkStatus]) -> tuple[str, ...]:
    named = (re.split(r"[;,]| \(", file.licence)[0] for one in group for file in one.files)
    return tuple(dict.fromkeys(named))


def _rows(group: Sequence[BenchmarkStatus]) -> Iterator[tuple[str, ...]]:
    """The row of benchmarks of one family that lack the same; further rows continue their names."""
    first, files = group[0], {file.path: file.size for one in group for file in one.files}
    state = f"no {', '.join(first.kinds)}" if first.lacks else READY
    size = readable(sum(files.values()) if all(files.values()) else 0)
    to_fetch = ", ".join((size, *_licences(group))) if files else ""
    sizes = list(dict.fromkeys(one.size for one in group))
    tasks = f"{sizes[0]} each" if len(group) > len(sizes) == 1 else ", ".join(one.size for one in group)
    names = [first.name]
    if len(group) > 1:
        family, variants = first.name.partition("/")[0], [one.name.partition("/")[2] for one in group]
        # no blanks, so that a shell expands the name
        names = textwrap.wrap(f"{family}/{{{', '.join(variants)}}}", _NAME_WIDTH, subsequent_indent="  ")
        names = [name.replace(", ", ",") for name in names]
    yield names[0], state, to_fetch, tasks
    for name in names[1:]:
        yield name, "", "", ""


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
