"""A corpus in a bucket: built there, read on any host, also by processes that were not told of the service."""

import errno
import json
import pickle
import shutil
import uuid
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest

from lemur_ray.corpus.build import build
from lemur_ray.corpus.config import CorpusConfig
from lemur_ray.corpus.destinations.bucket_build import BucketCorpus
from lemur_ray.corpus.manifest import CorpusError, is_complete, read_manifest
from lemur_ray.corpus.provenance.removal import Removal, remove_documents
from lemur_ray.plan.fetch import PlanReader
from lemur_ray.plan.plan import Plan, PlanSource
from lemur_ray.storage.file_system import file_system
from tests.storage.bucket_server import Service


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(40):
        text = f"Document {number}: " + " ".join(f"the word {number * 7 + i} and that of the day" for i in range(60))
        (folder / f"{number}.txt").write_text(text)
    return folder


def config(texts: Path, seq_len: int = 64) -> CorpusConfig:
    return CorpusConfig(source=(f"notes:text:{texts}",), seq_len=seq_len, vocab_size=300)


@pytest.mark.parametrize("kind", ["gs", "s3"])
def test_a_corpus_in_a_bucket_is_that_on_a_disk(
    kind: str, texts: Path, tmp_path: Path, lemur_home: Path, request: pytest.FixtureRequest
) -> None:
    if kind == "gs":
        request.getfixturevalue("google")
    url = "gs://bucket/corpus" if kind == "gs" else f"{request.getfixturevalue('amazon')}/corpus"
    assert not is_complete(url)
    with pytest.raises(CorpusError, match=r"is not there .*build_corpus\.py --out"):
        read_manifest(url)
    here = build(config(texts), tmp_path / "here", workers=0, say=lambda line: None)
    made = build(config(texts), url, workers=0, say=lambda line: None)
    assert made["sources"] == here["sources"] == read_manifest(url)["sources"]
    assert not list((lemur_home / "copies").glob("making-*/.build")), "texts of the sources stay in no hidden place"
    fs, there = file_system(url)
    for path in (tmp_path / "here").rglob("*"):
        name = path.relative_to(tmp_path / "here")
        if path.is_file() and not any(part.startswith(".") for part in name.parts):
            assert fs.cat_file(f"{there}/{name}") == path.read_bytes()
    assert build(config(texts), url, workers=0, say=lambda line: None)["sources"] == made["sources"]
    with pytest.raises(CorpusError, match=r"holds another corpus .*--overwrite"):
        build(config(texts, seq_len=32), url, workers=0, say=lambda line: None)


def test_a_removal_reads_a_bucket_of_one_service_and_writes_to_another(
    texts: Path, google: Service, amazon: str, lemur_home: Path
) -> None:
    corpus = "gs://bucket/corpus"
    build(config(texts), corpus, workers=0, say=lambda line: None)
    removal = Removal(origins=frozenset(["3.txt", "17.txt"]))
    contents = []
    for out in ("gs://bucket/out", f"{amazon}/out"):
        manifest = remove_documents(corpus, out, removal, lambda line: None)
        assert manifest["removed"] == 2
        fs, root = file_system(out)
        contents.append({path.removeprefix(root): fs.cat_file(path) for path in fs.find(root)})
    assert contents[0] == contents[1]
    assert contents[0]["/manifest.json"]


def test_what_is_copied_to_where_another_corpus_is_being_made_is_refused(
    google: Service, texts: Path, lemur_home: Path
) -> None:
    BucketCorpus("gs://bucket/corpus").claim("of another", False)
    with pytest.raises(CorpusError, match="another configuration is being made at gs://bucket/corpus"):
        build(config(texts), "gs://bucket/corpus", workers=0, say=lambda line: None)
    build(config(texts), "gs://bucket/corpus", True, workers=0, say=lambda line: None)
    fs, there = file_system("gs://bucket/corpus")
    assert not [path for path in fs.find(there) if ".build" in path]


