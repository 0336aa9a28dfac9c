"""Every data set by name: those of built-in and installed benchmarks, and the training data.

A name selects a data set, all those of a benchmark family or of all benchmarks, or a file. Fetches nothing."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from lemur_ray.benchmarks.contract import Benchmark
from lemur_ray.benchmarks.discovery import offers
from lemur_ray.benchmarks.needs import Problem, ProblemKind
from lemur_ray.config import did_you_mean
from lemur_ray.outside_data.catalogue import TRAINING
from lemur_ray.outside_data.checking import is_there
from lemur_ray.outside_data.source import DataSet, Source, readable

ALL_BENCHMARKS = "benchmarks"
"""The name that selects the data of every benchmark."""
FilesByProblem = Mapping[str, Sequence[Source]]
"""Problem of a benchmark -> missing files of its data that it is about"""


def data_sets(complain: Callable[[str], None]) -> list[DataSet]:
    """All data sets: of benchmarks, then for training. One that declares a file differently from an earlier set is left
    out. ``complain``: called with a message for each set left out and each benchmark that cannot be loaded."""
    sets: list[DataSet] = []
    refused: dict[str, None] = {}
    for offer in offers():
        if offer.benchmark is None or offer.why:
            refused[offer.why] = None
        elif offer.benchmark.sources:
            one = offer.benchmark
            sets.append(
                DataSet(offer.name, f"benchmark {offer.name}", tuple(one.sources), layouts=one.details.file_patterns)
            )
    for why in refused:
        complain(why)
    played = {one.family for one in sets}
    sets += [one for one in TRAINING if one.family not in played]
    return list(_without_conflicts(sets, complain))


def select_data_sets(names: Sequence[str], sets: Sequence[DataSet]) -> list[DataSet]:
    """The data sets among ``sets`` that ``names`` select, without duplicates: names of sets, families or files, or
    ``ALL_BENCHMARKS``. Raises ValueError for an unknown name."""
    chosen: list[DataSet] = []
    for name in names:
        of_all = {offer.name for offer in offers()} if name == ALL_BENCHMARKS else {name}
        matches = [one for one in sets if of_all & {one.name, one.family}] or _with_file(name, sets)
        if not matches:
            _refuse_where_refused(name)
            known = [ALL_BENCHMARKS, *(one.name for one in sets), *(one.family for one in sets)]
            raise ValueError(f"{name}: no such data set{did_you_mean(name, list(dict.fromkeys(known)))}")
        chosen += [one for one in matches if one not in chosen]
    return chosen


def files_to_fetch(benchmark: Benchmark, data: Path | None, problems: Iterable[str]) -> FilesByProblem:
    """The ``problems`` of a benchmark about declared files that are not in the data folder -> these files: all that a
    program can fetch, or those to bring by hand. ``data``: None if there is no folder."""
    absent = [source for source in benchmark.sources if data is None or not is_there(source, data)]
    fetched = [source for source in absent if not source.by_hand]
    remedies: dict[str, list[Source]] = {}
    for problem in problems:
        if isinstance(problem, Problem):
            named = [file.removeprefix(f"{data}/").removesuffix(".gz") for file in problem.files]
            about = [source for source in absent if source.path.removesuffix(".gz") in named]
            by_hand = [source for source in about if source.by_hand]
            is_of_data = problem.kind in (ProblemKind.NO_DATA_FOLDER, ProblemKind.MISSING_FILES)
            if files := by_hand or (fetched if is_of_data or about else []):
                remedies[problem] = files
    return remedies


def how_to_fetch(files: Mapping[str, Iterable[Source]], names: str, whose: str = "") -> Iterator[str]:
    """Lines on the missing files of benchmarks (name -> files): how much is missing, the command that fetches all that
    a program can fetch, and files to bring by hand. ``names``: the words of the command; ``whose``: the benchmarks, by
    default their number."""
    fetched = {one.path: one for sources in files.values() for one in sources if not one.by_hand}
    if fetched:
        unknown = [one.size for one in fetched.values()].count(0)
        total = readable(sum(one.size for one in fetched.values()))
        total += f" and {unknown} files of unknown size" if unknown else ""
        with_terms = [name for name, sources in files.items() if any(one.terms for one in sources)]
        families = dict.fromkeys(name.partition("/")[0] for name in with_terms)
        accept = "".join(f" --accept {family}" for family in families)
        whose = whose or f"{len(files)} benchmarks"
        yield f"The data of {whose} is not there ({total}). One command fetches it:"
        yield f"  python jobs/fetch_data.py {names}{accept}"
        terms = "--accept accepts the terms that `python jobs/fetch_data.py --list` shows. " if accept else ""
        yield f"{terms}Data elsewhere: give --data or LEMUR_DATA."
    by_hand = {one.path: one for sources in files.values() for one in sources if one.by_hand}
    if by_hand:
        first, total = next(iter(by_hand.values())), readable(sum(one.size for one in by_hand.values()))
        yield f"- By hand, {len(by_hand)} files ({total}) such as {first.path}: {first.by_hand}"


def _refuse_where_refused(name: str) -> None:
    """Raise ValueError with the reason if ``name`` is a benchmark or family that cannot be loaded."""
    for why in (one.why for one in offers() if one.why and name in (one.name, one.name.partition("/")[0])):
        raise ValueError(why)


def _with_file(path: str, sets: Iterable[DataSet]) -> list[DataSet]:
    """The file ``path`` alone as a data set, named after the first set with it; an empty list if no set has it."""
    for one in sets:
        for source in one.sources:
            if source.path == path:
                return [DataSet(one.name, one.about, (source,))]
    return []


def _without_conflicts(sets: Iterable[DataSet], complain: Callable[[str], None]) -> Iterator[DataSet]:
    """The data sets without those that declare a file differently from an earlier set; ``complain`` gets reasons."""
    known: dict[str, tuple[Source, str]] = {}
    for one in sets:
        other = next((s for s in one.sources if known.get(s.path, (s, ""))[0] != s), None)
        if other is not None:
            whose = known[other.path][1]
            complain(f"{other.path}: {whose} and {one.name} declare it differently; {one.name} is left out")
            continue
        known |= {source.path: (source, one.name) for source in one.sources}
        yield one
