"""A corpus folder exists when its manifest does; what is missing or foreign is said by name."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from lemur_ray.corpus.manifest import CorpusError, is_complete, is_current, read_manifest, row_folder, write_manifest
from lemur_ray.corpus.rows import RowSetError, RowWriter

MANIFEST = {"tokenizer": "tokenizer.json", "vocab_size": 9, "seq_len": 4, "sources": [{"name": "a"}]}


def test_a_committed_corpus_reads_back(tmp_path: Path) -> None:
    with RowWriter(row_folder(tmp_path, "a"), 4, vocab_size=9) as writer:
        writer.write([np.array([1, 2])])
    assert not is_complete(tmp_path)
    write_manifest(tmp_path, MANIFEST)
    assert is_complete(tmp_path)
    assert read_manifest(tmp_path) == {"version": 1, **MANIFEST}


def test_a_source_without_rows_on_disk_cannot_be_committed(tmp_path: Path) -> None:
    with pytest.raises(RowSetError, match="rows/a is not there"):
        write_manifest(tmp_path, MANIFEST)
    assert not is_complete(tmp_path)


def test_a_corpus_that_is_not_there_or_half_built_is_named(tmp_path: Path) -> None:
    with pytest.raises(CorpusError, match=f"{tmp_path}/none does not exist"):
        read_manifest(tmp_path / "none")
    with pytest.raises(CorpusError, match="half-built"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("content", "message"),
    [("{", "cannot be read"), ("[]", "version 'list'"), ('{"version": 1}', "lacks tokenizer, vocab_size")],
)
def test_a_manifest_that_is_not_ours_is_refused(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(CorpusError, match=message):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("kind", "command"),
    [("code", r"jobs/build_corpus\.py --overwrite --out .* with its sources"), ("chat", r"jobs/instruct\.py")],
)
def test_a_corpus_of_another_version_says_which_command_makes_it_anew(tmp_path: Path, kind: str, command: str) -> None:
    old = {**MANIFEST, "version": 0, "sources": [{"name": "a", "kind": kind}]}
    (tmp_path / "manifest.json").write_text(json.dumps(old))
    with pytest.raises(CorpusError, match=f"has version 0, expected 1: .*{command}"):
        read_manifest(tmp_path)
    assert not is_current(tmp_path)


def test_rows_are_never_made_in_a_bucket() -> None:
    with pytest.raises(CorpusError, match="rows are made on a disk"):
        write_manifest("gs://bucket/corpus", MANIFEST)
