"""Rows of a corpus in a bucket, read from copies of whole shards on this host or by requests for single rows.

The order of a run is a permutation, so a host that reads 1 % of the rows needs some of every shard. A shard is copied
if the run reads enough of its rows (``PlanReader`` decides); otherwise each row is a small request. Copies are
memory-mapped, shared by all processes of a host, and limited in total size::

    $LEMUR_HOME/cache/corpora/<name>/00000.tokens, ..    name: hash of the URL and of the checksums of the shard"""

import contextlib
import hashlib
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from lemur_ray.corpus import rows
from lemur_ray.corpus.manifest import row_folder
from lemur_ray.corpus.packing import PackedRow
from lemur_ray.corpus.rows import RowReader, Rows, RowSetError
from lemur_ray.host.home import lemur_home
from lemur_ray.storage.bounded_cache import MARGIN_BYTES, BoundedCache, tree_size
from lemur_ray.storage.file_system import file_system, is_bucket

LIMIT = "LEMUR_CORPUS_GB"
_PIECE_BYTES = 2**24
"""Bytes per request for a part of a shard. Every request has its own timeout."""
_SHARDS_AT_ONCE = 4


def open_rows(corpus: str | Path, source: str, *, check: bool = True) -> Rows:
    """Open the row set ``source`` of the corpus at ``corpus``, a folder or URL. Raises RowSetError if a file is missing
    or has a wrong size. check: False: in a bucket only the index is read, and such a file is noticed when its rows are
    read; on a disk all files are always checked."""
    if not is_bucket(str(corpus)):
        return RowReader(row_folder(corpus, source))
    return BucketRows(f"{str(corpus).rstrip('/')}/rows/{source}", check=check)


def most_pieces(folder: str, index: dict[str, Any]) -> int:
    """Maximum number of pieces of documents in a row of the set in ``folder`` (path or URL); 0 without rows. index: its
    ``rows.json``. Reads the ``starts`` of all shards, 8 bytes a row. Raises OSError if one cannot be read."""
    most = 0
    for shard in index["shards"]:
        fs, path = file_system(f"{folder}/{shard['name']}.starts")
        most = max(most, int(np.diff(np.frombuffer(fs.cat_file(path), "<i8")).max(initial=0)))
    return most


def shard_cache() -> BoundedCache:
    """The cache of shards on this host, limited to ``$LEMUR_CORPUS_GB`` gigabytes (default 50)."""
    return BoundedCache(lemur_home() / "cache" / "corpora", LIMIT, RowSetError)


def limit_environment() -> dict[str, str]:
    """The environment variable that limits the cache as {name: value}, to set on other hosts; {} if it is not set."""
    return {LIMIT: os.environ[LIMIT]} if os.environ.get(LIMIT) else {}


