"""Interface of InterCode's SQL engines: a query gives rows or an error, within limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Row = tuple[Any, ...]


@dataclass(frozen=True)
class QueryLimits:
    """Limits of one query. Rows beyond ``max_rows``, or beyond ``max_bytes`` of memory, are left out, and the result
    has ``cut``. A query that takes longer than ``time_s`` gives an SqlError with ``timed_out``."""

    time_s: float = 10.0
    max_rows: int = 10_000
    max_bytes: int = 2_000_000


DEFAULT_LIMITS = QueryLimits()


@dataclass(frozen=True)
class Rows:
    """Rows that a query returned. ``cut``: there were more than the limits allow."""

    rows: tuple[Row, ...]
    cut: bool = False


@dataclass(frozen=True)
class SqlError:
    """Error message of a failed query. ``timed_out``: it exceeded its time limit."""

    message: str
    timed_out: bool = False


class SqlDatabase(Protocol):
    """An open database for untrusted queries. Queries of several threads run one after another."""

    name: str

    @property
    def tables(self) -> Mapping[str, Sequence[Row]]:
        """Rows of MySQL's DESCRIBE, one for each column, by table name."""
        ...

    def execute(self, query: str, limits: QueryLimits = ...) -> Rows | SqlError:
        """Run one statement that only reads, within limits. Returns its rows or, if it fails or would write, an
        SqlError; never raises for a query."""
        ...

    def close(self) -> None:
        """Stop a running statement and release everything. Safe to call twice, from any thread."""
        ...
