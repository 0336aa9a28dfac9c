"""Readers of data sets: rows of JSON lines, JSON, parquet and CSV files, gzipped (``.gz``) or not."""

import csv
import hashlib
import io
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lemur_ray.host.json_files import DAMAGED, open_bytes, parse_json
from lemur_ray.host.renamed_names import renamed_names
from lemur_ray.outside_data.source import MissingFiles

_FETCH = "python jobs/fetch_data.py "
_SPOILED = "damaged, or fetched in part: remove it and fetch it again"


def find_file(data: Path, names: Sequence[str], source: str) -> Path:
    """The first existing file of ``names`` in ``data``, each as it is or with .gz. ``source``: where to get the file,
    for the error. Raises MissingFiles with the names."""
    for name in names:
        for path in (data / name, data / f"{name}.gz"):
            if path.is_file():
                return path
    had = f"{source} --data {data}" if _FETCH in source else source
    raise MissingFiles(
        f"{data}: none of {', '.join(names)} is there (with .gz or without). It is {had}; if it lies elsewhere, say "
        "where with --data or LEMUR_DATA",
        names,
    )


def read_text(path: Path) -> str:
    """The text of a file, decompressed, without byte order mark, with its line ends. Raises OSError, or ValueError with
    the file's name if it is damaged or not UTF-8."""
    try:
        with open_bytes(path) as data:
            return data.read().decode("utf-8-sig")
    except DAMAGED as error:
        raise ValueError(f"{path}: {_SPOILED} ({error})") from error


def files_digest(*paths: Path) -> str:
    """One digest of the contents of all ``paths``, in this order: 16 hex digits."""
    together = hashlib.sha256()
    for path in paths:
        together.update(hashlib.sha256(path.read_bytes()).digest())
    return together.hexdigest()[:16]


def content_digest(path: str) -> str:
    """Digest of a file's content, or of the names and contents of all files beneath a folder: 16 hex digits. If
    ``path`` is neither, ``path`` itself."""
    place = Path(path).expanduser()
    if place.is_file():
        return hashlib.sha256(place.read_bytes()).hexdigest()[:16]
    if not path or not place.is_dir():
        return path
    together = hashlib.sha256()
    for file in sorted(file for file in place.rglob("*") if file.is_file()):
        together.update(f"{file.relative_to(place).as_posix()}\0{content_digest(str(file))}\0".encode())
    return together.hexdigest()[:16]


def read_rows(path: Path, needed: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Yield the rows of a JSON lines, JSON or parquet file as dicts, lazily; a JSON file is a list, or an object with a
    list under ``examples``. ``needed``: fields that must not be missing or null. Raises OSError, or ValueError with
    file and line or row."""
    name = path.name.removesuffix(".gz")
    if name.endswith(".parquet"):
        for number, row in enumerate(_of_parquet(path)):
            yield _object(row, f"{path}, row {number}", needed)
        return
    if name.endswith(".json"):
        value = read_value(path)
        listed = value.get("examples") if isinstance(value, dict) else value
        if not isinstance(listed, list):
            raise ValueError(f"{path}: expected a list of rows, or an object with a list of examples")
        yield from (_object(row, f"{path}, row {number}", needed) for number, row in enumerate(listed))
        return
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip():
            yield _object(parse_json(line, path, number), f"{path}, line {number}", needed)


def read_value(path: Path) -> Any:
    """Parse a file that is one JSON value. Raises OSError, or ValueError with the file's name."""
    return parse_json(read_text(path), path)


def read_cells(path: Path) -> Iterator[list[str]]:
    """Yield the rows of a CSV file without header, except blank ones. Cells stay texts ("None" too). Raises OSError, or
    ValueError with the file's name."""
    try:
        yield from filter(None, csv.reader(io.StringIO(read_text(path), newline="")))
    except csv.Error as error:
        raise ValueError(f"{path}: not CSV: {error}") from error


def row_number(row: dict[str, Any], place: int) -> int:
    """A row's number in the data set: its field ``i`` or ``index`` if an integer, else ``place``, its position here."""
    return next((int(row[name]) for name in ("i", "index") if isinstance(row.get(name), int)), place)


def _of_parquet(path: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet  # half a second that only such files need

    try:
        rows: list[dict[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
    except pyarrow.ArrowException as error:
        raise ValueError(f"{path}: {_SPOILED} ({error})") from error
    return rows


def _object(row: Any, where: str, needed: Sequence[str]) -> dict[str, Any]:
    if not isinstance(row, dict):
        raise ValueError(f"{where}: a {type(row).__name__}, expected an object")
    if missing := [name for name in needed if row.get(name) is None]:
        raise ValueError(
            f"{where}: no {', '.join(missing)}, but {', '.join(row) or 'nothing'}: it is of another data set"
        )
    return row


if not TYPE_CHECKING:
    __getattr__ = renamed_names(
        __name__, found="find_file", text_of="read_text", identity="files_digest", held_by="content_digest",
        rows_of="read_rows", value_of="read_value", cells_of="read_cells", number_of="row_number",
    )  # fmt: skip
