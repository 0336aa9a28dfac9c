"""Streams the first rows of a large data set into parquet files, through ``datasets``.

After a failure or an interruption the same call continues after the last complete file. Knows no benchmark.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from lemur_ray.host.json_files import NotJson, read_json
from lemur_ray.outside_data import provenance
from lemur_ray.outside_data.source import FetchError, Stream

ROWS_OF_A_FILE = 10_000
TRIES, WAIT_S = 5, 5.0
"""Attempts for a failed read, and the seconds between them."""


def open_stream(stream: Stream) -> Any:
    """Open a stream as a ``datasets.IterableDataset`` without reading rows. Raises FetchError."""
    try:
        import datasets
    except ImportError as error:
        raise FetchError(
            f"{stream.path}: streamed sets need the extra [data]: pip install datasets ({error})"
        ) from error
    from lemur_ray.outside_data.hub import endpoint, gated

    datasets.config.STREAMING_READ_MAX_RETRIES = TRIES
    datasets.config.STREAMING_READ_RETRY_INTERVAL = WAIT_S
    datasets.disable_progress_bars()
    address = stream.address
    try:
        # The revision is always given: without one, other servers than the Hub are asked which is the newest.
        return datasets.load_dataset(
            address.repo, data_files=address.file, revision=address.commit, split="train", streaming=True
        )
    except datasets.exceptions.DatasetNotFoundError as error:
        if "gated" in str(error) or "private" in str(error):  # datasets has one class for both
            raise FetchError(gated(address.repo)) from error
        raise FetchError(
            f"{endpoint()} has no data set {address.repo} at {address.commit}, or does not show it"
        ) from error
    except FileNotFoundError as error:
        raise FetchError(
            f"{address.repo} at {address.commit} has no {address.file} on {endpoint()}: {error}"
        ) from error
    except (OSError, ConnectionError) as error:
        raise FetchError(f"{endpoint()}: {type(error).__name__}: {error}; the same command goes on") from error


def take_rows(stream: Stream, data: Path, rows: int, say: Callable[[str], None] = print) -> int:
    """Fetch until the folder holds ``rows`` rows; returns their number. Raises OSError; FetchError keeps the rows."""
    folder = data / stream.path
    note = _note(stream, folder)
    if note["rows"] >= rows:
        say(f"{stream.path}: {note['rows']} rows there already")
        return int(note["rows"])
    say(f"{stream.path}: {rows} rows of {stream.url} ({stream.licence})")
    stream_rows = open_stream(stream)
    if note["state"]:
        stream_rows.load_state_dict(note["state"])
    folder.mkdir(parents=True, exist_ok=True)
    for part in _parts(stream, stream_rows, rows - note["rows"]):
        name = f"part-{len(note['files']):05d}.parquet"
        _write(folder / name, part)
        note["files"].append(name)
        note["rows"] += len(part)
        note["state"] = stream_rows.state_dict()
        provenance.write(folder, note)
        say(f"{stream.path}: {note['rows']} rows")
    return int(note["rows"])


def rows_there(stream: Stream, data: Path) -> int:
    """Number of rows in complete files."""
    return int(_note(stream, data / stream.path)["rows"])


def _parts(stream: Stream, rows: Any, count: int) -> Iterator[list[dict[str, Any]]]:
    left = iter(rows)
    try:
        while count > 0 and (part := list(islice(left, min(count, ROWS_OF_A_FILE)))):
            count -= len(part)
            yield part
    except OSError as error:  # the network errors of all clients are OSErrors
        reason = f"{stream.url}: {type(error).__name__}: {error}"
        raise FetchError(f"{reason}; the rows that came are kept, the same command goes on") from error


def _note(stream: Stream, folder: Path) -> dict[str, Any]:
    new = {
        "url": stream.url, "revision": stream.address.commit, "licence": stream.licence, "accepted": stream.terms,
        "rows": 0, "files": [], "state": None,
    }  # fmt: skip
    try:
        known = read_json(provenance.place(folder))
    except (FileNotFoundError, NotJson):
        if any(folder.glob("*")):
            raise FetchError(f"{folder}: files that somebody brought lie there; name another data folder") from None
        return new
    if known["url"] != stream.url:
        raise FetchError(f"{folder}: has rows of {known['url']}, asked for {stream.url}; move them away first")
    return dict(known)


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    import pyarrow
    import pyarrow.parquet

    part = path.with_name(f".{path.name}.{os.getpid()}")
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), part)
    os.replace(part, path)
