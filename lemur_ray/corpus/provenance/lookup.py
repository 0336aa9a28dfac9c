"""Documents, licences and origins of the rows of a corpus, on a disk or in a bucket."""

import io
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lemur_ray.corpus.manifest import CorpusError, read_manifest, renewed_by
from lemur_ray.corpus.rows import INDEX, PROVENANCE, locate_rows, parse_index
from lemur_ray.storage.file_system import file_system


@dataclass(frozen=True)
class RowDocument:
    """A document of which a row holds all or a part: what it is, where it comes from, and where in the row it lies."""

    id: str
    """32 hex digits (``documents.content_id``)."""
    path: str
    """File of the source, with the number of the record in a file of several."""
    licence: str
    language: str
    origin: str
    """Repository or address that the document comes from; empty if its source names none."""
    begin: int
    """Index in the row of its first token; ``end``: index after its last one."""
    end: int


def parse_row(text: str) -> tuple[str, int]:
    """(row set, number) of a row given as SOURCE:NUMBER. Raises CorpusError for another form."""
    name, _, number = text.rpartition(":")
    if not name or not number.isdecimal():
        raise CorpusError(f"row {text!r}: expected SOURCE:NUMBER")
    return name, int(number)


def documents_of_rows(corpus: str | Path, row_set: str, rows: Sequence[int]) -> list[list[RowDocument]]:
    """Documents of each of the rows of a row set (a source, or ``heldout-SOURCE``) of the corpus at a path or URL.
    Raises CorpusError if the row set, its record of documents or a file is missing, RowSetError for an invalid index,
    IndexError if a row is missing."""
    index = read_row_index(corpus, row_set)
    where = f"{corpus}/rows/{row_set}"
    out: list[list[RowDocument]] = [[] for _ in rows]
    shards, within = locate_rows(index, np.asarray(rows), where)
    for shard in np.unique(shards).tolist():
        arrays = read_pieces(where, index["shards"][shard])
        documents = read_documents(where, index["shards"][shard])
        for i in np.flatnonzero(shards == shard).tolist():
            pieces = slice(*arrays["starts"][within[i] : within[i] + 2].tolist())
            ends = np.cumsum(arrays["lengths"][pieces], dtype=np.int64)
            table = documents.take(pa.array(arrays["numbers"][pieces])).select(["id", *_FIELDS])
            begins = [0, *ends[:-1].tolist()]
            out[i] = [
                RowDocument(**one, begin=begin, end=end)
                for one, begin, end in zip(table.to_pylist(), begins, ends.tolist(), strict=True)
            ]
    return out


_FIELDS = ("path", "licence", "language", "origin")


def read_row_index(corpus: str | Path, row_set: str) -> dict[str, Any]:
    """Content of ``rows.json`` of a row set that records its documents. Raises CorpusError if there is no such row set,
    or without that record, RowSetError if the file is invalid."""
    manifest = read_manifest(corpus)
    names = [entry["name"] for entry in (*manifest["sources"], *manifest.get("heldout", ()))]
    if row_set not in names:
        raise CorpusError(f"{corpus} has no row set {row_set!r}, expected one of {', '.join(names)}")
    path = f"{corpus}/rows/{row_set}/{INDEX}"
    index = parse_index(_read(path), path)
    if any(set(PROVENANCE) - set(shard["files"]) for shard in index["shards"]):
        raise CorpusError(f"{corpus} does not record the documents of its rows: {renewed_by(manifest, corpus)}")
    return index


def read_pieces(where: str, shard: dict[str, Any]) -> dict[str, np.ndarray]:
    """Arrays of a shard of the row set in ``where`` (path or URL): starts (rows + 1,) int64, lengths (pieces,) uint32,
    and numbers (pieces,) uint32, the document of each piece. shard: its entry in ``rows.json``. Raises CorpusError if a
    file cannot be read."""
    kinds = {"starts": "<i8", "lengths": "<u4", "numbers": "<u4"}
    return {kind: np.frombuffer(_read(f"{where}/{shard['name']}.{kind}"), dtype) for kind, dtype in kinds.items()}


def read_documents(where: str, shard: dict[str, Any]) -> pa.Table:
    """Table of the documents of a shard: id, tokens, bytes, path, licence, language, origin. where: path or URL of the
    row set; shard: its entry in ``rows.json``. Raises CorpusError if a file cannot be read."""
    return pq.read_table(io.BytesIO(_read(f"{where}/{shard['name']}.documents")))


def _read(path: str) -> bytes:
    fs, inner = file_system(path)
    try:
        return bytes(fs.cat_file(inner))
    except OSError as error:
        raise CorpusError(f"{path} cannot be read: {error}") from error


def to_json(source: str, row: int, documents: Sequence[RowDocument]) -> str:
    """One line of JSON, without a line end, with the documents of row number ``row`` of ``source``."""
    return json.dumps({"source": source, "row": row, "documents": [vars(one) for one in documents]})
