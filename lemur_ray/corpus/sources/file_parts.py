"""Splits large files of records into parts that tasks read separately: row groups of parquet, byte ranges of lines,
zstd frames.

A file of gzip, one of a single frame and a JSON list stay whole: they can be read from their beginning only."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import BinaryIO

import pyarrow.parquet as pq

from lemur_ray.corpus.sources.file_refs import FileRef
from lemur_ray.corpus.sources.record_texts import is_records
from lemur_ray.outside_data.record_formats import compression, is_parquet, peek
from lemur_ray.outside_data.zstd_frames import frame_content, frame_ends

_REMOTE_PART_BYTES = 128e6
"""Minimum bytes of a part of a remote file: splitting costs requests."""


def split_file(ref: FileRef, part_bytes: float) -> list[FileRef]:
    """Parts of about ``part_bytes`` bytes (of a remote file at least 128 MB) of a file, in order; [ref] if it is small
    or cannot be split. A file that cannot be opened stays whole, so that its part fails when it is read."""
    if "://" in ref.path:
        part_bytes = max(part_bytes, _REMOTE_PART_BYTES)
    if ref.size <= 1.5 * part_bytes or ref.reader not in ("file", "jsonl", "parquet"):
        return [ref]
    try:
        parts = list(_parts(ref, part_bytes))
    except (OSError, ValueError):  # also what pyarrow raises
        return [ref]
    return [replace(ref, size=size, part=part, file_size=ref.size) for size, part in parts] or [ref]


def _parts(ref: FileRef, part_bytes: float) -> Iterator[tuple[int, tuple[str, int, int]]]:
    """(bytes, ``FileRef.part``) of each part. Raises ReadFailure, ArrowException (a ValueError or OSError)."""
    with ref.open() as stream:
        if is_parquet(stream):
            with pq.ParquetFile(stream) as table:
                about = [table.metadata.row_group(group) for group in range(table.num_row_groups)]
            sizes = [sum(one.column(c).total_compressed_size for c in range(one.num_columns)) for one in about]
            for begin, end, size in _runs(sizes, part_bytes):
                yield size, ("groups", begin, end)
        elif (kind := compression(stream)) == "zstd":
            yield from _parts_of_frames(ref, stream, part_bytes)
        elif not kind and _is_json_lines(ref, stream):
            count = max(1, round(ref.size / part_bytes))
            bounds = itertools.pairwise(ref.size * index // count for index in range(count + 1))
            yield from ((end - begin, ("bytes", begin, end)) for begin, end in bounds)


def _is_json_lines(ref: FileRef, stream: BinaryIO) -> bool:
    begins = peek(stream, 64).lstrip(b" \t\r\n\xef\xbb\xbf").startswith(b"{")
    return begins and (ref.reader == "jsonl" or is_records(ref, stream))


def _parts_of_frames(ref: FileRef, stream: BinaryIO, part_bytes: float) -> Iterator[tuple[int, tuple[str, int, int]]]:
    """Yield runs of frames. The last one includes what follows the last whole frame of a damaged file, and fails."""
    ends = frame_ends(stream, ref.size, walk="://" not in ref.path)  # a remote file would be read for it
    bounds = [0, *ends[:-1], ref.size]
    runs = list(_runs([end - begin for begin, end in itertools.pairwise(bounds)], part_bytes))
    if len(runs) > 1 and _is_json_lines(ref, frame_content(stream, 0, bounds[runs[0][1]])):
        yield from ((size, ("frames", bounds[begin], bounds[end])) for begin, end, size in runs)


def _runs(sizes: Sequence[int], least: float) -> Iterator[tuple[int, int, int]]:
    """(first, exclusive last, total size) of runs of pieces that have ``least`` bytes, the last one any number."""
    begin = size = 0
    for index, more in enumerate(sizes):
        size += more
        if size >= least or index == len(sizes) - 1:
            yield begin, index + 1, size
            begin, size = index + 1, 0
