"""Builds after a change: what depends on it is done again, counted by stage, and nothing else."""

from __future__ import annotations

import importlib.metadata
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from small_corpora import PROSE, Corpus, tree_hash, write_texts

from lemur_ray.corpus.manifest import CorpusError
from lemur_ray.corpus.sources import stage_keys
from lemur_ray.corpus.sources.file_refs import FileRef
from lemur_ray.corpus.steps import stages
from lemur_ray.outside_data.byte_stream import ReadFailure
from lemur_ray.text.tokenizer import Tokenizer


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


def test_examples_of_dropped_documents_hold_no_addresses(corpus: Corpus) -> None:
    (corpus.home / "first" / "short.txt").write_text("Ask jane.roe@mail.org")
    corpus.build()
    shown = (corpus.out / "statistics.json").read_text()
    assert "Ask " in shown
    assert "jane.roe" not in shown
