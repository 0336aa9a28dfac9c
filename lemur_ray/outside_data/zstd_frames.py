"""Reads single frames of a zstd file, which decompress independently: their ends, and the lines of a run of frames.

A frame's end is found in the table of frames at the end of the file, or by the headers of its blocks."""

import io
import itertools
from typing import Any, BinaryIO

from lemur_ray.outside_data.record_formats import SKIPPABLE, ZSTD, decompressed

_TABLE = b"\xb1\xea\x92\x8f"
"""Last bytes of a file with a table of frames (zstd's seekable format)."""
_FOOTER_BYTES = 9
_LINE_BYTES = 1 << 12
"""Bytes that are decompressed at a time of the frames behind a run, of which one line is read."""


def frame_ends(stream: BinaryIO, size: int, walk: bool) -> list[int]:
    """Byte positions at which the frames of a zstd file end, up to where it is damaged or cut short. ``size``: of the
    file. ``walk``: if the file has no table of frames, go through all block headers, which reads most of it."""
    if size > _FOOTER_BYTES:
        stream.seek(size - _FOOTER_BYTES)
        count, flags, magic = stream.read(4), stream.read(1), stream.read(4)
        if magic == _TABLE:
            return _listed_ends(stream, size, int.from_bytes(count, "little"), 12 if flags[0] >> 7 else 8)
    ends, at = list[int](), 0
    while walk and at < size and (ended := _frame_end(stream, at, size)):
        at, is_content = ended
        ends += [at] * is_content
    return ends


def _listed_ends(stream: BinaryIO, size: int, count: int, width: int) -> list[int]:
    begin = size - _FOOTER_BYTES - count * width
    if begin < 8:
        return []
    stream.seek(begin)
    entries = stream.read(count * width)
    sizes = (int.from_bytes(entries[at : at + 4], "little") for at in range(0, len(entries), width))
    ends = list(itertools.accumulate(sizes))
    return ends if ends and ends[-1] == begin - 8 else []


def _frame_end(stream: BinaryIO, at: int, size: int) -> tuple[int, bool] | None:
    """(end of the frame that begins at a position, whether it has content); None if there is none or it is cut."""
    stream.seek(at)
    magic = stream.read(4)
    if magic[1:] == SKIPPABLE and magic[0] >> 4 == 5:
        end = at + 8 + int.from_bytes(stream.read(4), "little")
        return (end, False) if end <= size else None
    head = stream.read(1)
    if magic != ZSTD or not head:
        return None
    is_single, has_checksum = head[0] >> 5 & 1, head[0] >> 2 & 1
    at += 5 + (not is_single) + (0, 1, 2, 4)[head[0] & 3] + (is_single, 2, 4, 8)[head[0] >> 6]
    while True:
        stream.seek(at)
        if len(header := stream.read(3)) < 3:
            return None
        block = int.from_bytes(header, "little")
        at += 3 + (1 if block >> 1 & 3 == 1 else block >> 3)  # a run of one byte is stored as this byte
        if block & 1:
            return (at + 4 * has_checksum, True) if at + 4 * has_checksum <= size else None


class FrameLines:
    """Lines of a run of frames, so that the runs of a file yield every line exactly once: a line that begins before the
    run, or exactly at its first byte, belongs to the run before; one cut by the run's end is read on."""

    def __init__(self, stream: BinaryIO, begin: int, end: int, size: int, longest: int) -> None:
        """begin, end: bytes of the run in a file of ``size`` bytes. longest: bytes read at a time of the first line."""
        self._lines: BinaryIO | None = frame_content(stream, begin, end)
        self._rest: tuple[BinaryIO, int, int] | None = (stream, end, size)
        line = b"\n"
        while begin and (line := self._lines.readline(longest)) and not line.endswith(b"\n"):
            pass
        if not line:  # one line that begins before the run and goes on after it
            self._lines = None

    def readline(self, limit: int = -1, /) -> bytes:
        """The next line, at most ``limit`` bytes of it (-1: all); empty at the end."""
        if self._lines is None:
            return b""
        line = self._lines.readline(limit)
        if line.endswith(b"\n") and self._rest is None:
            self._lines = None
        if line.endswith(b"\n") or len(line) == limit:
            return line
        self._lines, self._rest = frame_content(*self._rest, _LINE_BYTES) if self._rest else None, None
        return line + self.readline(limit - len(line) if limit >= 0 else -1)


def frame_content(stream: BinaryIO, begin: int, end: int, buffer: int = 1 << 20) -> BinaryIO:
    """Stream of the decompressed frames in bytes ``begin`` to ``end`` (exclusive). ``buffer``: bytes decompressed at a
    time. Reading raises OSError for a damaged frame."""
    return decompressed(io.BufferedReader(_Window(stream, begin, end), 1 << 16), buffer)


class _Window(io.RawIOBase):
    """Bytes ``begin`` to ``end`` of a stream."""

    def __init__(self, stream: BinaryIO, begin: int, end: int) -> None:
        self._stream, self._at, self._end = stream, begin, end

    def readable(self) -> bool:
        return True

    def readinto(self, target: Any) -> int:
        self._stream.seek(self._at)
        data = self._stream.read(min(len(target), self._end - self._at))
        target[: len(data)] = data
        self._at += len(data)
        return len(data)
