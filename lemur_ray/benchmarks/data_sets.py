"""Every data set by name: those that benchmarks declare, ours and installed ones, and the training data.

A name is that of a set, of its family (all its sets), or of a file. Fetches nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from lemur_ray.benchmarks.discovery import offers
from lemur_ray.config import did_you_mean
from lemur_ray.outside_data.catalogue import TRAINING
from lemur_ray.outside_data.source import DataSet, Source


def data_sets(complain: Callable[[str], None]) -> list[DataSet]:
    """All, benchmarks first. ``complain``: told of offers that nobody can play and of two meanings of a file."""
    found: list[DataSet] = []
    refused: dict[str, None] = {}
    for offer in offers():
        if offer.benchmark is None or offer.why:
            refused[offer.why] = None
        elif offer.benchmark.sources:
            one = offer.benchmark
            found.append(
                DataSet(offer.name, f"benchmark {offer.name}", tuple(one.sources), layouts=one.details.file_patterns)
            )
    for why in refused:
        complain(why)
    played = {one.family for one in found}
    found += [one for one in TRAINING if one.family not in played]
    return list(_of_one_meaning(found, complain))


def select_data_sets(names: Sequence[str], sets: Sequence[DataSet]) -> list[DataSet]:
    """Those of them that are named. Raises ValueError."""
    chosen: list[DataSet] = []
    for name in names:
        found = [one for one in sets if name in (one.name, one.family)] or _with_file(name, sets)
        if not found:
            _refuse_where_refused(name)
            known = [*(one.name for one in sets), *(one.family for one in sets)]
            raise ValueError(f"{name}: no such data set{did_you_mean(name, list(dict.fromkeys(known)))}")
        chosen += [one for one in found if one not in chosen]
    return chosen


def _refuse_where_refused(name: str) -> None:
    """Raises ValueError where it is a benchmark's that nobody can play, with why."""
    for why in (one.why for one in offers() if one.why and name in (one.name, one.name.partition("/")[0])):
        raise ValueError(why)


def _with_file(path: str, sets: Iterable[DataSet]) -> list[DataSet]:
    """The file alone, under the name of the first set that has it."""
    for one in sets:
        for source in one.sources:
            if source.path == path:
                return [DataSet(one.name, one.about, (source,))]
    return []


def _of_one_meaning(sets: Iterable[DataSet], complain: Callable[[str], None]) -> Iterator[DataSet]:
    """Without those that say of a file something else than one before them."""
    known: dict[str, tuple[Source, str]] = {}
    for one in sets:
        other = next((s for s in one.sources if known.get(s.path, (s, ""))[0] != s), None)
        if other is not None:
            whose = known[other.path][1]
            complain(f"{other.path}: {whose} and {one.name} declare it differently; {one.name} is left out")
            continue
        known |= {source.path: (source, one.name) for source in one.sources}
        yield one
