"""Documents of rows, and the removal of documents: only shards that hold them are written again."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import uuid
from collections import defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_corpora import quiet, tree_hash

from lemur_ray.corpus import assembly
from lemur_ray.corpus.build import build
from lemur_ray.corpus.config import CorpusConfig
from lemur_ray.corpus.manifest import CorpusError, read_manifest
from lemur_ray.corpus.provenance.lookup import documents_of_rows, parse_row
from lemur_ray.corpus.provenance.removal import Removal, remove_documents
from lemur_ray.corpus.rows import RowReader
from lemur_ray.storage.file_system import file_system
from lemur_ray.text.tokenizer import Tokenizer


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Records with licences and origins, in several shards a source."""
    home = tmp_path_factory.mktemp("provenance")
    topics = sorted(importlib.import_module("pydoc_data.topics").topics.items())
    for name, of_source in (("python", topics[:40]), ("language", topics[40:])):
        lines = [
            json.dumps({"text": text, "licence": ["MIT", "PSF-2.0", "MIT, GPL-3.0"][i % 3], "url": f"site/{topic}"})
            for i, (topic, text) in enumerate(of_source)
        ]
        (home / f"{name}.jsonl").write_text("\n".join(lines))
    config = CorpusConfig(
        source=tuple(f"{name}:text:{home}/{name}.jsonl" for name in ("python", "language")), seq_len=128,
        vocab_size=400, heldout_rows=4,
    )  # fmt: skip
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(assembly, "WINDOW", 50)
        patch.setattr(assembly, "SHARD_BYTES", 2 * 100 * 128)
        build(config, home / "corpus", workers=0, say=quiet)
    return home / "corpus"


def texts_by_id(corpus: Path) -> dict[str, str]:
    """Text of every document, joined from its pieces in all row sets."""
    tokenizer, pieces = Tokenizer.load(corpus / "tokenizer.json"), defaultdict(list)
    manifest = read_manifest(corpus)
    for entry in (*manifest["sources"], *manifest["heldout"]):
        reader = RowReader(corpus / entry["folder"])
        tokens = reader.read(np.arange(len(reader))).tokens
        for row, documents in enumerate(documents_of_rows(corpus, entry["name"], range(len(reader)))):
            for one in documents:
                pieces[one.id].append(tokens[row, one.begin : one.end])
    return {id: "".join(sorted(tokenizer.decode(piece.tolist()) for piece in ones)) for id, ones in pieces.items()}


def test_every_row_names_the_documents_that_it_holds(corpus: Path) -> None:
    records = {}
    for name in ("python", "language"):
        for line in (corpus.parent / f"{name}.jsonl").read_text().splitlines():
            record = json.loads(line)
            records[record["url"]] = record
    seen = set()
    for entry in read_manifest(corpus)["sources"]:
        reader = RowReader(corpus / entry["folder"])
        tokenizer = Tokenizer.load(corpus / "tokenizer.json")
        tokens = reader.read(np.arange(len(reader))).tokens
        for row, documents in enumerate(documents_of_rows(corpus, entry["name"], range(len(reader)))):
            assert [one.begin for one in documents] == [0, *(one.end for one in documents[:-1])]
            for one in documents:
                record = records[one.origin]
                assert one.licence == record["licence"]
                assert one.path.startswith(f"{entry['name']}.jsonl:")
                assert tokenizer.decode(tokens[row, one.begin : one.end].tolist()).strip("\ufffd") in record["text"]
                seen.add(one.id)
    assert len(seen) == sum(entry["documents"] for entry in read_manifest(corpus)["sources"])
    with pytest.raises(CorpusError, match=r"has no row set 'other', expected one of python, language, heldout-python"):
        documents_of_rows(corpus, "other", [0])
    with pytest.raises(IndexError, match="it has rows 0 to"):
        documents_of_rows(corpus, "python", [10**6])


