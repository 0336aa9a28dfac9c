"""Gates: comparisons of recorded rows with this project's results, and how many rows are equal."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Gate:
    """Result of a group of comparisons with recorded results (rows): number of ``rows``, ids of ``differing`` ones,
    number of ``exempt`` ones, which may differ. It is ``met`` if there are rows and none differs."""

    name: str
    rows: int
    differing: tuple[str, ...] = ()
    exempt: int = 0
    note: str = ""

    @property
    def met(self) -> bool:
        return self.rows > 0 and not self.differing

    def line(self) -> str:
        equal = self.rows - len(self.differing) - self.exempt
        fields: dict[str, Any] = {"gate": self.name, "rows": self.rows, "equal": equal}
        fields |= {"exempt": self.exempt} if self.exempt else {}
        fields |= {"met": self.met, "differing": list(self.differing)}
        note = self.note if self.rows else "no rows to look at"
        return json.dumps(fields | ({"note": note} if note else {}))


def gate(name: str, rows: Iterable[tuple[str, bool]], note: str = "") -> Gate:
    """The result of a group of comparisons, from (id, whether it is equal) of each row."""
    results = list(rows)
    return Gate(name, len(results), tuple(row for row, equal in results if not equal), note=note)


Row = Mapping[str, Any]


def compared(
    rows: Iterable[Row], equal: Callable[[Row], bool], name_of: Callable[[Row], object]
) -> Iterator[tuple[str, bool]]:
    """Yield each row's id (``NUMBER:NAME``, from 0) and whether ``equal`` holds. A malformed row is not equal; its id
    has the error instead of the name."""
    for number, row in enumerate(rows):
        try:
            yield f"{number}:{name_of(row)}".rstrip(":"), equal(row)
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            yield f"{number}: no such row: {type(error).__name__}: {error}", False


def rows_in(folder: Path, name: str) -> list[dict[str, Any]]:
    """Rows (JSON objects) in the file ``name`` of a folder; empty without it. Raises ValueError if it is no list."""
    file = folder / name
    if not file.is_file():
        return []
    try:
        value = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file}: no JSON: {error}") from error
    if not isinstance(value, list):
        raise ValueError(f"{file}: a {type(value).__name__}, expected a list of rows")
    return value
