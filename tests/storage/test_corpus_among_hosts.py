"""A corpus whose sources and rows lie in a bucket: any host can take any step, and the bytes are those of one disk."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.corpus import on_ray
from lemur_ray.corpus.build import build
from lemur_ray.corpus.config import CorpusConfig
from lemur_ray.corpus.destinations import bucket_build
from lemur_ray.corpus.destinations.step_files import BuildGone, ThroughBucket
from lemur_ray.corpus.manifest import CorpusError, read_manifest
from lemur_ray.corpus.steps import stages
from lemur_ray.storage.file_system import file_system
from tests.storage.bucket_server import Service


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "texts"
    for inner in ("a", "a/b", "a-c", ".hidden"):
        (folder / inner).mkdir(parents=True)
        for number in range(6):
            text = f"Document {inner} {number}: " + " ".join(
                f"the word {number * 7 + i} and that of the day" for i in range(60)
            )
            (folder / inner / f"{number}.txt").write_text(text)
    lines = "".join(
        json.dumps({"text": f"line {n} " + "and so on, with the words of the day, " * 12}) + "\n" for n in range(12)
    )  # few enough that no host splits the file, which would number its records in another way
    (folder / "lines.jsonl").write_text(lines)
    return folder


def config(where: str, seq_len: int = 64) -> CorpusConfig:
    return CorpusConfig(source=(f"notes:text:{where}",), seq_len=seq_len, vocab_size=300, part_mb=0.004, heldout_rows=4)


class EveryStepHere(on_ray.Workers):
    """The cluster of one process: what is tested is what steps read and write, not where they run."""

    def __init__(self, workers: int | None, must_see: Path | None = None) -> None:
        super().__init__(0)


@pytest.fixture
def published(google: Service, texts: Path) -> str:
    """The texts in a bucket."""
    fs, there = file_system("gs://bucket/texts")
    for path in texts.rglob("*"):
        if path.is_file():
            fs.put_file(str(path), f"{there}/{path.relative_to(texts).as_posix()}")
    return "gs://bucket/texts"


def rows_in(google: Service, name: str) -> dict[str, bytes]:
    there = google.objects.get  # one object
    fs, root = file_system(f"gs://bucket/{name}")
    found = fs.find(root)
    return {path.removeprefix(root).lstrip("/"): there("bucket", path.partition("/")[2], {}).data for path in found}


def test_hosts_make_a_corpus_through_a_bucket_that_is_byte_for_byte_that_of_a_disk(
    google: Service,
    published: str,
    texts: Path,
    tmp_path: Path,
    lemur_home: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = build(config(str(texts)), tmp_path / "here", workers=0, say=lambda line: None)
    monkeypatch.setattr("lemur_ray.corpus.build.Workers", EveryStepHere)
    said: list[str] = []
    made = build(config(published), "gs://bucket/corpus", say=said.append)
    assert made["counts"] == here["counts"]
    assert (made["sources"], made["heldout"]) == (here["sources"], here["heldout"])
    found = rows_in(google, "corpus")
    for path in (tmp_path / "here").rglob("*"):
        name = path.relative_to(tmp_path / "here").as_posix()
        if path.is_file() and not name.startswith(".") and name != "manifest.json":
            assert found.pop(name) == path.read_bytes(), name
    assert found.pop("manifest.json")
    outputs = {name.split("/")[1] for name in found if name.startswith(".build/")}
    assert not [name for name in found if not name.startswith(".build/")]
    assert outputs == {"clean", "keep", "parts", "sets", "tokenizer", "tokens", "used.json"}
    again = build(config(published), "gs://bucket/corpus", say=said.append)
    assert again == made
    assert said[-1].endswith("used as it is")
    with pytest.raises(CorpusError, match=r"holds another corpus .*--overwrite"):
        build(config(published, seq_len=32), "gs://bucket/corpus", say=said.append)
    assert not list((lemur_home / "copies").glob("scratch-*"))


@pytest.mark.slow
def test_a_build_goes_on_where_it_was_cut_off_from_a_host_with_an_empty_disk(
    google: Service, published: str, lemur_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lemur_ray.corpus.build.Workers", EveryStepHere)
    whole = build(config(published), "gs://bucket/whole", say=lambda line: None)
    google.trouble(match=r"GET .*keep(%2F|/)[0-9a-f]{20}", skip=2, status=403, times=10**6)
    with pytest.raises(CorpusError, match="cannot be written"):
        build(config(published), "gs://bucket/corpus", say=lambda line: None)
    google.troubles.clear()
    shutil.rmtree(lemur_home)
    with pytest.raises(CorpusError, match="another configuration is being made"):
        build(config(published, seq_len=32), "gs://bucket/corpus", say=lambda line: None)
    before = google.asked.copy()
    said: list[str] = []
    made = build(config(published), "gs://bucket/corpus", say=said.append)
    assert said[0].startswith("an earlier build was cut off")
    assert not any("read and filter" in line for line in said), "it was done"
    assert made["sources"] == whole["sources"]
    assert google.asked != before
    rows = {name: data for name, data in rows_in(google, "corpus").items() if name.startswith("rows/")}
    assert rows == {name: data for name, data in rows_in(google, "whole").items() if name.startswith("rows/")}


@pytest.mark.slow
def test_a_changed_source_begins_anew_and_one_that_went_away_ends_it(
    google: Service, published: str, lemur_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lemur_ray.corpus.build.Workers", EveryStepHere)
    google.trouble(match=r"GET .*sets(%2F|/)notes-", status=403, times=10**6)
    with pytest.raises(CorpusError, match="cannot be written"):
        build(config(published), "gs://bucket/corpus", say=lambda line: None)
    google.troubles.clear()
    fs, there = file_system(published)
    fs.pipe_file(f"{there}/a/0.txt", b"Another text of this file, " * 30)
    said: list[str] = []
    build(config(published), "gs://bucket/corpus", say=said.append)
    assert any("read and filter" in line for line in said)
    google.trouble(match=r"GET .*a(%2F|/)1\.txt", status=403, times=10**6)
    with pytest.raises(CorpusError, match="Forbidden"):
        build(config(published), "gs://bucket/other", say=lambda line: None)
    with pytest.raises(CorpusError, match="empty or not there"):
        build(config("gs://bucket/none"), "gs://bucket/third", say=lambda line: None)


@pytest.mark.slow
def test_one_that_was_cut_off_while_it_gave_its_parts_begins_anew_on_the_same_disk(
    google: Service, published: str, lemur_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lemur_ray.corpus.build.Workers", EveryStepHere)
    google.trouble(match=r"POST .*upload", skip=3, status=403, times=10**6)  # the claim and some parts came through
    with pytest.raises(CorpusError, match="cannot be written"):
        build(config(published), "gs://bucket/corpus", say=lambda line: None)
    google.troubles.clear()
    assert build(config(published), "gs://bucket/corpus", say=lambda line: None)["sources"]


def elsewhere(monkeypatch: pytest.MonkeyPatch, folder: Path, what: Callable[[], None]) -> None:
    """As another host does it."""
    with monkeypatch.context() as other:
        other.setenv("LEMUR_HOME", str(folder))
        what()


@pytest.mark.slow
def test_of_two_that_make_the_same_corpus_the_slower_one_finds_it_made(
    google: Service, published: str, lemur_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lemur_ray.corpus.build.Workers", EveryStepHere)
    made: list[Any] = []

    def say(line: str) -> None:
        if line.startswith("tokenizer:") and not made:
            quick = partial(build, config(published), "gs://bucket/corpus", say=lambda line: None)
            elsewhere(monkeypatch, tmp_path / "other", lambda: made.append(quick()))

    assert build(config(published), "gs://bucket/corpus", say=say) == made[0]
    assert not [name for name in rows_in(google, "corpus") if name.endswith(("listing.json", "claim.json"))]


@pytest.mark.slow
def test_one_whose_place_another_corpus_took_commits_nothing_more(
    google: Service, published: str, lemur_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lemur_ray.corpus.build.Workers", EveryStepHere)
    made: list[Any] = []

    def say(line: str) -> None:
        if line.startswith("pack") and not made:
            other = partial(build, config(published, seq_len=32), "gs://bucket/corpus", True, say=lambda line: None)
            elsewhere(monkeypatch, tmp_path / "other", lambda: made.append(other()))

    with pytest.raises(CorpusError, match="is no more: another process has made this corpus, or begun another one"):
        build(config(published), "gs://bucket/corpus", say=say)
    assert read_manifest("gs://bucket/corpus") == made[0]


def test_a_step_that_outlives_its_build_gives_nothing(lemur_home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def step(build: Path, name: str) -> None:
        (build / f"clean/{name}.json").write_text("{}")

    monkeypatch.setitem(stages.NEEDS, step, lambda build, name: iter(()))
    monkeypatch.setitem(stages.GIVES, step, lambda build, name: [build / f"clean/{name}.json"])
    url, work = "memory://outlived/corpus", lemur_home / "work"
    hand, later = ThroughBucket(work, url, "build"), ThroughBucket(work, url, "later")
    (work / "parts").mkdir(parents=True)
    for name in ("build", "later"):
        (work / name).mkdir()
        (work / name / "listing.json").write_text("{}")
    hand.begin()
    hand.runs(step)(name="a")
    assert hand.parts_to_do("clean", ["a", "b"]) == ["b"]
    later.begin()
    with pytest.raises(BuildGone, match="is no more"):
        hand.runs(step)(name="b")
    assert later.parts_to_do("clean", ["a", "b"]) == ["b"], "a finished part is not done again"


@pytest.mark.slow
def test_a_corpus_that_lost_a_file_is_made_again_and_one_whose_maker_was_killed_after_it_is_tidied(
    google: Service, published: str, lemur_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lemur_ray.corpus.build.Workers", EveryStepHere)
    with monkeypatch.context() as killed:
        killed.setattr(bucket_build, "end_builds", lambda url, but="": None)
        made = build(config(published), "gs://bucket/corpus", say=lambda line: None)
    whole = rows_in(google, "corpus")
    assert any(name.endswith("/listing.json") for name in whole)
    fs, there = file_system("gs://bucket/corpus")
    fs.rm_file(f"{there}/rows/notes/00000.tokens")
    said: list[str] = []
    assert build(config(published), "gs://bucket/corpus", say=said.append) == made
    assert "rows/notes/00000.tokens has no bytes" in said[0]
    kept = {name: data for name, data in whole.items() if not name.endswith(("/listing.json", "/claim.json"))}
    assert rows_in(google, "corpus") == kept
    google.objects.put("bucket", "corpus/.build/left/listing.json", b"", {})
    build(config(published), "gs://bucket/corpus", say=said.append)
    assert said[-1].endswith("used as it is")
    assert rows_in(google, "corpus") == kept
