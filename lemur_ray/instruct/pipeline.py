"""Build an instruction table from files of public sets: read, clean, sample, deduplicate, encode on Ray Data, pack.

The same files and options give the same bytes with any number of workers: tables keep their order and size, decisions
across rows depend on their position in the input, and rows are sorted by (set, id) before packing."""

import dataclasses
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lemur_ray.corpus.cleaning.decontaminate import benchmark_index
from lemur_ray.corpus.manifest import CorpusError, is_current, read_manifest
from lemur_ray.corpus.on_ray import Workers
from lemur_ray.corpus.rows import write_atomically
from lemur_ray.instruct import stages
from lemur_ray.instruct.config import WITHOUT_NEAR_DUPLICATES, SetsConfig, settings
from lemur_ray.instruct.near_duplicates import BLOCK, any_similar, encoder, keep_first
from lemur_ray.instruct.readers.public_sets import SETS
from lemur_ray.instruct.statistics import MEASURES, lines, summary
from lemur_ray.instruct.table import Example, NumRows, place_in, write_table
from lemur_ray.storage.file_system import bucket_environment, file_system, is_bucket
from lemur_ray.storage.published_folder import local_copy, version_of
from lemur_ray.text.tokenizer import Tokenizer

Say = Callable[[str], None]
_print: Say = partial(print, "[instruct]", flush=True)


def build_sets(
    config: SetsConfig,
    tokenizer: Tokenizer,
    shelf: str | Path,
    *,
    seq_len: int,
    num_rows: NumRows | None = None,
    workers: int | None = None,
    block: int = BLOCK,
    say: Say = _print,
) -> tuple[Path | str, dict[str, Any]]:
    """Build the instruction table of the files in ``config``, below the folder ``shelf``; returns (its folder,
    manifest). Files and ``shelf`` may be URLs. A table of the same files (path, size, time), options and tokenizer is
    reused. seq_len: tokens of a row. workers: maximum number of concurrent tasks on the cluster that ``ray.init`` has
    joined (default: one per core), or 0 for this process without Ray. num_rows: rule for the total number of rows,
    identified by its ``repr``. block: vectors compared at a time. say: gets lines of progress, printed by default.
    Raises CorpusError or ValueError for files that cannot be read or leave no conversation, ModuleNotFoundError if a
    filter needs a package that is not installed."""
    known = f"{shelf}/{_inputs(config, tokenizer, seq_len, num_rows)}.json"
    fs, inner = file_system(known)
    if fs.isfile(inner) and is_current(folder := place_in(shelf, json.loads(fs.cat_file(inner))["table"])):
        say(f"{folder} was made of these files with these options: used as it is")
        return folder, read_manifest(folder)
    building = _Build(config, tokenizer, seq_len, Workers(workers), block, say)
    rows, report = building.run()
    folder, manifest = write_table(
        rows, tokenizer, shelf, seq_len=seq_len, packing=config.packing, seed=config.sets_seed, num_rows=num_rows,
        report=report,
    )  # fmt: skip
    named = json.dumps({"table": str(folder).rsplit("/", 1)[-1]}).encode()
    if is_bucket(known):
        fs.pipe_file(inner, named)
    else:
        write_atomically(Path(known), named)
    return folder, manifest


def _inputs(config: SetsConfig, tokenizer: Tokenizer, seq_len: int, num_rows: NumRows | None) -> str:
    """Key of a table, 16 hex digits: a hash of its options, tokenizer and files (path, size and time or version, not
    content). Raises CorpusError if a file does not exist."""
    stamps = []
    for name, file in (*config.files, *(("decontaminate", file) for file in config.decontaminate)):
        if is_bucket(file):
            stamp: Any = version_of(file)
        else:
            stamp = (Path(file).stat().st_size, Path(file).stat().st_mtime_ns) if Path(file).is_file() else None
        if stamp is None:
            raise CorpusError(f"--{name} {file}: no such file")
        stamps.append(stamp)
    made_of = [settings(config), stamps, tokenizer.made_of, seq_len, repr(num_rows)]
    return hashlib.sha256(json.dumps(made_of).encode()).hexdigest()[:16]


