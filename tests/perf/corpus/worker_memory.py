"""Memory of a worker that cleans a file with a line of 100 MB each, and a part of a huge parquet file of sparse groups.

Exit code 1 above 1.5 GB. The parquet file has the size given and holds zeros except for the first row groups and its
footer, so it takes little room on the disk.

python tests/perf/corpus/worker_memory.py [GIGABYTES OF LINES] [GIGABYTES OF PARQUET]
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import BinaryIO

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import pyarrow as pa
import pyarrow.parquet as pq

from lemur_ray.corpus.sources.file_parts import split_file
from lemur_ray.corpus.sources.file_refs import FileRef
from lemur_ray.corpus.sources.folders import MAX_BOOK_BYTES
from lemur_ray.corpus.steps import stages

TARGET_MB = 1500.0
_LINE_BYTES = 100_000_000
_SENTENCE = "{} the river of harvest {} is wide and all the people that have lived with it are {} now.\n\n"


def write_lines(path: Path, gigabytes: float) -> None:
    """JSON lines of 100 MB each."""
    with open(path, "w") as file:
        for line in range(max(1, int(gigabytes * 1e9 / _LINE_BYTES))):
            count = _LINE_BYTES // 100
            text = "".join(_SENTENCE.format(line, number, number * 7919) for number in range(count))
            file.write(json.dumps({"text": text[:_LINE_BYTES]}) + "\n")


class _Sparse:
    """A file for pyarrow that leaves a hole in place of what is written while ``skipping``."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.skipping, self.closed = file, False, False

    def write(self, data: bytes) -> int:
        if self.skipping:
            self._file.seek(len(data), os.SEEK_CUR)
            return len(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self._file.tell()

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self.closed = True


def write_parquet(path: Path, gigabytes: float) -> None:
    """A parquet file of this size in row groups of 20 MB of text, of which only the first and last ten are on disk."""
    texts = [_SENTENCE.format(0, number, number * 7919) * 40 for number in range(5000)]
    table = pa.table({"text": texts})
    groups = max(20, int(gigabytes * 1e9 / table.nbytes))
    with open(path, "wb") as file:
        sink = _Sparse(file)
        with pq.ParquetWriter(pa.PythonFile(sink, "w"), table.schema, compression="none", use_dictionary=False) as out:
            for group in range(groups):
                sink.skipping = 10 <= group < groups - 10
                out.write_table(table, row_group_size=len(table))


def clean(folder: Path, ref: list[object], filters: str) -> None:
    """Clean one part in this process and print counts, peak memory in MB and CPU seconds as JSON."""
    build = folder / "build"
    for name in stages.FOLDERS:
        (build / name).mkdir(parents=True, exist_ok=True)
    (build / "parts" / "part.json").write_text(json.dumps({"kind": "text", "filters": filters, "files": [ref]}))
    began = time.process_time()
    counts = stages.clean_part(build, "part")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(json.dumps({"read": counts["read"], "dropped": counts["dropped"], "failed": counts.get("failed"),
                      "peak_mb": peak, "cpu_s": time.process_time() - began}))  # fmt: skip


def measured(ref: FileRef, filters: str) -> bool:
    """Clean a part in a process of its own and print its memory; whether it is within the target."""
    with tempfile.TemporaryDirectory(dir=Path(ref.path).parent) as folder:
        command = [sys.executable, __file__, "--clean", folder, json.dumps(ref.to_json()), filters]
        result = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(f"{ref.name}, {filters}, {ref.size / 1e6:,.0f} MB of {Path(ref.path).stat().st_size / 1e9:.1f} GB: {result}")
    return bool(result["peak_mb"] <= TARGET_MB and not result["failed"] and result["read"])


def main() -> int:
    if sys.argv[1:2] == ["--clean"]:
        clean(Path(sys.argv[2]), json.loads(sys.argv[3]), sys.argv[4])
        return 0
    lines_gb, parquet_gb = map(float, [*sys.argv[1:], "2", "50"][:2] if len(sys.argv) < 2 else sys.argv[1:3])
    met = True
    with tempfile.TemporaryDirectory() as folder:
        lines, table = Path(folder) / "lines.jsonl", Path(folder) / "table.parquet"
        write_lines(lines, lines_gb)
        for filters, longest in (("prose", 1 << 20), ("book", MAX_BOOK_BYTES)):
            ref = FileRef(str(lines), lines.stat().st_size, "jsonl", lines.name, max_bytes=longest)
            met &= measured(ref, filters)
        lines.unlink()
        write_parquet(table, parquet_gb)
        parts = split_file(FileRef(str(table), table.stat().st_size, "parquet", table.name), 128e6)
        print(f"{len(parts)} parts of the parquet file")
        for part in (parts[0], parts[-1]):
            met &= measured(part, "prose")
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())
