"""Prints the declared data sets and the state of a data folder: ``--list`` and ``--check``. Changes nothing."""

from collections.abc import Callable, Sequence
from pathlib import Path

from lemur_ray.outside_data.checking import brought, check, is_there
from lemur_ray.outside_data.rows import rows_there
from lemur_ray.outside_data.source import DataSet, FetchError, Source, Stream, readable


def list_sets(sets: Sequence[DataSet], data: Path, say: Callable[[str], None]) -> None:
    """Print (by ``say``, line by line) names, licences and sizes of ``sets``, and which of their files are in the
    folder ``data``; opens no data file."""
    printed: set[str] = set()
    for one in sets:
        say(f"{one.name}  ({one.about})")
        if one.withdrawn:
            say(f"    withdrawn: {one.withdrawn}")
        for source in one.sources:
            present = "there" if is_there(source, data) else "-"
            say(f"    {present:8} {source.path}  {readable(source.size)}, {source.licence}{_how(source)}")
        for files in brought(one, data):
            say(f"    {'there':8} {files}: brought, its reader knows this layout too")
        for stream in one.streams:
            rows, size = _rows_or_none(stream, data) or "-", readable(stream.size)
            say(f"    {rows!s:8} {stream.path}  {size} in all, {stream.licence}: streamed, --rows says how many")
        for terms in {part.terms for part in one.parts} - {"", *printed}:
            say(f"    --accept {one.family}: {terms}")
            printed.add(terms)


def check_sets(sets: Sequence[DataSet], data: Path, say: Callable[[str], None], *, all_needed: bool) -> bool:
    """Verify every file of these sets that is in the folder ``data`` and print (by ``say``) the results; returns
    whether all are as declared. ``all_needed``: a missing file counts as a failure, unless the set is present in
    another layout, which is not verified."""
    well, counts = True, dict.fromkeys(("same", "unpinned", "differs", "missing"), 0)
    elsewhere = {one.name: list(brought(one, data)) for one in sets if not any(is_there(s, data) for s in one.sources)}
    for name, files in elsewhere.items():
        for file in files:
            say(f"{'brought':8} {file}: {name} is read from it; not checked")
    needed = [one for one in sets if not elsewhere.get(one.name)]
    for source in {source.path: source for one in needed for source in one.sources}.values():
        state = check(source, data)
        counts[state.status] += 1
        well &= state.status != "differs" and not (all_needed and state.status == "missing")
        if state.status != "missing" or all_needed:
            say(f"{state.status:8} {source.path}{f': {state.why}' if state.why else ''}")
    for stream in (stream for one in sets for stream in one.streams):
        if (rows := _rows_or_none(stream, data)) or all_needed:
            say(f"{'rows':8} {stream.path}: {rows}")
            well &= bool(rows)
    say(", ".join(f"{count} {status}" for status, count in counts.items()) + f" in {data}")
    return well


def _rows_or_none(stream: Stream, data: Path) -> int:
    try:
        return rows_there(stream, data)
    except FetchError:  # files that the user brought are not counted here
        return 0


def _how(source: Source) -> str:
    if source.by_hand:
        return "; by hand"
    return "" if source.sha256 else "; no checksum is known, the first fetch writes it down"
