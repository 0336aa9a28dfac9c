"""The order of the training rows of a run: row i is a pure function of (sources, seed, i).

So the state of the data stream is one integer. Only the mixture and sizes of the sources are needed, no files."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from lemur_ray.config import Recipe
from lemur_ray.plan.mixture import SMALLEST_SHARE, Mixture
from lemur_ray.plan.permutation import derive_key, permute

_SUBSET = -1
"""Replaces the epoch in the key that selects the used subset of a source's rows."""


class PlanError(ValueError):
    """A plan is impossible: invalid mixture, unknown source, too few rows, or a corpus that does not match it."""


class PlanRow(NamedTuple):
    """Origin of one row of a plan: index of the source, number of completed passes over it, and row number in it."""

    source: int
    """Index into ``Plan.sources``."""
    epoch: int
    """Number of completed passes over the used rows of the source."""
    example: int
    """Row number in the source's row set."""


class PlanRows(NamedTuple):
    """Origins of several rows of a plan: the fields of PlanRow as int64 arrays (rows,)."""

    source: np.ndarray
    epoch: np.ndarray
    example: np.ndarray


@dataclass(frozen=True)
class PlanSource:
    """A source of training rows; ``kind``: code, text or chat."""

    name: str
    kind: str
    rows: int
    """Number of packed rows in the corpus."""
    weight: float
    """Share of the run's rows, relative to the sum of all weights."""
    epochs: float | None = None
    """Passes over the used rows, which are a subset, fixed by the seed, of (rows of the run from it) / epochs rows.
    None: all rows of the source may be used, at most once."""


@dataclass(frozen=True)
class Plan:
    """Order of ``num_rows`` training rows from ``sources``, fixed by ``seed``.
    skip: half-open ranges of row numbers in the order without skips; they are left out and later rows move up, so the
    plan's row numbers stay 0, 1, 2, ... Raises PlanError, with numbers that would fit, if a source is too small."""

    sources: tuple[PlanSource, ...]
    seed: int
    num_rows: int
    skip: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        if not self.sources:
            raise PlanError("a plan without sources: expected at least one")
        if self.num_rows < 1:
            raise PlanError(f"a plan of {self.num_rows} rows: expected at least 1")
        for begin, end in self.skip:
            if not 0 <= begin < end:
                raise PlanError(f"skipped range {begin}:{end}: expected 0 <= begin < end")
        _ = self.used_rows

    @cached_property
    def mixture(self) -> Mixture:
        """Assignment of rows to sources by their weights. Raises PlanError for invalid weights."""
        try:
            return Mixture([source.weight for source in self.sources])
        except ValueError as error:
            raise PlanError(f"sources {', '.join(source.name for source in self.sources)}: {error}") from error

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """Rows of each source up to the run's last row, skipped ones included, in the order of ``sources``."""
        return tuple(self.mixture.counts(self._skips.before(self.num_rows - 1) + 1).tolist())

    @cached_property
    def used_rows(self) -> tuple[int, ...]:
        """Number of distinct rows of each source that the run may use: rows of the run / epochs, rounded up. Computed
        without skips, so that skipping a range later does not change earlier rows. Raises PlanError for invalid epochs,
        or if a source has too few rows."""
        counts = self.mixture.counts(self.num_rows).tolist()
        return tuple(_used(source, count) for source, count in zip(self.sources, counts, strict=True))

    @cached_property
    def _skips(self) -> "_Skips":
        return _Skips(self.skip)

    def row(self, i: int) -> PlanRow:
        """Origin of row ``i`` of the plan. Raises IndexError outside [0, num_rows)."""
        source, epoch, example = self.rows(np.array([i]))
        return PlanRow(int(source[0]), int(epoch[0]), int(example[0]))

    def rows(self, rows: np.ndarray) -> PlanRows:
        """Origins of the rows with these numbers (int64, any order, repeats allowed). Raises IndexError for a number
        outside the plan."""
        rows = np.asarray(rows, np.int64).reshape(-1)
        if rows.size and (rows.min() < 0 or rows.max() >= self.num_rows):
            raise IndexError(f"plan rows {rows.min()} to {rows.max()}: the plan has rows 0 to {self.num_rows - 1}")
        source, occurrence = self.mixture.rows(self._skips.before(rows))
        epoch, inside = np.divmod(occurrence, np.maximum(np.array(self.used_rows), 1)[source])
        example = np.empty_like(inside)
        for index in np.unique(source).tolist():
            at = np.flatnonzero(source == index)
            keys = derive_key(self.seed, index, epoch[at])
            example[at] = permute(inside[at], self.used_rows[index], keys)
            if self.used_rows[index] < self.sources[index].rows:
                subset = derive_key(self.seed, index, _SUBSET)
                example[at] = permute(example[at], self.sources[index].rows, subset)
        return PlanRows(source, epoch, example)

    def ranges_without_skips(self, first: int, end: int) -> list[list[int]]:
        """Rows [first, end) of the plan as half-open ranges [begin, end] of the order without skips, the numbering of
        ``train.skip_rows``. [] if there are no rows."""
        rows = self._skips.before(np.arange(first, end))
        cuts = np.flatnonzero(np.diff(rows) != 1) + 1
        return [[int(part[0]), int(part[-1]) + 1] for part in np.split(rows, cuts) if part.size]

    def summary(self) -> list[dict[str, Any]]:
        """Requested and resulting share, epochs and rows of each source, as JSON objects."""
        total = math.fsum(source.weight for source in self.sources)
        rows = sum(self.counts)
        return [
            {
                "name": source.name, "kind": source.kind, "rows": source.rows, "asked_share": source.weight / total,
                "asked_epochs": source.epochs, "built_rows": count, "built_share": count / rows, "used_rows": used,
                "built_epochs": count / used if used else 0.0,
            }
            for source, count, used in zip(self.sources, self.counts, self.used_rows, strict=True)
        ]  # fmt: skip


