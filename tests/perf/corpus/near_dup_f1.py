"""Macro-F1 of verified near duplicates against the exact similarities of all pairs; exit code 1 below the targets.

python tests/perf/corpus/near_dup_f1.py
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path[:0] = [str(Path(__file__).resolve().parents[3]), str(Path(__file__).resolve().parents[2] / "corpus")]

from near_duplicate_texts import edited_texts, later_copies_by_bands, macro_f1, true_later_copies  # noqa: E402

from lemur_ray.corpus.cleaning.minhash import minhash_name  # noqa: E402

TARGET = 0.99
SETS = ((1100, 900, 0), (1200, 2800, 1), (600, 2400, 2))
"""Originals, edited copies, seed."""


def main() -> int:
    failed = False
    for originals, copies, seed in SETS:
        texts = edited_texts(originals, copies, seed)
        truth = true_later_copies(texts, 0.8)
        began = time.process_time()
        answer = later_copies_by_bands(texts, 0.8)
        spent = time.process_time() - began
        score, false = macro_f1(truth, answer), int((answer & ~truth).sum())
        size = sum(len(text.encode()) for text in texts) / 1e6
        print(
            f"{len(texts):,} texts, {truth.sum():,} later copies: macro-F1 {score:.4f} (at least {TARGET}), {false}"
            f" false ones (0), {size / spent:.1f} MB/s of CPU with {minhash_name()}"
        )
        failed |= score < TARGET or false > 0
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