@dataclasses.dataclass
class _Build:
    """Build of a table. ``fallen``: dropped rows by (set, stage, reason); ``notes``: kept rows by (set, note)."""

    config: SetsConfig
    tokenizer: Tokenizer
    seq_len: int
    workers: Workers
    block: int
    say: Say
    fallen: Counter[tuple[str, str, str]] = dataclasses.field(default_factory=Counter)
    notes: Counter[tuple[str, str]] = dataclasses.field(default_factory=Counter)
    read: Counter[str] = dataclasses.field(default_factory=Counter)

    def run(self) -> tuple[list[Example], dict[str, Any]]:
        """(tokenised conversations sorted by set and id, entries of the manifest with counts and statistics)."""
        config = self.config
        for name in dict.fromkeys(name for name, _ in config.files):
            self.say(f"{name}: {SETS[name].licence}")
        benchmarks: dict[int, str] = {}
        for file in config.decontaminate:
            with local_copy(file) as path:
                benchmarks = {**benchmark_index([path]), **benchmarks}
        if config.near_duplicate and any(getattr(config, name) for name in WITHOUT_NEAR_DUPLICATES):
            encoder(config.encoder, config.encoder_prompt)  # a missing package fails here, before hours of reading
        files = [
            pa.Table.from_pylist([{"set": name, "path": _absolute(file), "number": number}], stages.FILES)
            for number, (name, file) in enumerate(config.files)
        ]
        here = [file for _, file in config.files if not is_bucket(file)]
        readers = Workers(self.workers.workers, must_read=here) if here else self.workers
        if readers.fallback_reason:
            self.say(f"only this host reads the files: {readers.fallback_reason}; with files in a bucket all hosts do")
        rows_in = list(readers.map(files, partial(stages.read_files, config=config, environment=bucket_environment())))
        talks = self._staying(self.workers.map(rows_in, partial(stages.clean_rows, config=config)))
        self.read.update({name: sum(n for (s, *_), n in self.fallen.items() if s == name) for name in self._names()})
        self.read.update(talks.column("dataset").to_pylist())
        talks = self._drawn(talks)
        talks = self._without_near_duplicates(talks)
        encode = partial(
            stages.encode,
            tokenizer=self.tokenizer,
            seq_len=self.seq_len,
            benchmarks=benchmarks,
            drop_overlap=config.decontaminate_drop,
        )
        encoded = self._staying(self.workers.map(_cut(talks), encode), stages.TOKENS)
        encoded = encoded.sort_by([("dataset", "ascending"), ("id", "ascending"), ("order", "ascending")])
        report = self._report(encoded)
        return [example for batch in encoded.to_batches(stages.ROWS) for example in _examples(batch)], report

    def _names(self) -> list[str]:
        return [name for name in SETS if getattr(self.config, name)]

    def _staying(self, tables: Iterator[pa.Table], schema: pa.Schema = stages.CONVERSATIONS) -> pa.Table:
        """Concatenate the rows that are not marked as dropped, and count the dropped ones and the notes."""
        kept = []
        for table in tables:
            columns = (table.column(name).to_pylist() for name in ("dataset", "stage", "reason", "note"))
            for dataset, stage, reason, note in zip(*columns, strict=True):
                if stage:
                    self.fallen[dataset, stage, reason] += 1
                if note and schema is stages.TOKENS:
                    self.notes[dataset, note] += 1
            kept.append(table.filter(pc.equal(table.column("stage"), "")).cast(schema))
        return pa.concat_tables([schema.empty_table(), *kept])

    def _drawn(self, talks: pa.Table) -> pa.Table:
        """The table with only ``openorca_rows`` rows of OpenOrca, drawn with the seed; other sets are unchanged."""
        wanted = self.config.openorca_rows
        orders = talks.filter(pc.equal(talks.column("dataset"), "openorca")).column("order").to_numpy()
        if not wanted or len(orders) <= wanted:
            return talks
        seed = self.config.sets_seed
        keys = [hashlib.blake2b(f"{seed} {order}".encode(), digest_size=16).digest() for order in orders.tolist()]
        ranked = sorted(range(len(orders)), key=keys.__getitem__)
        self.fallen["openorca", "draw", "not_drawn"] += len(orders) - wanted
        return _without(talks, orders[ranked[wanted:]])

    def _without_near_duplicates(self, talks: pa.Table) -> pa.Table:
        if not self.config.near_duplicate:
            return talks
        for name in WITHOUT_NEAR_DUPLICATES:
            mine = talks.filter(pc.equal(talks.column("dataset"), name))
            if not len(mine):
                continue
            embed = partial(stages.embed, spec=self.config.encoder, prompt=self.config.encoder_prompt)
            embedded = list(self.workers.map(_cut(mine), embed))
            orders = np.concatenate([table.column("order").to_numpy() for table in embedded])
            vectors = np.concatenate([_matrix(table.column("vector")) for table in embedded])
            keep = keep_first(
                vectors, self.config.near_duplicate, block=self.block, compare=self._compare, put=self.workers.put
            )
            self.fallen[name, "near_duplicate", "like_an_earlier_row"] += int((~keep).sum())
            self.say(f"{name}: {int((~keep).sum()):,} of {len(keep):,} instructions are like an earlier one")
            talks = _without(talks, orders[~keep])
        return talks

    def _compare(self, rows: np.ndarray, blocks: Sequence[Any], threshold: float) -> list[np.ndarray]:
        here = self.workers.put(rows)
        return self.workers.run(any_similar, [(here, kept, threshold) for kept in blocks])

    def _report(self, encoded: pa.Table) -> dict[str, Any]:
        """Counts of every stage and statistics of the lengths, for the manifest; also printed."""
        stayed = Counter(encoded.column("dataset").to_pylist())
        counts, statistics = {}, {}
        for name in self._names():
            rows_in = self.read[name]
            per_stage: dict[str, dict[str, int]] = defaultdict(dict)
            for (dataset, stage, reason), count in sorted(self.fallen.items()):
                if dataset == name and count:
                    per_stage[stage][reason] = count
            out = []
            for stage in STAGES:
                dropped = per_stage.get(stage, {})
                rows_out = rows_in - sum(dropped.values())
                out.append({"stage": stage, "in": rows_in, "out": rows_out, "dropped": dropped})
                if dropped or stage == STAGES[0]:
                    self.say(f"{name:>9} {stage:>14}: {rows_in:>9,} in {rows_out:>9,} out {json.dumps(dropped)}")
                rows_in = rows_out
            assert rows_in == stayed[name], f"{name}: {rows_in} rows by the counts, {stayed[name]} in the table"
            notes = {note: count for (dataset, note), count in sorted(self.notes.items()) if dataset == name}
            counts[name] = {"licence": SETS[name].licence, "stages": out, "kept_with": notes}
            if notes:
                self.say(f"{name:>9} kept and counted: {json.dumps(notes)}")
            mine = encoded.filter(pc.equal(encoded.column("dataset"), name))
            sums = {measure: int(pc.sum(mine.column(measure)).as_py() or 0) for measure in MEASURES}
            statistics[name] = summary(len(mine), sums)
        for line in lines(statistics):
            self.say(line)
        return {"counts": counts, "statistics": statistics, "sets": settings(self.config)}


