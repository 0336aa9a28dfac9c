"""Interface of InterCode's SQL engines: rows or an error, within limits. Knows no engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

Row = tuple[Any, ...]


@dataclass(frozen=True)
class QueryLimits:
    """Limits of one query. ``max_bytes`` is the memory of its rows."""

    time_s: float = 10.0
    max_rows: int = 10_000
    max_bytes: int = 2_000_000


DEFAULT_LIMITS = QueryLimits()


@dataclass(frozen=True)
class Rows:
    """Result of a query. ``cut``: it exceeded the limits."""

    rows: tuple[Row, ...]
    cut: bool = False


@dataclass(frozen=True)
class SqlError:
    """Error of a query."""

    message: str
    timed_out: bool = False


class SqlDatabase(Protocol):
    """An open database for untrusted queries. Queries of several threads run one after another."""

    name: str

    @property
    def tables(self) -> Mapping[str, Sequence[Row]]:
        """Table name -> rows of DESCRIBE."""
        ...

    def execute(self, query: str, limits: QueryLimits = ...) -> Rows | SqlError:
        """Run one statement. Never raises for any content of a query."""
        ...

    def close(self) -> None:
        """Stop a running statement and release everything. Safe to call twice, from any thread."""
        ...