def test_rows_do_not_depend_on_the_size_of_shards(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(corpus, tmp_path / "one")
    manifest = read_manifest(corpus)
    (tmp_path / "one" / "manifest.json").unlink()
    monkeypatch.setattr(assembly, "WINDOW", 50)
    fields = ("source", "seq_len", "vocab_size", "heldout_rows")
    config = CorpusConfig(**{name: manifest["config"][name] for name in fields})
    again = build(config, tmp_path / "one", workers=0, say=quiet)
    for entry in (*again["sources"], *again["heldout"]):
        few, many = RowReader(tmp_path / "one" / entry["folder"]), RowReader(corpus / entry["folder"])
        assert len(few.index["shards"]) == 1
        assert len(few) == len(many)
        rows = np.arange(len(few))
        for one, other in zip(few.read(rows).as_dict().values(), many.read(rows).as_dict().values(), strict=True):
            np.testing.assert_array_equal(one, other)
        assert documents_of_rows(tmp_path / "one", entry["name"], rows.tolist()) == documents_of_rows(
            corpus, entry["name"], rows.tolist()
        )
    assert len(RowReader(corpus / "rows/language").index["shards"]) > 2


def test_removed_documents_are_gone_and_untouched_shards_are_the_same_files(corpus: Path, tmp_path: Path) -> None:
    before, texts = tree_hash(corpus), texts_by_id(corpus)
    first = documents_of_rows(corpus, "python", [0])[0][0]
    manifest = remove_documents(corpus, tmp_path / "out", Removal(ids=frozenset([first.id])), quiet)
    assert manifest["removed"] == 1
    assert texts_by_id(tmp_path / "out") == {id: text for id, text in texts.items() if id != first.id}
    shards = {path.relative_to(corpus) for path in corpus.glob("rows/*/*.tokens")}
    written = [path for path in shards if not os.path.samefile(corpus / path, tmp_path / "out" / path)]
    assert len(written) == 1
    assert len(shards) > 6
    assert manifest["counts"]["python"]["dropped"]["removed"] == 1
    statistics = json.loads((tmp_path / "out" / "statistics.json").read_bytes())
    for column in ("languages", "licences"):
        documents, tokens = np.array(list(statistics[column].values())).sum(axis=0)
        assert documents == sum(entry["documents"] for entry in manifest["sources"])
        assert tokens >= sum(entry["tokens"] for entry in manifest["sources"])
    for entry in (*manifest["sources"], *manifest["heldout"]):
        reader = RowReader(tmp_path / "out" / entry["folder"])
        reader.verify()
        assert (len(reader), reader.num_tokens) == (entry["rows"], entry["tokens"])
    assert tree_hash(corpus) == before, "the old version stays"
    again = remove_documents(tmp_path / "out", tmp_path / "two", Removal(origins=frozenset(["site/with"])), quiet)
    assert again["removed"] == 2
    assert len(again["config"]["removed"]) == 2


def test_licences_and_origins_are_removed_wherever_they_are(corpus: Path, tmp_path: Path) -> None:
    (tmp_path / "remove.yaml").write_text("licences: [GPL-3.0]\norigins: ['site/w*', 'python.jsonl:3']\n")
    manifest = remove_documents(corpus, tmp_path / "out", Removal.read(str(tmp_path / "remove.yaml")), quiet)
    left = []
    for entry in (*manifest["sources"], *manifest["heldout"]):
        of_set = documents_of_rows(tmp_path / "out", entry["name"], range(entry["rows"]))
        left += [one for documents in of_set for one in documents]
    assert left
    assert not [one for one in left if "GPL" in one.licence or one.origin.startswith("site/w")]
    assert not [one for one in left if one.path == "python.jsonl:3"]


@pytest.mark.parametrize(
    ("removal", "message"),
    [
        (Removal(ids=frozenset(["0" * 32])), "has no document with one of these ids"),
        (Removal(licences=frozenset(["MIT", "PSF-2.0"])), "no document of .* would be left"),
    ],
)
def test_a_removal_of_nothing_or_of_everything_is_refused(
    corpus: Path, tmp_path: Path, removal: Removal, message: str
) -> None:
    with pytest.raises(CorpusError, match=message):
        remove_documents(corpus, tmp_path / "out", removal, quiet)
    assert not (tmp_path / "out" / "manifest.json").exists()


def test_a_removal_that_is_cut_off_is_finished_by_the_same_command(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    removal = Removal(licences=frozenset(["GPL-3.0"]))
    remove_documents(corpus, tmp_path / "whole", removal, quiet)
    rename, calls = os.replace, []

    def replace(*paths: Any) -> None:
        calls.append(paths)
        if len(calls) == 7:
            raise OSError(28, "No space left on device")
        rename(*paths)

    with monkeypatch.context() as full:
        full.setattr(os, "replace", replace)
        with pytest.raises(OSError, match="No space left"):
            remove_documents(corpus, tmp_path / "out", removal, quiet)
    assert not (tmp_path / "out" / "manifest.json").exists()
    remove_documents(corpus, tmp_path / "out", removal, quiet)
    assert tree_hash(tmp_path / "out") == tree_hash(tmp_path / "whole")
    with pytest.raises(CorpusError, match="holds a corpus: choose another --out"):
        remove_documents(corpus, tmp_path / "out", removal, quiet)


def test_rows_of_a_bucket_are_looked_up_and_removed_there(corpus: Path, tmp_path: Path, lemur_home: Path) -> None:
    url = f"memory://{uuid.uuid4().hex}"
    fs, root = file_system(f"{url}/corpus")
    for path in corpus.rglob("*"):
        if path.is_file() and ".build" not in path.parts:
            fs.put_file(str(path), f"{root}/{path.relative_to(corpus).as_posix()}")
    assert documents_of_rows(f"{url}/corpus", "python", [0, 2]) == documents_of_rows(corpus, "python", [0, 2])
    removal = Removal(licences=frozenset(["GPL-3.0"]))
    remove_documents(corpus, tmp_path / "out", removal, quiet)
    remove_documents(f"{url}/corpus", f"{url}/out", removal, quiet)
    fs, root = file_system(f"{url}/out")
    there = {path.removeprefix(root).lstrip("/"): fs.cat_file(path) for path in fs.find(root)}
    here = {
        str(path.relative_to(tmp_path / "out")): path.read_bytes()
        for path in (tmp_path / "out").rglob("*")
        if path.is_file()
    }
    assert there == here
    with pytest.raises(CorpusError, match="expected two folders, or two addresses in buckets"):
        remove_documents(corpus, f"{url}/third", removal, quiet)


def test_a_row_is_named_by_source_and_number() -> None:
    assert parse_row("python:17") == ("python", 17)
    for text in ("python", ":1", "python:", "python:-1", "python:x"):
        with pytest.raises(CorpusError, match="expected SOURCE:NUMBER"):
            parse_row(text)


def test_a_corpus_of_an_earlier_release_names_the_command_that_rebuilds_it(corpus: Path, tmp_path: Path) -> None:
    shutil.copytree(corpus, tmp_path / "old")
    path = tmp_path / "old" / "rows" / "python" / "rows.json"
    index = json.loads(path.read_bytes())
    for shard in index["shards"]:
        del shard["files"]["numbers"], shard["files"]["documents"]
    path.write_text(json.dumps(index))
    assert len(RowReader(path.parent)) > 0
    with pytest.raises(CorpusError, match=r"does not record the documents of its rows: run jobs/build_corpus\.py"):
        documents_of_rows(tmp_path / "old", "python", [0])


def test_a_removal_by_file_reports_what_matches_nothing(corpus: Path, tmp_path: Path) -> None:
    first = documents_of_rows(corpus, "language", [0])[0][0]
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "statistics.json").write_text("of an earlier corpus")
    lines: list[str] = []
    origins = frozenset(["python.jsonl", "site/[a-z]*", "else"])
    removal, unmatched = Removal(frozenset([first.id.upper()]), origins, frozenset(["gpl-3.0"])), set[str]()
    manifest = remove_documents(corpus, tmp_path / "out", removal, lines.append, unmatched)
    assert [entry["name"] for entry in manifest["sources"]] == ["language"]
    assert unmatched == {"else", "site/[a-z]*"}
    assert "no document has the id, origin or licence else" in lines
    of_set = documents_of_rows(tmp_path / "out", "language", range(manifest["sources"][0]["rows"]))
    left = [one for documents in of_set for one in documents]
    assert left
    assert not [one for one in left if "GPL" in one.licence or one.id == first.id]
    assert set(json.loads((tmp_path / "out" / "statistics.json").read_bytes())["licences"]) == {
        one.licence for one in left
    }, "of the new version, not of an earlier corpus there"
