"""Builds after a change: what depends on it is done again, counted by stage, and nothing else."""

from __future__ import annotations

import importlib.metadata
import json
import os
import shutil
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_build import PROSE, tree_hash

from lemur_ray.corpus.build import build
from lemur_ray.corpus.config import CorpusConfig
from lemur_ray.corpus.destinations.garbage import collect_garbage
from lemur_ray.corpus.destinations.step_files import ThroughBucket
from lemur_ray.corpus.manifest import CorpusError
from lemur_ray.corpus.on_ray import Workers
from lemur_ray.corpus.sources import file_tags, stage_keys
from lemur_ray.corpus.sources.file_refs import FileRef
from lemur_ray.corpus.steps import stages
from lemur_ray.outside_data.byte_stream import ReadFailure
from lemur_ray.storage.file_system import file_system
from lemur_ray.text.tokenizer import Tokenizer

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


@pytest.fixture(scope="module")
def first_build(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("first")
    Tokenizer.train([PROSE] * 20, 300).save(home / "tokenizer.json")
    for name in ("first", "second"):
        write_texts(home, name, 6)
    corpus = Corpus(home)
    assert corpus.build() == {"clean": 6, "bands": 6, "tokens": 6, "sets": 2}
    return home


@pytest.fixture
def corpus(first_build: Path, tmp_path: Path) -> Corpus:
    """A copy of a built corpus with its sources, at another path."""
    shutil.copytree(first_build, tmp_path / "copy")
    return Corpus(tmp_path / "copy")


def add_source(corpus: Corpus) -> None:
    write_texts(corpus.home, "third", 4)
    corpus.specs.append({"name": "third", "kind": "text", "uri": str(corpus.home / "third")})


def add_file(corpus: Corpus) -> None:
    text = (corpus.home / "first" / "3.txt").read_text()
    (corpus.home / "first" / "-before the others.txt").write_text(text[::-1] + PROSE)


def edit_file(corpus: Corpus) -> None:
    path = corpus.home / "first" / "0.txt"
    path.write_text(path.read_text().upper())


def touch_files(corpus: Corpus) -> None:
    for path in (corpus.home / "first").iterdir():
        os.utime(path, (1, 1))
    corpus.config = replace(corpus.config, seed=1)


def use_another_tokenizer(corpus: Corpus) -> None:
    Tokenizer.train([PROSE] * 20, 310).save(corpus.home / "tokenizer.json")


def of_second(**changes: Any) -> Callable[[Corpus], None]:
    return lambda corpus: corpus.specs[1].update(changes)


def configured(**changes: Any) -> Callable[[Corpus], None]:
    return lambda corpus: setattr(corpus, "config", replace(corpus.config, **changes))


ONE_SOURCE = {"clean": 3, "bands": 3, "tokens": 3, "sets": 1}
CHANGES: dict[str, tuple[Callable[[Corpus], None], dict[str, int]]] = {
    "another path": (lambda corpus: None, {}),
    "files touched": (touch_files, {}),
    "source added": (add_source, {"clean": 2, "bands": 2, "tokens": 2, "sets": 1}),
    "file added": (add_file, {"clean": 1, "bands": 1, "tokens": 1, "sets": 1}),
    "file edited": (edit_file, {"clean": 1, "bands": 1, "tokens": 1, "sets": 1}),
    "filter of a source": (of_second(filters={"base": "prose", "max_bullets": 0.8}), ONE_SOURCE),
    "licence of a source": (of_second(licence="MIT"), ONE_SOURCE),
    "budget of a source": (of_second(tokens=500), {"sets": 1}),
    "tokenizer": (use_another_tokenizer, {"tokens": 6, "sets": 2}),
    "row length": (configured(seq_len=64), {"sets": 2}),
    "threshold": (configured(near_duplicates=0.9), {}),
    "benchmarks": (configured(decontaminate=True), {"hits": 6}),
}


@pytest.mark.parametrize(("change", "done"), CHANGES.values(), ids=CHANGES)
def test_a_change_redoes_only_what_depends_on_it(
    corpus: Corpus, change: Callable[[Corpus], None], done: dict[str, int]
) -> None:
    change(corpus)
    assert corpus.build() == done
    fresh = Corpus(corpus.home)
    fresh.out, fresh.config, fresh.specs = corpus.home / "fresh", corpus.config, corpus.specs
    fresh.build()
    rows = {path: content for path, content in tree_hash(corpus.out).items() if not path.startswith(".build")}
    assert rows == {path: content for path, content in tree_hash(fresh.out).items() if not path.startswith(".build")}


def test_the_same_command_with_overwrite_reads_changed_files_and_without_it_none(corpus: Corpus) -> None:
    corpus.build()
    add_file(corpus)
    read = corpus.manifest["counts"]["first"]["read"]
    assert corpus.build(overwrite=False) == {}
    assert corpus.manifest["counts"]["first"]["read"] == read
    assert corpus.lines[-1].endswith("used as it is")
    assert corpus.build() == CHANGES["file added"][1]
    assert corpus.manifest["counts"]["first"]["read"] == read + 1
    assert corpus.build() == {}
    shutil.rmtree(corpus.home / "second")
    with pytest.raises(CorpusError, match=r"source second: .* does not exist"):
        corpus.build()
    assert corpus.build(overwrite=False) == {}, "a source that is away costs no corpus"
    assert corpus.lines[-1].endswith("used as it is")


def test_a_setting_changed_back_redoes_the_rows_alone(corpus: Corpus) -> None:
    corpus.specs[0]["filters"] = "none"
    assert corpus.build()["clean"] == 3
    del corpus.specs[0]["filters"]
    assert corpus.build() == {"sets": 1}


@pytest.mark.parametrize("stage", ["clean", "tokens"])
def test_an_upgrade_of_the_rules_uses_no_output_of_the_old_ones(
    corpus: Corpus, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus.build()
    monkeypatch.setitem(stage_keys.VERSIONS, stage, 99)
    assert corpus.build(overwrite=False) == {}, "a complete corpus stays as it is"
    done = corpus.build()
    assert done[stage] == 6
    assert done.get("clean", 0) == (6 if stage == "clean" else 0)


@pytest.mark.parametrize(("library", "stage"), [("pyarrow", "clean"), ("tokenizers", "tokens")])
def test_an_upgrade_of_a_library_uses_no_output_of_the_old_one(
    corpus: Corpus, library: str, stage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus.build()
    version = importlib.metadata.version
    monkeypatch.setattr(importlib.metadata, "version", lambda name: "99" if name == library else version(name))
    (corpus.out / "manifest.json").unlink()
    done = corpus.build()
    assert done[stage] == 6
    assert done.get("clean", 0) == (6 if stage == "clean" else 0)


def test_garbage_is_what_the_committed_corpus_does_not_name(corpus: Corpus) -> None:
    corpus.build()
    before = tree_hash(corpus.out)
    assert collect_garbage(corpus.out) == (0, 0)
    corpus.specs[1]["filters"] = "none"
    corpus.build()
    files, size = collect_garbage(corpus.out)
    assert files > 3 * 6
    assert size > 1000
    assert corpus.build() == {}
    del corpus.specs[1]["filters"]
    assert corpus.build()["clean"] == 3, "what was removed is done again"
    collect_garbage(corpus.out)
    assert tree_hash(corpus.out) == before
    (corpus.out / "manifest.json").unlink()
    left, foreign = corpus.out / ".tokenizer.json.0123456789ab.part", corpus.out / ".notes.part"
    left.touch()
    foreign.touch()
    collect_garbage(corpus.out)
    assert (left.exists(), foreign.exists()) == (False, True)
    assert {path.name for path in (corpus.out / ".build").rglob("*") if path.is_file()} == {"tags.json", "used.json"}
    with pytest.raises(CorpusError, match="else does not exist"):
        collect_garbage(corpus.out / "else")


def test_a_source_that_ends_empty_or_cannot_be_read_leaves_the_parts_of_the_others(corpus: Corpus) -> None:
    bad = corpus.home / "bad"
    bad.mkdir()
    (bad / "short.txt").write_text("x")
    corpus.specs.insert(1, {"name": "bad", "kind": "text", "uri": str(bad)})
    corpus.specs.append({"name": "worse", "kind": "text", "uri": str(bad)})
    with pytest.raises(CorpusError, match=r"source bad: no document is left of 1 .*; source worse: no document"):
        corpus.build()
    assert [line for line in corpus.lines if "parts: " in line] == [
        "first   3 of 3 parts: complete, not done again by the next build",
        f"bad     1 of 1 parts: no document is left of 1 in 1 files (dropped: too_short 1); looked for text files, "
        f".jsonl and .parquet, also compressed, in {bad}",
        "second  3 of 3 parts: complete, not done again by the next build",
        f"worse   1 of 1 parts: no document is left of 1 in 1 files (dropped: too_short 1); looked for text files, "
        f".jsonl and .parquet, also compressed, in {bad}",
    ]
    (bad / "short.txt").write_bytes(b"PAR1 no")
    shutil.move(bad / "short.txt", bad / "broken.parquet")
    with pytest.raises(CorpusError, match="2 of 8 parts cannot be read"):
        corpus.build()
    assert any(line == "worse   0 of 1 parts: 1 parts cannot be read" for line in corpus.lines)
    write_texts(bad, "good", 2)
    (bad / "broken.parquet").unlink()
    corpus.specs.pop()
    assert corpus.build() == {"clean": 1, "bands": 1, "tokens": 1, "sets": 1}


def test_a_part_that_was_left_out_is_built_once_it_can_be_read(corpus: Corpus, monkeypatch: pytest.MonkeyPatch) -> None:
    def read(ref: FileRef) -> Any:
        if ref.path.endswith("first/0.txt"):
            raise ReadFailure(ref.name, "at its beginning", "no answer")
        return read_texts(ref)

    edit_file(corpus)
    corpus.config, corpus.allow_failed, read_texts = replace(corpus.config, decontaminate=True), 1, stages.read_texts
    with monkeypatch.context() as patch:
        patch.setattr(stages, "read_texts", read)
        corpus.build()
    assert len(corpus.manifest["failed"]) == 1
    assert corpus.build(overwrite=False) == {}, "as many parts are missing as are allowed"
    corpus.allow_failed = 0
    assert corpus.build(overwrite=False) == {"clean": 1, "bands": 1, "hits": 1, "tokens": 1, "sets": 1}
    assert "failed" not in corpus.manifest
    assert corpus.manifest["counts"]["first"]["kept"] == 6


@pytest.mark.parametrize("place", ["folder", pytest.param("bucket", marks=pytest.mark.slow)])
def test_a_damaged_output_of_a_step_is_made_again(
    place: str, corpus: Corpus, lemur_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    where, workers, url = str(corpus.home / "first"), 0, f"memory://{uuid.uuid4().hex}"
    fs, root = file_system(url if place == "bucket" else str(corpus.home))
    if place == "bucket":
        fs.put(where, f"{root}/first", recursive=True)
        where, workers = f"{url}/first", 1
        monkeypatch.setattr("lemur_ray.corpus.build.Workers", lambda workers, folder: Workers(0))
    lines: list[str] = []

    def made(name: str, **changes: Any) -> dict[str, Any]:
        config = replace(corpus.config, source=(f"first:text:{where}",), **changes)
        out = f"{url}/{name}" if place == "bucket" else corpus.home / name
        return build(config, out, True, workers=workers, say=lines.append)

    made("damaged")
    outputs = [path for path in fs.find(f"{root}/damaged/.build") if "/sets/" not in path]
    before: dict[str, bytes] = {}
    for suffix in ("ids", "sizes", "about", "parquet", "bands", "bin", "lengths", "examples"):
        path = min(path for path in outputs if path.endswith(f".{suffix}"))
        data = bytearray(before.setdefault(path, fs.cat_file(path)))
        data[len(data) // 2] ^= 1
        fs.pipe_file(path, bytes(data))
    Tokenizer.train([PROSE] * 20, 310).save(corpus.home / "other.json")
    for changes in ({"seq_len": 64}, {"seq_len": 64, "tokenizer": str(corpus.home / "other.json")}):
        expected = made("fresh", **changes)
        assert made("damaged", **changes) == expected
        for entry in expected["sources"]:
            for path in fs.find(f"{root}/fresh/{entry['folder']}"):
                assert fs.cat_file(path.replace("/fresh/", "/damaged/")) == fs.cat_file(path)
    assert any("is damaged: it is made again" in line for line in lines)
    assert [path for path, content in before.items() if fs.cat_file(path) != content] == []


def test_a_bucket_build_fetches_cleaned_parts_anew(tmp_path: Path) -> None:
    url = f"memory://{uuid.uuid4().hex}"
    fs, root = file_system(f"{url}/.build/clean")
    for suffix in ("json", "ids"):
        fs.pipe_file(f"{root}/key.{suffix}", b"whole")
    (tmp_path / "clean").mkdir()
    (tmp_path / "clean" / "key.ids").write_bytes(b"")
    handover = ThroughBucket(tmp_path, url, "name")
    assert handover.parts_to_do("clean", ["key"]) == []
    handover.fetch("clean/key.ids")
    assert (tmp_path / "clean" / "key.ids").read_bytes() == b"whole"


def test_files_with_equal_times_or_versions_have_tags_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_tags, "_HASHED_BYTES", 3)
    refs = [FileRef(f"https://{host}/x", 4, version="1") for host in "ab"]
    for name in "ab":
        (tmp_path / name).write_text(name * 4)
        os.utime(tmp_path / name, (1, 1))
        refs.append(FileRef(str(tmp_path / name), 4))
    for _ in range(2):
        assert len(set(file_tags.file_tags(tmp_path, refs).values())) == 4


def test_examples_of_dropped_documents_hold_no_addresses(corpus: Corpus) -> None:
    (corpus.home / "first" / "short.txt").write_text("Ask jane.roe@mail.org")
    corpus.build()
    shown = (corpus.out / "statistics.json").read_text()
    assert "Ask " in shown
    assert "jane.roe" not in shown


def test_garbage_is_kept_where_the_corpus_cannot_be_read_or_is_reserved(corpus: Corpus) -> None:
    corpus.build()
    (corpus.out / "manifest.json").write_text("{")
    before = tree_hash(corpus.out)
    with pytest.raises(CorpusError, match="cannot be read"):
        collect_garbage(corpus.out)
    assert tree_hash(corpus.out) == before
    url = f"memory://{uuid.uuid4().hex}"
    fs, root = file_system(f"{url}/.build")
    fs.pipe_file(f"{root}/claim.json", b"build")
    with pytest.raises(CorpusError, match="is being built"):
        collect_garbage(url)
    assert fs.exists(f"{root}/claim.json")
