"""The last parallel step of a build: pack the documents of a shard into rows, window by window.

A window is the documents that are packed together (``packing.WINDOW`` pieces); a shard holds as many windows as its
size allows, and one of them is in memory at a time."""

import json
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lemur_ray.corpus.documents import ID_BYTES
from lemur_ray.corpus.packing import Packing, pack
from lemur_ray.corpus.rows import token_dtype, write_atomically, write_shard
from lemur_ray.corpus.steps import stages


def pack_window(build: Path, shard: str, key: str, seq_len: int, pad_id: int, vocab_size: int) -> None:
    """Step: pack the documents listed in ``sets/SHARD.npz`` of the folder ``build`` into rows, and write them, with the
    record of their documents, as a shard of the corpus. Does nothing if the shard is complete with this ``key``.
    seq_len: tokens of a row; pad_id: id that fills rows; vocab_size: decides the dtype of ids."""
    if stages.window_done(build, shard, key):
        return
    (build / "sets" / f"{shard}.json").unlink(missing_ok=True)  # it describes the files that are replaced now
    with np.load(build / "sets" / f"{shard}.npz") as listed:
        documents, names, ends = listed["documents"], listed["parts"].tolist(), listed["windows"].tolist()
    tokenised = [stages.intact(build, "tokens", name, ".bin") for name, _ in names]
    ends_of_part = [np.cumsum(stages.read_lengths(build, name)) for name, _ in names]
    packings = [(begin, pack(documents[begin:end, 2], seq_len)) for begin, end in pairwise([0, *ends])]
    counts = [np.bincount(packing.row, minlength=packing.num_rows) for _, packing in packings]
    set_name, _, window = shard.rpartition("-")
    folder = stages.rows_of(build, set_name)
    folder.mkdir(parents=True, exist_ok=True)
    about = _provenance(build, documents, [clean for _, clean in names])
    numbers = np.concatenate([packing.document + begin for begin, packing in packings])
    dtype = token_dtype(vocab_size)
    tokens = (
        _rows(packing, _texts(documents[begin:end], tokenised, ends_of_part, dtype), pad_id, seq_len)
        for (begin, packing), end in zip(packings, ends, strict=True)
    )
    lengths = np.concatenate([packing.length for _, packing in packings])
    provenance = numbers, stages.parquet_bytes(about)
    entry = write_shard(folder, window, tokens, lengths, np.concatenate(counts), provenance=provenance)
    totals = {column: stages.totals(about, column) for column in ("language", "licence")}
    most = max(int(count.max(initial=0)) for count in counts)
    value = {"key": key, "shard": entry, "counts": totals, "most_pieces": most}
    write_atomically(build / "sets" / f"{shard}.json", json.dumps(value).encode(), durable=False)


def _texts(
    documents: np.ndarray, parts: Sequence[Path], ends: Sequence[np.ndarray], dtype: np.dtype
) -> list[np.ndarray]:
    """Tokens of each document of a window, read from one file after the other.
    documents: (documents, 4), see ``pack_window``. parts: files of tokens; ends: of the documents in each."""
    texts: list[np.ndarray] = [np.zeros(0, dtype)] * len(documents)
    for part in np.unique(documents[:, 0]).tolist():
        of_part = np.flatnonzero(documents[:, 0] == part)
        with open(parts[part], "rb") as file:
            for at, (_, index, count, _) in zip(of_part.tolist(), documents[of_part].tolist(), strict=True):
                file.seek((int(ends[part][index]) - count) * dtype.itemsize)
                texts[at] = np.frombuffer(file.read(count * dtype.itemsize), dtype)
    return texts


def _rows(packing: Packing, texts: Sequence[np.ndarray], pad_id: int, seq_len: int) -> np.ndarray:
    """Tokens (rows, seq_len) of a window with these documents."""
    tokens = np.full((packing.num_rows, seq_len), pad_id, texts[0].dtype)
    used = np.zeros(packing.num_rows, np.int64)
    pieces = (packing.document, packing.start, packing.length, packing.row)
    for document, start, length, row in zip(*(array.tolist() for array in pieces), strict=True):
        tokens[row, used[row] : used[row] + length] = texts[document][start : start + length]
        used[row] += length
    return tokens


def _provenance(build: Path, documents: np.ndarray, parts: Sequence[str]) -> pa.Table:
    """Table with id, tokens, bytes, path, licence, language and origin of the documents of a shard."""
    tables = []
    for number, part in enumerate(parts):
        of_part = np.flatnonzero(documents[:, 0] == number)
        about, ids, sizes = (stages.intact(build, "clean", part, suffix) for suffix in (".about", ".ids", ".sizes"))
        rows = documents[of_part, 3]
        table = pq.read_table(about).take(pa.array(rows))
        table = table.add_column(0, "bytes", pa.array(np.fromfile(sizes, "<i8")[rows]))
        table = table.add_column(0, "tokens", pa.array(documents[of_part, 2]))
        names = [one.tobytes().hex() for one in np.fromfile(ids, f"V{ID_BYTES}")[rows]]
        tables.append(table.add_column(0, "id", pa.array(names, pa.string())))
    return pa.concat_tables(tables)


def _needs_of_window(build: Path, shard: str, **_: Any) -> Iterator[str]:
    yield f"sets/{shard}.npz"
    with np.load(build / "sets" / f"{shard}.npz") as listed:
        names = listed["parts"].tolist()
    for tokenised, clean in names:
        yield from (f"tokens/{tokenised}{suffix}" for suffix in (".json", *stages.TOKENS))
        yield from (f"clean/{clean}{suffix}" for suffix in (".json", ".about", ".ids", ".sizes"))


def _gives_of_window(build: Path, shard: str, **_: Any) -> list[Path]:
    return [*(path for path, _ in stages.files_of(build, shard)), build / "sets" / f"{shard}.json"]


stages.NEEDS[pack_window] = _needs_of_window
stages.GIVES[pack_window] = _gives_of_window
