"""A whole build on Ray Data: what comes out, that it is the same each time, and what bad input does to it."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
from collections import namedtuple
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import ray
from small_corpora import PROSE, quiet, small_config, texts_in, tree_hash

from lemur_ray.config import DataConfig
from lemur_ray.corpus.build import build
from lemur_ray.corpus.cleaning.filters import drop_rule, mask_personal_data
from lemur_ray.corpus.config import CorpusConfig
from lemur_ray.corpus.manifest import CorpusError, row_folder
from lemur_ray.corpus.on_ray import Workers
from lemur_ray.corpus.rows import RowReader
from lemur_ray.corpus.sources.folders import folder_source
from lemur_ray.corpus.sources.listing import read_listing, write_listing
from lemur_ray.corpus.sources.texts import read_texts
from lemur_ray.corpus.steps.stages import DamagedOutput
from lemur_ray.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def built(small_sources: tuple[str, str], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The small corpus, built in this process."""
    folder = tmp_path_factory.mktemp("built") / "corpus"
    build(small_config(small_sources), folder, workers=0)
    return folder


def test_every_text_that_passes_the_filters_is_in_exactly_one_row_set(
    built: Path, small_sources: tuple[str, str]
) -> None:
    tokenizer = Tokenizer.load(built / "tokenizer.json")
    for spec, name in zip(small_sources, ("code", "text"), strict=True):
        source = folder_source(spec)
        texts = [found.text for ref in source.files for found in read_texts(ref)]
        kept = [mask_personal_data(text)[0] for text in texts if drop_rule(text, source.kind) is None]
        short = [text for text in set(kept) if len(tokenizer.encode(text)) + 2 <= 256]
        rows = texts_in(built, name) + texts_in(built, f"heldout-{name}")
        assert len(short) >= 2
        assert all(rows.count(text) == 1 for text in short)
        tokens = sum(RowReader(row_folder(built, n)).num_tokens for n in (name, f"heldout-{name}"))
        assert tokens == sum(len(tokenizer.encode(text)) + 2 for text in set(kept))


def test_the_manifest_counts_what_is_there(built: Path, small_sources: tuple[str, str]) -> None:
    manifest = build(small_config(small_sources), built, workers=0, say=quiet)
    assert [(source["name"], source["kind"]) for source in manifest["sources"]] == [("code", "code"), ("text", "text")]
    for entry in [*manifest["sources"], *manifest["heldout"]]:
        reader = RowReader(built / entry["folder"])
        reader.verify()
        assert (len(reader), reader.num_tokens) == (entry["rows"], entry["tokens"])
        assert entry["text_bytes"] == reader.index["text_bytes"] > entry["tokens"]
        assert reader.read(np.arange(len(reader))).tokens.max() < manifest["vocab_size"] == 600
    for counts in manifest["counts"].values():
        assert counts["read"] == counts["kept"] + sum(counts["dropped"].values())
    assert manifest["fill"] > 0.98
    assert [entry["name"] for entry in manifest["heldout"]] == ["heldout-code", "heldout-text"]


@pytest.mark.parametrize("workers", [1, 4])
def test_ray_data_with_one_worker_and_with_four_gives_the_same_bytes(
    built: Path, ray_local: str, tmp_path: Path, small_sources: tuple[str, str], workers: int
) -> None:
    build(small_config(small_sources), tmp_path / "corpus", workers=workers, say=quiet)
    assert tree_hash(tmp_path / "corpus") == tree_hash(built)


