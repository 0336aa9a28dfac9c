"""Outputs of build steps: which are garbage, what is done about damaged ones, and by what a file is known."""

import os
import uuid
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from small_corpora import PROSE, Corpus, tree_hash

from lemur_ray.corpus.build import build
from lemur_ray.corpus.destinations.garbage import collect_garbage
from lemur_ray.corpus.destinations.step_files import ThroughBucket
from lemur_ray.corpus.manifest import CorpusError
from lemur_ray.corpus.on_ray import Workers
from lemur_ray.corpus.sources import file_tags
from lemur_ray.corpus.sources.file_refs import FileRef
from lemur_ray.storage.file_system import file_system
from lemur_ray.text.tokenizer import Tokenizer


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
