"""Outputs of the rules of each stage, as recorded for its version: a change of the rules has to raise the version."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

from lemur_ray.corpus.cleaning.minhash import numpy_minima
from lemur_ray.corpus.cleaning.near_duplicates import text_sets
from lemur_ray.corpus.cleaning.shingles import ngram_hashes
from lemur_ray.corpus.packing import pack
from lemur_ray.corpus.sources.stage_keys import VERSIONS
from lemur_ray.corpus.steps import stages

WORDS = [
    "the",
    "of",
    "and",
    "with",
    "Harvest",
    "river,",
    "#",
    "...",
    "\n",
    "\n- ",
    "{",
    "12.5",
    "x" * 30,
    "naïve",
    "a@b.org",
    "cookie",
]


def texts() -> list[str]:
    """300 texts of words drawn with various weights, so that every rule drops some."""
    out = []
    for number in range(300):
        draw = np.random.default_rng(number)
        weights = draw.dirichlet(np.full(len(WORDS), 0.4))
        out.append(" ".join(draw.choice(WORDS, int(draw.integers(5, 400)), p=weights).tolist()))
    return out


def cleaned(folder: Path) -> str:
    """Hash of the documents that pass each filter set, and of the counts."""
    (folder / "records.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in texts()))
    size = (folder / "records.jsonl").stat().st_size
    digest = hashlib.sha256()
    for name in ("parts", "clean"):
        (folder / name).mkdir()
    for kind, filters in (("code", "code"), ("text", "prose"), ("text", "web"), ("text", "book"), ("text", "none")):
        part = {
            "kind": kind,
            "filters": filters,
            "files": [[str(folder / "records.jsonl"), size, "jsonl", "records.jsonl"]],
        }
        (folder / "parts" / f"{filters}.json").write_text(json.dumps(part))
        counts = stages.clean_part(folder, filters)
        assert counts["read"] == 300
        digest.update((folder / "clean" / f"{filters}.ids").read_bytes())
        digest.update(json.dumps([counts["dropped"], counts["masked"]], sort_keys=True).encode())
    return digest.hexdigest()


def minima(folder: Path) -> str:
    hashes, counts = ngram_hashes(texts(), 5)
    offsets = np.concatenate([[0], np.cumsum(counts)]).astype(np.uint64)
    return hashlib.sha256(numpy_minima(hashes, offsets).tobytes()).hexdigest()


def sets(folder: Path) -> str:
    return hashlib.sha256(b"".join(one.tobytes() for one in text_sets(texts()))).hexdigest()


def packing(folder: Path) -> str:
    lengths = np.random.default_rng(0).integers(1, 900, 3000)
    packed = pack(lengths, 256, window=1000)
    arrays = (packed.document, packed.start, packed.length, packed.row)
    return hashlib.sha256(b"".join(array.astype("<i8").tobytes() for array in arrays)).hexdigest()


RECORDED = {
    ("clean", 1): "080524792acb0b5c",
    ("clean", 2): "080524792acb0b5c",
    ("clean", 3): "080524792acb0b5c",
    ("clean", 4): "080524792acb0b5c",
    ("clean", 5): "080524792acb0b5c",
    ("bands", 1): "216992ca038fd075",
    ("near", 1): "10c19864f9ab8104",
    ("pack", 1): "09f6564a4b198f7a",
}
OUTPUTS = {"clean": cleaned, "bands": minima, "near": sets, "pack": packing}


@pytest.mark.parametrize("stage", OUTPUTS)
def test_rules_with_other_outputs_have_another_version(stage: str, tmp_path: Path) -> None:
    version = (stage, VERSIONS[stage])
    assert version in RECORDED, f"record the hash of the outputs of the new version: {OUTPUTS[stage](tmp_path)}"
    assert OUTPUTS[stage](tmp_path)[:16] == RECORDED[version], f"raise VERSIONS[{stage!r}]: its outputs have changed"
