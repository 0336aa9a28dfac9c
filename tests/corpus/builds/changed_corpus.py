"""A corpus of two sources whose settings tests change, and what each build of it writes."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lemur_ray.corpus.build import build
from lemur_ray.corpus.config import CorpusConfig

STAGES = ("clean", "bands", "hits", "near", "tokens", "sets")
QUESTION = "A farmer has three fields of wheat and two of barley, and each gives nine bags; how many bags are there?"


def write_texts(folder: Path, name: str, count: int) -> None:
    (folder / name).mkdir()
    for number in range(count):
        draw = np.random.default_rng([number, *name.encode()])
        words = draw.choice(["the", "of", "and", "harvest"] * 25 + [f"name{i}" for i in range(100)], 120)
        (folder / name / f"{number}.txt").write_text(" ".join([name, *words.tolist()]))


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
        self.config = replace(self.config, sources=str(self.home / "sources.yaml"), **changes)
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