@pytest.mark.slow
def test_a_step_reserves_its_memory_or_half_of_a_host_that_has_less_and_keeps_to_one_core(
    ray_local: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reserved(table: pa.Table) -> pa.Table:
        memory = float(ray.get_runtime_context().get_assigned_resources().get("memory", 0.0))
        names = ("RAYON_NUM_THREADS", "OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM", "POLARS_MAX_THREADS")
        return pa.table(
            {"memory": [memory], "threads": [[str(pa.cpu_count()), *(os.environ.get(name) for name in names)]]}
        )

    host = ray.cluster_resources()["memory"]
    monkeypatch.setattr("lemur_ray.corpus.on_ray.WAVE", 1)
    for wanted, expected in ((1e8, 1e8), (1e15, host / 2)):
        tables = [pa.table({"task": [0]}), pa.table({"task": [1]})]
        for table in Workers(2).map(tables, reserved, wanted):
            assert table.column("memory").to_pylist() == [pytest.approx(expected, rel=0.01)]
            assert table.column("threads").to_pylist() == [["1", "1", "1", "false", "1"]]


def test_an_error_of_a_step_on_ray_is_the_one_that_it_raised(ray_local: str) -> None:
    def damaged(table: pa.Table) -> pa.Table:
        raise DamagedOutput("clean", "first-0", ".ids")

    with pytest.raises(DamagedOutput) as error:
        list(Workers(1).map([pa.table({"task": [0]})], damaged))
    assert error.value.files == ("clean/first-0.json", "clean/first-0.ids")


def test_a_complete_corpus_of_the_same_configuration_is_used_as_it_is(
    built: Path, small_sources: tuple[str, str]
) -> None:
    lines: list[str] = []
    times = {path: path.stat().st_mtime_ns for path in built.rglob("*.tokens")}
    build(small_config(small_sources), built, workers=0, say=lines.append)
    assert lines == [f"{built} is complete and of this configuration: used as it is"]
    assert times == {path: path.stat().st_mtime_ns for path in built.rglob("*.tokens")}


def test_a_corpus_of_another_version_is_built_anew_by_the_command_its_error_names(
    built: Path, tmp_path: Path, small_sources: tuple[str, str]
) -> None:
    folder = tmp_path / "corpus"
    shutil.copytree(built, folder)
    manifest = json.loads((folder / "manifest.json").read_bytes())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "version": 0}))
    with pytest.raises(CorpusError, match=r"run jobs/build_corpus\.py --overwrite"):
        build(small_config(small_sources), folder, workers=0, say=quiet)
    build(small_config(small_sources), folder, overwrite=True, workers=0, say=quiet)
    assert tree_hash(folder) == tree_hash(built)


def test_a_damaged_corpus_is_built_again_to_the_same_bytes(
    built: Path, tmp_path: Path, small_sources: tuple[str, str]
) -> None:
    shutil.copytree(built, tmp_path / "corpus")
    shard = next((tmp_path / "corpus" / "rows" / "code").glob("*.tokens"))
    shard.write_bytes(shard.read_bytes()[:-100])
    lines: list[str] = []
    build(small_config(small_sources), tmp_path / "corpus", workers=0, say=lines.append)
    assert "is damaged" in lines[0]
    assert tree_hash(tmp_path / "corpus") == tree_hash(built)


def test_a_corpus_with_a_flipped_byte_is_not_used_as_it_is(
    built: Path, tmp_path: Path, small_sources: tuple[str, str]
) -> None:
    shutil.copytree(built, tmp_path / "corpus")
    shard = next((tmp_path / "corpus" / "rows" / "code").glob("*.tokens"))
    shard.write_bytes(shard.read_bytes()[:-1] + b"\xff")
    lines: list[str] = []
    build(small_config(small_sources), tmp_path / "corpus", workers=0, say=lines.append)
    assert "its content differs" in lines[0]
    assert tree_hash(tmp_path / "corpus") == tree_hash(built)


def test_a_corpus_of_another_configuration_is_replaced_only_if_asked_and_what_differs_is_said(
    built: Path, tmp_path: Path, small_sources: tuple[str, str]
) -> None:
    folder, lines = tmp_path / "corpus", list[str]()
    shutil.copytree(built, folder)
    other = small_config(small_sources, vocab_size=500)
    with pytest.raises(CorpusError, match=r"vocab_size: 600 != 500.*--overwrite"):
        build(other, folder, workers=0, say=lines.append)
    assert tree_hash(folder) == tree_hash(built)
    manifest = build(other, folder, workers=0, overwrite=True, say=lines.append)
    assert "vocab_size: 600 != 500" in lines[0]
    assert manifest["vocab_size"] == 500


