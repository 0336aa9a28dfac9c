"""Small corpora: their settings and texts, what a build of them holds, and one whose settings tests change."""

import dataclasses
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lemur_ray.corpus.build import build
from lemur_ray.corpus.config import CorpusConfig
from lemur_ray.corpus.manifest import row_folder
from lemur_ray.corpus.rows import RowReader
from lemur_ray.text.tokenizer import Tokenizer

STAGES = ("clean", "bands", "hits", "near", "tokens", "sets")
PROSE = "The package keeps a list of all the files that it has written and of the time of each of them. "
QUESTION = "A farmer has three fields of wheat and two of barley, and each gives nine bags; how many bags are there?"


def write_texts(folder: Path, name: str, count: int) -> None:
    (folder / name).mkdir()
    for number in range(count):
        draw = np.random.default_rng([number, *name.encode()])
        words = draw.choice(["the", "of", "and", "harvest"] * 25 + [f"name{i}" for i in range(100)], 120)
        (folder / name / f"{number}.txt").write_text(" ".join([name, *words.tolist()]))


def tree_hash(folder: Path) -> dict[str, str]:
    """Content hash of every file of a corpus but its lock, by relative path."""
    files = (path for path in folder.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def texts_in(folder: Path, name: str) -> list[str]:
    """Decoded pieces of a row set."""
    reader, tokenizer = RowReader(row_folder(folder, name)), Tokenizer.load(folder / "tokenizer.json")
    packed = reader.read(np.arange(len(reader)))
    pieces = []
    for tokens, segments in zip(packed.tokens, packed.segment_ids, strict=True):
        pieces += [tokenizer.decode(tokens[segments == number].tolist()) for number in range(1, segments.max() + 1)]
    return pieces


def small_config(sources: tuple[str, ...], **changes: Any) -> CorpusConfig:
    config = CorpusConfig(
        source=sources, seq_len=256, vocab_size=600, tokenizer_sample_mb=0.3, heldout_rows=4, part_mb=0.1
    )
    return dataclasses.replace(config, **changes)


def quiet(line: str) -> None:
    pass


class Corpus:
    """A corpus of two sources of three parts each, and the number of outputs that its latest build wrote by stage."""

    def __init__(self, home: Path) -> None:
        self.home, self.out = home, home / "corpus"
        self.specs: list[dict[str, Any]] = [
            {"name": name, "kind": "text", "uri": str(home / name)} for name in ("first", "second")
        ]
        self.config = CorpusConfig(
            tokenizer=str(home / "tokenizer.json"), seq_len=128, heldout_rows=0, part_mb=0.0025, near_duplicates=0.8
        )
        self.lines: list[str] = []
        self.allow_failed = 0

    def build(self, overwrite: bool = True, **changes: Any) -> dict[str, int]:
        self.config = dataclasses.replace(self.config, sources=str(self.home / "sources.yaml"), **changes)
        (self.home / "sources.yaml").write_text(json.dumps(self.specs))
        before = self._written()
        self.lines.clear()
        self.manifest = build(
            self.config, self.out, overwrite, workers=0, benchmarks={"farm": [QUESTION]}, say=self.lines.append,
            allow_failed=self.allow_failed,
        )  # fmt: skip
        after = self._written()
        done = {
            stage: sum(before.get(path) != at for path, at in after.items() if path[0] == stage) for stage in STAGES
        }
        return {stage: count for stage, count in done.items() if count}

    def _written(self) -> Mapping[tuple[str, str], tuple[int, int]]:
        """Inode and time of each commit file: the inode of a removed file may be that of the next one."""
        commits = [(path, path.stat()) for path in (self.out / ".build").glob("*/*.json")]
        return {(path.parent.name, path.stem): (about.st_ino, about.st_mtime_ns) for path, about in commits}