STAGES = (
    "read", "language", "character_run", "patterns", "draw", "near_duplicate", "decontaminate", "truncate",
)  # fmt: skip
"""Names of the stages in which rows may be dropped, in processing order."""


def _absolute(file: str) -> str:
    return file if is_bucket(file) else str(Path(file).absolute())


def _cut(table: pa.Table) -> list[pa.Table]:
    """Split a table into tables of ``stages.ROWS`` rows, one per task; the last may be shorter."""
    table = table.combine_chunks()
    return [table.slice(begin, stages.ROWS) for begin in range(0, len(table), stages.ROWS)]


def _without(table: pa.Table, orders: np.ndarray) -> pa.Table:
    return table.filter(pc.invert(pc.is_in(table.column("order"), pa.array(orders))))


def _matrix(column: pa.ChunkedArray) -> np.ndarray:
    array = column.combine_chunks()
    array = array.chunk(0) if isinstance(array, pa.ChunkedArray) else array
    return array.flatten().to_numpy(zero_copy_only=False).reshape(len(array), -1)


def _examples(batch: pa.RecordBatch) -> Iterator[Example]:
    columns = {name: batch.column(name) for name in ("dataset", "id", "messages", "tokens", "trained")}
    for row in range(batch.num_rows):
        yield Example(
            columns["dataset"][row].as_py(),
            columns["id"][row].as_py(),
            columns["messages"][row].as_py(),
            columns["tokens"][row].values.to_numpy(),
            columns["trained"][row].values.to_numpy(zero_copy_only=False),
        )