def test_bad_files_are_counted_under_their_rules_and_lose_nothing_else(
    tmp_path: Path, small_sources: tuple[str, str]
) -> None:
    bad = tmp_path / "bad"
    bad.mkdir()
    (bad / "good.txt").write_text(PROSE * 9)
    (bad / "again.txt").write_text(PROSE.upper() * 9)
    (bad / "latin1.txt").write_bytes(PROSE.encode() * 3 + b"caf\xe9")
    (bad / "nul.txt").write_bytes(PROSE.encode() * 3 + b"\0")
    (bad / "empty.txt").write_bytes(b"")
    (bad / "line.txt").write_bytes(b"x " * 50_000_000)
    (bad / "broken.parquet").write_bytes(b"PAR1 no")
    (bad / "broken.gz").write_bytes(b"no")
    (bad / "lines.jsonl").write_text('{"text": 1}\n{oops\n')
    sources = (*small_sources, f"bad:text:{bad}")
    with pytest.raises(CorpusError, match=r"1 of \d+ parts cannot be read: bad: broken\.parquet"):
        build(small_config(sources), tmp_path / "corpus", workers=0, say=quiet)
    (bad / "broken.parquet").unlink()
    manifest = build(small_config(sources), tmp_path / "corpus", workers=0, say=quiet)
    assert manifest["counts"]["bad"] == {
        "files": 8,
        "read": 9,
        "kept": 1,
        "dropped": {
            "duplicate": 1,
            "invalid_json": 1,
            "invalid_utf8": 1,
            "no_text_field": 1,
            "nul_byte": 1,
            "too_large": 1,
            "too_short": 2,
        },
        "masked": {},
    }