def test_a_reader_that_travels_fetches_on_the_host_where_it_arrives(
    google: Service, texts: Path, lemur_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = build(config(texts), "gs://bucket/corpus", workers=0, say=lambda line: None)
    rows = manifest["sources"][0]["rows"]
    plan = Plan((PlanSource("notes", "text", rows, 1.0),), num_rows=rows, seed=0)
    reader = PlanReader(plan, "gs://bucket/corpus")
    wanted = np.arange(min(4, rows))
    before = reader.fetch(wanted)
    sent = pickle.dumps(reader)
    monkeypatch.delenv("STORAGE_EMULATOR_HOST")
    shutil.rmtree(lemur_home)
    after = pickle.loads(sent).fetch(wanted)
    np.testing.assert_array_equal(after["tokens"], before["tokens"])


def test_a_corpus_that_could_not_be_made_again_is_not_taken_for_the_new_one(
    texts: Path, lemur_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"memory://{uuid.uuid4().hex}/corpus"
    made = build(config(texts), url, workers=0, say=lambda line: None)
    shutil.copy(texts / "0.txt", texts / "new.txt")
    with monkeypatch.context() as full:
        full.setattr("lemur_ray.corpus.build.write_keep", Mock(side_effect=OSError(errno.ENOSPC, "no space")))
        with pytest.raises(CorpusError, match="the disk is full"):
            build(config(texts), url, True, workers=0, say=lambda line: None)
    assert read_manifest(url) == made, "until the new one is there, the old one stays"
    assert build(config(texts), url, True, workers=0, say=lambda line: None)["counts"]["notes"]["read"] == 41


def of_another_version(url: str) -> None:
    fs, there = file_system(f"{url}/manifest.json")
    fs.pipe_file(there, json.dumps({**json.loads(fs.cat_file(there)), "version": 0}).encode())


def test_a_corpus_of_another_format_version_does_not_count_and_is_replaced_where_it_may_be(
    texts: Path, lemur_home: Path
) -> None:
    url = f"memory://{uuid.uuid4().hex}/corpus"
    made = build(config(texts), url, workers=0, say=lambda line: None)
    of_another_version(url)
    there = BucketCorpus(url)
    assert there.made_meanwhile(made["config"]) is None
    with pytest.raises(CorpusError, match=r"has version 0, expected 1: .*--overwrite --out memory://"):
        there.reusable(made["config"], False, print)
    with pytest.raises(CorpusError, match="has version 0, expected 1"):
        build(config(texts), url, workers=0, say=lambda line: None)
    fs, root = file_system(url)
    fs.pipe_file(f"{root}/.build/{made['build']}-x/listing.json", b"of the older version")
    assert there.reusable(made["config"], True, lambda line: None) is None
    assert not [path for path in fs.find(root) if path.endswith(("listing.json", "manifest.json"))]
    assert build(config(texts), url, workers=0, say=lambda line: None)["sources"] == made["sources"]
    of_another_version(url)
    assert build(config(texts), url, True, workers=0, say=lambda line: None)["sources"] == made["sources"]
    assert read_manifest(url)["sources"] == made["sources"]


def test_what_stands_in_the_way_of_a_corpus_is_said_before_it_is_made_and_one_that_is_there_is_not_made(
    google: Service, texts: Path, lemur_home: Path
) -> None:
    build(config(texts), "gs://bucket/corpus", workers=0, say=lambda line: None)
    said: list[str] = []
    for overwrite, url in ((False, "gs://bucket/corpus"), (True, "gs://absent/corpus")):
        with pytest.raises(CorpusError, match=r"holds another corpus .*--overwrite|there is no such bucket: make it"):
            build(config(texts, seq_len=32), url, overwrite, workers=0, say=said.append)
    BucketCorpus("gs://bucket/other").claim("of another", False)
    with pytest.raises(CorpusError, match="another configuration is being made at gs://bucket/other"):
        build(config(texts), "gs://bucket/other", workers=0, say=said.append)
    google.trouble(match="POST .*upload", status=403, times=10**6)
    with pytest.raises(CorpusError, match="these credentials may not do that: give them the right to read and write"):
        build(config(texts), "gs://bucket/third", workers=0, say=said.append)
    shutil.rmtree(lemur_home)  # another host has nothing of it, and a bucket that may only be read is enough
    build(config(texts), "gs://bucket/corpus", workers=0, say=said.append)
    assert said == ["gs://bucket/corpus is complete and of this configuration: used as it is"]
    google.trouble(match="GET .*manifest", status=403, times=10**6)
    with pytest.raises(CorpusError, match=r"gs://bucket/corpus cannot be read: .*answered 403"):
        build(config(texts), "gs://bucket/corpus", workers=0, say=said.append)