class _Skips:
    """Converts row numbers of a plan to those in the order without skips. ranges: half-open, in the latter."""

    def __init__(self, ranges: Sequence[Sequence[int]]) -> None:
        merged: list[list[int]] = []
        for begin, end in sorted(tuple(pair) for pair in ranges):
            if merged and begin <= merged[-1][1]:
                merged[-1][1] = max(merged[-1][1], end)
            else:
                merged.append([begin, end])
        total, firsts, shifts = 0, [], []
        for begin, end in merged:
            firsts.append(begin - total)
            total += end - begin
            shifts.append(total)
        self._firsts = np.array(firsts, np.int64)
        """For each merged range, the plan's number of the first row after it .."""
        self._shifts = np.array([0, *shifts], np.int64)
        """.. and the total shift there; 0 before the first range."""

    def before(self, rows: Any) -> Any:
        """Row numbers in the order without skips for row numbers of the plan (int or array)."""
        return rows + self._shifts[np.searchsorted(self._firsts, rows, side="right")]


def first_row_moved(old: Sequence[Sequence[int]], new: Sequence[Sequence[int]]) -> int | None:
    """First row number of a plan that stands for another row if ``new`` ranges are skipped instead of ``old``; None if
    all rows stay. Ranges: half-open pairs, in the order without skips."""
    a, b = _Skips(old), _Skips(new)
    edges = sorted({0, *(int(row) for skips in (a, b) for row in skips._firsts)})
    return next((row for row in edges if a.before(row) != b.before(row)), None)


def _used(source: PlanSource, count: int) -> int:
    if count == 0:
        return 0
    if source.epochs is not None and not (math.isfinite(source.epochs) and source.epochs > 0):
        raise PlanError(f"source {source.name}: epochs {source.epochs}: expected a positive number")
    epochs = 1.0 if source.epochs is None else source.epochs
    # Rounded up, so that no row is visited more often than requested; the slack absorbs the rounding of a division.
    needed = math.ceil(count / epochs - 1e-6 * max(1.0, count / epochs * 1e-6))
    if needed > source.rows:
        asked = "one pass" if source.epochs is None else f"{epochs:g} epochs"
        raise PlanError(
            f"source {source.name}: {count} rows of this run in {asked} need {needed} different rows, the corpus has "
            f"{source.rows}: give it at least {count / max(source.rows, 1):.4g} epochs, a smaller weight, or more data"
        )
    return source.rows if source.epochs is None else needed


def plan_for(recipe: Recipe, manifest: Mapping[str, Any]) -> Plan:
    """The plan of a training recipe over the corpus of ``manifest``.
    Sources are those of ``recipe.data.sources``; if empty, all sources of the corpus, each kind split by tokens and
    code : text as ``recipe.data.code_to_text`` (a corpus of one kind gets all). Sources without ``epochs`` make one
    pass, or as many as the run needs. Raises PlanError for an unknown or empty source, a row length other than the
    corpus's, or too few rows for the requested epochs."""
    available = {source["name"]: source for source in manifest["sources"]}
    if recipe.data.seq_len != manifest["seq_len"]:
        raise PlanError(
            f"the recipe has rows of {recipe.data.seq_len} tokens, the corpus rows of {manifest['seq_len']}: "
            "set --data.seq-len, or build the corpus again"
        )
    requested: list[tuple[str, str, float, float | None]] = []
    if recipe.data.sources:
        if absent := [repr(source.name) for source in recipe.data.sources if source.name not in available]:
            many = ("source", "is") if len(absent) == 1 else ("sources", "are")
            has = f"it has {', '.join(sorted(available))}"
            raise PlanError(f"{many[0]} {', '.join(absent)} {many[1]} not in the corpus: {has}")
        for source in recipe.data.sources:
            requested.append((source.name, available[source.name]["kind"], source.weight, source.epochs))
    else:
        requested = [(name, kind, share, None) for name, kind, share in _shares(manifest, recipe.data.code_to_text)]
    num_rows = recipe.train.steps * recipe.train.rows_per_step
    mixture = Mixture([weight for _, _, weight, _ in requested])
    counts = mixture.counts(num_rows).tolist()  # without the skips, as used_rows
    sources = []
    for (name, kind, weight, epochs), count in zip(requested, counts, strict=True):
        rows = available[name]["rows"]
        if rows < 1:
            raise PlanError(f"source {name!r} has no rows in this corpus: leave it out, or build the corpus again")
        if epochs is None and count > rows:
            epochs = count / rows
        sources.append(PlanSource(name, kind, rows, weight, epochs))
    return Plan(tuple(sources), recipe.data.seed, num_rows, recipe.train.skip_rows)


def _shares(manifest: Mapping[str, Any], code_to_text: float) -> list[tuple[str, str, float]]:
    """(name, kind, share) of every non-empty source: kinds by ``code_to_text``, sources of one kind by tokens."""
    usable = [source for source in manifest["sources"] if source["rows"] > 0]
    tokens: dict[str, int] = {}
    for source in usable:
        tokens[source["kind"]] = tokens.get(source["kind"], 0) + source["tokens"]
    ratio = {"code": code_to_text, "text": 1.0, "chat": 1.0}
    total = math.fsum(ratio[kind] for kind in tokens)
    if not usable or total <= 0:
        raise PlanError("the corpus has no source with rows: build it again")

    def share(kind: str, size: int) -> float:
        return max(ratio[kind] / total * size / tokens[kind], SMALLEST_SHARE * 1.1)

    return [(source["name"], source["kind"], share(source["kind"], source["tokens"])) for source in usable]
