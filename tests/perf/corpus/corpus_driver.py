"""CPU time and memory of the driver for 10,000 parts of a simulated source, without the work of the parts themselves.

Exit code 1 above 1 GB or 5 ms of CPU a part. Listing, keys, the choice of documents and the lists of the shards are
those of a build; outputs of parts are written by this script.

python tests/perf/corpus/corpus_driver.py [PARTS] [DOCUMENTS OF A PART]
"""

from __future__ import annotations

import json
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))

import numpy as np

from lemur_ray.corpus import assembly
from lemur_ray.corpus.config import CorpusConfig
from lemur_ray.corpus.destinations.step_files import SharedFolder
from lemur_ray.corpus.selection import select_documents, write_keep
from lemur_ray.corpus.sources.file_refs import FileRef
from lemur_ray.corpus.sources.folders import Source
from lemur_ray.corpus.sources.listing import write_listing
from lemur_ray.corpus.sources.stage_keys import stage_key
from lemur_ray.corpus.steps import stages

TARGET_MB, TARGET_MS = 1000.0, 5.0
_PART_BYTES = 128_000_000


def write_clean(work: Path, name: str, documents: int, rng: np.random.Generator) -> None:
    """Outputs of a cleaned part that the driver reads."""
    base = work / "clean" / name
    base.with_suffix(".ids").write_bytes(rng.bytes(16 * documents))
    base.with_suffix(".sizes").write_bytes(rng.integers(500, 5000, documents).astype("<i8").tobytes())
    for suffix in (".parquet", ".about", ".examples"):
        base.with_suffix(suffix).write_bytes(b"-")
    stages.commit(base, (".ids", ".sizes"), read=documents, dropped={}, masked={})


def main() -> int:
    parts, documents = (
        (int(word) for word in [*sys.argv[1:], "10000", "100"][:2]) if len(sys.argv) < 3 else map(int, sys.argv[1:3])
    )
    spent = 0.0
    with tempfile.TemporaryDirectory() as folder:
        work, config, rng = Path(folder) / ".build", CorpusConfig(near_duplicates=0.0), np.random.default_rng(0)
        for name in stages.FOLDERS:
            (work / name).mkdir(parents=True)
        files = tuple(
            FileRef(f"gs://bucket/{number:05d}.jsonl.gz", _PART_BYTES, "jsonl", f"{number:05d}.jsonl.gz", version="1")
            for number in range(parts)
        )
        began = time.process_time()
        listing = write_listing(work, [Source("web", "text", files, "files")], float(_PART_BYTES), 0, "build")
        handover = SharedFolder(work, "build")
        assert len(handover.parts_to_do("clean", listing.parts)) == parts
        spent += time.process_time() - began
        for name in listing.parts:
            write_clean(work, name, documents, rng)
        began = time.process_time()
        assert not handover.parts_to_do("clean", listing.parts)
        assert not stages.failed_parts(work, listing.parts)
        clean, _, empty = select_documents(work, listing, config)
        assert not empty
        keep = write_keep(work, clean, parts)
        names = [stage_key("tokens", part, mask, "key") for part, mask in zip(listing.parts, keep, strict=True)]
        handover.parts_to_do("tokens", names)
        spent += time.process_time() - began
        for number, name in enumerate(names):
            count = int(clean.keep[clean.of_part(number)].sum())
            (work / "tokens" / f"{name}.lengths").write_bytes(rng.integers(50, 900, count).astype("<i8").tobytes())
        began = time.process_time()
        shape = {"seq_len": config.seq_len, "pad_id": 0, "vocab_size": 32000}
        sets = assembly.row_sets(work, listing, clean, names, config, shape)
        spent += time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3
    print(
        json.dumps({"parts": parts, "documents": parts * documents, "shards": sum(len(s.keys) for s in sets)}),
        f"{1000 * spent / parts:.2f} ms of CPU a part (at most {TARGET_MS}), {peak:.0f} MB (at most {TARGET_MB:.0f})",
    )
    return int(peak > TARGET_MB or 1000 * spent / parts > TARGET_MS)


if __name__ == "__main__":
    sys.exit(main())
