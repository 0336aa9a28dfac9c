"""Splits large files of records into parts that can be read alone: row groups of parquet, byte ranges of plain lines.

A compressed file and a JSON list stay whole: they can be read from their beginning only.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pyarrow.parquet as pq

from lemur_ray.corpus.sources.file_refs import FileRef
from lemur_ray.corpus.sources.record_texts import is_records
from lemur_ray.outside_data.byte_stream import open_stream
from lemur_ray.outside_data.record_formats import compression, is_parquet, peek

_REMOTE_PART_BYTES = 128e6
"""Minimum bytes of a part of a remote file: splitting costs requests."""


def split_file(ref: FileRef, part_bytes: float) -> list[FileRef]:
    """Parts of about ``part_bytes`` bytes of a file, in order; the file itself if it is small or cannot be split.

    A file that cannot be opened stays whole, so that its part fails by itself when it is read.
    """
    if "://" in ref.path:
        part_bytes = max(part_bytes, _REMOTE_PART_BYTES)
    if ref.size <= 1.5 * part_bytes or ref.reader not in ("file", "jsonl", "parquet"):
        return [ref]
    try:
        parts = list(_parts(ref, part_bytes))
    except (OSError, ValueError):  # also what pyarrow raises
        return [ref]
    return [replace(ref, size=size, part=part) for size, part in parts] or [ref]


def _parts(ref: FileRef, part_bytes: float) -> Iterator[tuple[int, tuple[str, int, int]]]:
    """(bytes, ``FileRef.part``) of each part. Raises ReadFailure, ArrowException (a ValueError or OSError)."""
    with open_stream(ref.path, ref.name, size=ref.size if ref.version else -1, version=ref.version) as stream:
        if is_parquet(stream):
            with pq.ParquetFile(stream) as table:
                about = [table.metadata.row_group(group) for group in range(table.num_row_groups)]
            sizes = [sum(one.column(c).total_compressed_size for c in range(one.num_columns)) for one in about]
            begin, size = 0, 0
            for group, more in enumerate(sizes):
                size += more
                if size >= part_bytes or group == len(sizes) - 1:
                    yield size, ("groups", begin, group + 1)
                    begin, size = group + 1, 0
        elif not compression(stream) and peek(stream, 64).lstrip(b" \t\r\n\xef\xbb\xbf").startswith(b"{"):
            if ref.reader != "jsonl" and not is_records(ref, stream):
                return
            count = max(1, round(ref.size / part_bytes))
            bounds = itertools.pairwise(ref.size * index // count for index in range(count + 1))
            yield from ((end - begin, ("bytes", begin, end)) for begin, end in bounds)