def test_a_source_without_documents_is_an_error_that_says_what_was_dropped(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("x = 1\n")
    (tmp_path / "src" / "b.py").write_bytes(b"\xff\xfe")
    with pytest.raises(
        CorpusError, match=r"source mine: no document is left of 2 in 2 files \(dropped: invalid_utf8 1"
    ):
        build(small_config((f"mine:code:{tmp_path / 'src'}",)), tmp_path / "out", workers=0, say=quiet)
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_corrected_source_is_read_anew_by_the_same_command(tmp_path: Path, small_sources: tuple[str, str]) -> None:
    name, kind, source = small_sources[0].split(":", 2)
    (tmp_path / "src").mkdir()
    config = small_config((f"{name}:{kind}:{tmp_path / 'src'}", small_sources[1]))
    (tmp_path / "src" / "bad.py").write_bytes(b"\xff\xfe")
    with pytest.raises(CorpusError, match="no document is left of 1 in 1 files"):
        build(config, tmp_path / "out", workers=0, say=quiet)
    shutil.copytree(source, tmp_path / "src" / "good")
    said: list[str] = []
    manifest = build(config, tmp_path / "out", workers=0, say=said.append)
    assert manifest["counts"][name]["kept"] > 0
    assert not any("cut off" in line for line in said)


def test_a_build_cut_off_lists_files_anew_once_one_has_changed(tmp_path: Path, small_sources: tuple[str, str]) -> None:
    name, kind, source = small_sources[0].split(":", 2)
    shutil.copytree(source, tmp_path / "src")
    listed = folder_source(f"{name}:{kind}:{tmp_path / 'src'}")
    (tmp_path / "work" / "parts").mkdir(parents=True)
    write_listing(tmp_path / "work", [listed], 1e5)
    assert read_listing(tmp_path / "work", [listed]) is not None
    os.utime(listed.files[0].path, (1, 1))
    assert read_listing(tmp_path / "work", [listed]) is None


def test_of_a_document_in_two_sources_the_first_source_keeps_it(tmp_path: Path) -> None:
    for name, count in (("one", 5), ("two", 8)):
        (tmp_path / name).mkdir()
        for number in range(count):
            (tmp_path / name / f"{number}.txt").write_text(f"Of the number {number} this is said. {PROSE * 5}")
    sources = (f"one:text:{tmp_path / 'one'}", f"two:text:{tmp_path / 'two'}")
    counts = build(small_config(sources, heldout_rows=0), tmp_path / "out", workers=0, say=quiet)["counts"]
    assert (counts["one"]["kept"], counts["two"]["kept"]) == (5, 3)
    assert counts["two"]["dropped"] == {"duplicate": 5}


def test_extra_texts_shape_the_tokenizer_and_nothing_else(
    built: Path, tmp_path: Path, small_sources: tuple[str, str]
) -> None:
    line = "You put the quixotickettle in the xylophonecabinet.\n"
    (tmp_path / "extra.jsonl").write_text('{"text": "go to xylophonecabinet"}\n')
    config = small_config(small_sources, tokenizer_extra=(str(tmp_path / "extra.jsonl"),))
    build(config, tmp_path / "out", extra_texts=[line], workers=0, say=quiet)
    with_extra, without = Tokenizer.load(tmp_path / "out" / "tokenizer.json"), Tokenizer.load(built / "tokenizer.json")
    assert len(with_extra.encode(line)) * 2 < len(without.encode(line))
    assert not any("quixotic" in text for text in texts_in(tmp_path / "out", "text"))


@pytest.mark.slow
def test_more_documents_in_a_row_than_a_gpu_takes_are_reported(
    tmp_path: Path, small_sources: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lemur_ray.corpus.build.DataConfig", lambda: DataConfig(max_documents=1))
    lines: list[str] = []
    build(small_config(small_sources), tmp_path / "out", workers=0, say=lines.append)
    assert any("a run there needs --data.max-documents" in line for line in lines)


def test_two_sources_of_one_name_are_refused(tmp_path: Path, small_sources: tuple[str, str]) -> None:
    with pytest.raises(CorpusError, match="a name of its own"):
        build(small_config((small_sources[0], small_sources[0])), tmp_path / "out", workers=0, say=quiet)


def test_a_folder_that_cannot_be_written_is_an_error_that_names_it(
    tmp_path: Path, small_sources: tuple[str, str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(CorpusError, match=f"{tmp_path}/file/corpus cannot be written"):
        build(small_config(small_sources), tmp_path / "file" / "corpus", workers=0, say=quiet)


def test_too_little_disk_is_said_before_anything_is_written(
    tmp_path: Path, small_sources: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage(10**9, 10**9, 1000))
    with pytest.raises(CorpusError, match="GB of disk are free"):
        build(small_config(small_sources), tmp_path / "out", workers=0, say=quiet)


@pytest.mark.parametrize("field", ["embedded_mb", "seq_len", "tokenizer_extra_share"])
def test_a_field_out_of_range_is_an_error_that_names_it(field: str) -> None:
    values: dict[str, Any] = {field: -1}
    with pytest.raises(ValueError, match=f"{field} -1: expected"):
        CorpusConfig(**values)


def test_a_vocabulary_that_cannot_hold_the_bytes_is_refused_before_anything_is_read() -> None:
    smallest = Tokenizer.bytes_only().vocab_size
    assert CorpusConfig(vocab_size=smallest).vocab_size == smallest
    with pytest.raises(ValueError, match=f"vocab_size 10: expected {smallest} to"):
        CorpusConfig(vocab_size=10)


def test_a_given_tokenizer_is_used_as_it_is(built: Path, small_sources: tuple[str, str], tmp_path: Path) -> None:
    theirs = Tokenizer.train([PROSE] * 20, 300)
    theirs.save(tmp_path / "tokenizer.json")
    config = small_config(small_sources, tokenizer=str(tmp_path / "tokenizer.json"))
    manifest = build(config, tmp_path / "corpus", workers=0, say=quiet)
    assert manifest["vocab_size"] == theirs.vocab_size
    assert Tokenizer.load(tmp_path / "corpus" / "tokenizer.json").is_same(theirs)
    with pytest.raises(CorpusError, match=r"--tokenizer: no tokenizer at .*nowhere"):
        build(dataclasses.replace(config, tokenizer="/nowhere"), tmp_path / "other", workers=0, say=quiet)
    assert not (tmp_path / "other").exists()