class BucketRows:
    """Random access to a row set in a bucket (a ``rows.Rows``). Methods raise RowSetError if a file is missing, damaged
    or cannot be read."""

    def __init__(self, url: str, *, check: bool = True) -> None:
        """url: folder of the row set. check: list the files and compare their sizes with the index."""
        self.url = url
        self._fs, self._inner = file_system(url)
        with self._errors_as_row_set_errors():
            try:
                content = bytes(self._fs.cat_file(f"{self._inner}/{rows.INDEX}"))
            except FileNotFoundError:
                raise RowSetError(f"row set {url} is not there (no {rows.INDEX}): build the corpus again") from None
            self.index = rows.parse_index(content, f"{url}/{rows.INDEX}")
            if check:
                listed = self._fs.find(self._inner, detail=True).items()
                sizes = {path.rsplit("/", 1)[-1]: int(about["size"]) for path, about in listed}
                rows.check_sizes(self.index, url, sizes.get)
        self.seq_len: int = self.index["seq_len"]
        self.whole = max(map(_size, self.index["shards"]), default=0) <= shard_cache().limit_bytes()
        """True: copy shards to this host; False: request single rows. Default: whether the largest shard fits."""

    def __len__(self) -> int:
        return int(self.index["rows"])

    @property
    def size_bytes(self) -> int:
        """Total bytes of all shards. The record of their documents does not count."""
        return sum(map(_size, self.index["shards"]))

    @property
    def missing_bytes(self) -> int:
        """Total bytes of the shards without a copy on this host."""
        there = shard_cache().folder
        return sum(_size(s) for i, s in enumerate(self.index["shards"]) if not (there / self._name(i)).is_dir())

    def read(self, indices: np.ndarray) -> PackedRow:
        """Rows with the given numbers (any order, repeats allowed). Raises IndexError for one outside [0, len)."""
        shards, within = rows.locate_rows(self.index, indices, self.url)
        if not self.whole:
            with self._errors_as_row_set_errors():
                return self._read_alone(shards, within)
        self._bring(shards)
        with self._errors_as_row_set_errors():
            return rows.gather_rows(self.index, shards, within, self._opened)

    def bring(self, indices: np.ndarray) -> None:
        """Copy the shards with the given row numbers to this host, four at a time; does nothing if rows are read singly
        (``whole`` False)."""
        if self.whole:
            self._bring(rows.locate_rows(self.index, indices, self.url)[0])

    def _bring(self, shards: np.ndarray) -> None:
        there = shard_cache().folder
        missing = [shard for shard in np.unique(shards).tolist() if not (there / self._name(shard)).is_dir()]
        if missing:
            with self._errors_as_row_set_errors(), ThreadPoolExecutor(_SHARDS_AT_ONCE) as pool:
                for _ in pool.map(lambda shard: os.close(self._used(shard)), missing):
                    pass

    @contextlib.contextmanager
    def _opened(self, shard: int) -> Iterator[rows.Arrays]:
        lock = self._used(shard)
        try:
            yield rows.map_shard(shard_cache().folder / self._name(shard), self.index, shard)
        finally:
            os.close(lock)

    def _used(self, shard: int) -> int:
        return shard_cache().acquire(self._name(shard), lambda: self._copy(shard))

    def _name(self, shard: int) -> str:
        written = json.dumps(self.index["shards"][shard], sort_keys=True)
        return hashlib.sha256(f"{self.url}\n{written}".encode()).hexdigest()[:32]

    def _copy(self, shard: int) -> None:
        here, entry = shard_cache(), self.index["shards"][shard]
        with here.staging_folder(self._name(shard), _size(entry), f"{self.url}/{entry['name']}") as half:
            (half / "shard").mkdir()
            for kind, expected in entry["files"].items():
                if kind not in rows.PROVENANCE:
                    self._copy_file(f"{entry['name']}.{kind}", half / "shard", expected)
            (half / "shard").rename(here.folder / self._name(shard))

    def _copy_file(self, name: str, to: Path, expected: dict[str, int]) -> None:
        size = crc32 = 0
        with open(to / name, "wb") as file:
            while size < expected["bytes"]:
                end = min(size + _PIECE_BYTES, expected["bytes"])
                piece = self._fs.cat_file(f"{self._inner}/{name}", start=size, end=end)
                if len(piece) != end - size:
                    rows.check_size(f"{self.url}/{name}", size + len(piece), expected["bytes"])
                size, crc32 = end, zlib.crc32(piece, crc32)
                file.write(piece)
        if crc32 != expected["crc32"]:
            raise RowSetError(f"{self.url}/{name}: its content differs from what was written; build this corpus again")

    def _read_alone(self, shards: np.ndarray, within: np.ndarray) -> PackedRow:
        """Read rows at (shard, index in the shard) by two rounds of concurrent requests, without copying shards."""
        num, dtype = len(shards), np.dtype(self.index["dtype"])
        if not num:
            return rows.packed_rows(np.empty((0, self.seq_len), dtype), [], None)
        widths = {"tokens": dtype.itemsize * self.seq_len, "starts": 8}
        if "trained" in self.index["shards"][0]["files"]:
            widths["trained"] = -(-self.seq_len // 8)
        requests = [
            (shard, kind, place * width, width + (8 if kind == "starts" else 0))
            for kind, width in widths.items()
            for shard, place in zip(shards.tolist(), within.tolist(), strict=True)
        ]
        ranges = self._ranges(requests)
        tokens = np.frombuffer(b"".join(ranges[:num]), dtype).reshape(num, self.seq_len)
        starts = np.frombuffer(b"".join(ranges[num : 2 * num]), "<i8").reshape(num, 2)
        trained = None
        if "trained" in widths:
            bits = np.frombuffer(b"".join(ranges[2 * num :]), np.uint8).reshape(num, -1)
            trained = np.unpackbits(bits, axis=1, count=self.seq_len).astype(bool)
        spans = zip(shards.tolist(), starts.tolist(), strict=True)
        pieces = self._ranges([(shard, "lengths", 4 * begin, 4 * (end - begin)) for shard, (begin, end) in spans])
        return rows.packed_rows(tokens, [np.frombuffer(piece, "<u4") for piece in pieces], trained)

    def _ranges(self, requests: Sequence[tuple[int, str, int, int]]) -> list[bytes]:
        """Bytes of each request (shard, kind of file, first byte, size). Raises RowSetError if bytes are missing."""
        names = [f"{self.index['shards'][shard]['name']}.{kind}" for shard, kind, _, _ in requests]
        for (shard, kind, begin, size), name in zip(requests, names, strict=True):
            if not 0 <= begin <= begin + size <= self.index["shards"][shard]["files"][kind]["bytes"]:
                raise RowSetError(f"{self.url}/{name}: the index places rows outside of it; build this corpus again")
        begins, ends = [begin for _, _, begin, _ in requests], [begin + size for _, _, begin, size in requests]
        paths = [f"{self._inner}/{name}" for name in names]
        pieces: list[bytes] = self._fs.cat_ranges(paths, begins, ends, on_error="raise")
        for (*_, size), name, piece in zip(requests, names, pieces, strict=True):
            if len(piece) != size:
                raise RowSetError(f"{self.url}/{name}: {len(piece)} of {size} bytes came: build this corpus again")
        return pieces

    @contextlib.contextmanager
    def _errors_as_row_set_errors(self) -> Iterator[None]:
        try:
            yield
        except (ImportError, OSError) as error:
            raise RowSetError(f"rows in {self.url} cannot be read: {' '.join(str(error).split())}") from error


def plan_copies(readers: Sequence[BucketRows], whole: Sequence[bool]) -> None:
    """Set ``whole`` of each reader: whether its shards are copied to this host.
    whole: one flag per reader. Raises RowSetError if the disk lacks room for them; the copies of other runs count as
    free space, because they may be deleted."""
    here = shard_cache()
    here.folder.mkdir(parents=True, exist_ok=True)
    for reader, copied in zip(readers, whole, strict=True):
        reader.whole = copied
    chosen = [reader for reader in readers if reader.whole]
    missing = sum(reader.missing_bytes for reader in chosen)
    others = tree_size(here.folder) - sum(reader.size_bytes - reader.missing_bytes for reader in chosen)
    if missing:
        what = f"the rows of {', '.join(reader.url for reader in chosen)} (less with {LIMIT} set to fewer gigabytes)"
        here.check_room(missing + MARGIN_BYTES - others, what)


def _size(shard: dict[str, Any]) -> int:
    """Bytes of a shard that training reads."""
    return sum(int(file["bytes"]) for kind, file in shard["files"].items() if kind not in rows.PROVENANCE)
