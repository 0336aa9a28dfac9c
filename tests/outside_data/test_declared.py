"""What benchmarks and the catalogue declare: names, one meaning a file, what lies in a folder that somebody brought."""

from __future__ import annotations

import csv
import gzip
import json
import re
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from envs.outside_data import SOURCES, required
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.benchmarks.data_sets import data_sets, select_data_sets
from lemur_ray.benchmarks.discovery import find
from lemur_ray.benchmarks.rows import read_cells, read_rows, read_text
from lemur_ray.outside_data.catalogue import TRAINING
from lemur_ray.outside_data.checking import check, missing
from lemur_ray.outside_data.listing import check_sets, list_sets
from lemur_ray.outside_data.source import DataSet

REPORTED: list[str] = []
SETS = data_sets(REPORTED.append)


def test_every_set_of_a_benchmark_is_found_by_its_name_and_its_family() -> None:
    assert not REPORTED
    assert {one.name for one in select_data_sets(["mint"], SETS)} == {
        name for name in SOURCES if name.startswith("mint/")
    }
    assert [one.name for one in select_data_sets(["intercode/sql", "intercode/sql"], SETS)] == ["intercode/sql"]
    of_benchmarks = {one.name for one in select_data_sets(["benchmarks"], SETS)}
    assert {"mint/gsm8k", "spider", "mmlu"} <= of_benchmarks
    assert "oasst1" not in of_benchmarks
    (file,) = select_data_sets(["intercode/ctf/ic_ctf.json.gz"], SETS)
    assert [source.path for source in file.sources] == ["intercode/ctf/ic_ctf.json.gz"]
    with pytest.raises(ValueError, match="did you mean 'openorca'"):
        select_data_sets(["openorka"], SETS)


def put_rows(data: Path, family: str, brought: Path) -> None:
    """Rows that somebody brought, in the form and in the places that are fetched."""
    for source in {source.path: source for one in select_data_sets([family], SETS) for source in one.sources}.values():
        place = data / source.path
        place.parent.mkdir(parents=True, exist_ok=True)
        if place.suffix == ".parquet" and family == "mmlu":
            split = place.name.partition("-")[0]
            cells = [
                ("abstract_algebra", *row)
                for row in read_cells(brought / f"mmlu/{split}/abstract_algebra_{split}.csv.gz")
            ]
            rows = [{"subject": c[0], "question": c[1], "choices": c[2:6], "answer": "ABCD".index(c[6])} for c in cells]
        elif place.suffix == ".parquet":
            name = "mbpp" if family == "mbpp" else "test" if "test" in place.name else "train_first100"
            rows = list(read_rows(brought / f"{family}/{name}.jsonl.gz"))
        else:
            folder = {".txt": "bbh_cot_prompts"}.get(place.suffix, family)
            text = read_text(next((brought / folder).glob(f"{place.name.partition('.')[0]}.*")))
            if place.suffix == ".json":
                text = json.dumps({"examples": [json.loads(line) for line in text.splitlines()]})
            place.write_bytes(gzip.compress(text.encode()) if place.suffix == ".gz" else text.encode())
            continue
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), place)


@pytest.mark.parametrize("family", ["bbh", "gsm8k", "humaneval", "mbpp", "mmlu"])
def test_what_is_fetched_lies_where_its_benchmark_reads_it(family: str, data_dir: Path, tmp_path: Path) -> None:
    put_rows(tmp_path, family, data_dir / "bench")
    for name in (one.name for one in select_data_sets([family], SETS)):
        benchmark = find(name)
        first = next(iter(benchmark.load(benchmark.options(), EvaluationRequest(data=tmp_path))))
        assert first.id.startswith(f"{family}/")


def test_training_data_is_pinned_to_a_commit_wherever_one_is_known() -> None:
    parts = [part for one in TRAINING for part in (*one.sources, *one.streams) if part.url]
    loose = [part.path for part in parts if part.url.startswith(("hub:", "git:")) and not part.address.is_pinned]
    assert all("redpajama" in path or "EvolInstruct" in path for path in loose)
    assert {one.name for one in TRAINING} >= {"oasst1", "openorca", "sharegpt", "evol-codealpaca", "refinedweb"}
    (books,) = select_data_sets(["books"], SETS)
    assert re.search("withdrawn.*substitute is pg19", books.withdrawn)
    assert select_data_sets(["pg19"], SETS)


def test_every_file_of_the_folder_that_somebody_brought_is_as_declared(data_dir: Path) -> None:
    states = {source.path: check(source, data_dir) for sources in SOURCES.values() for source in sources}
    assert {path for path, state in states.items() if state.status != "same"} <= {
        "mint/tasks/alfworld/valid_unseen_134_games.tar.gz"  # of which it has the games that are played
    }


def test_a_missing_file_says_the_one_command_that_brings_it(tmp_path: Path) -> None:
    for name, sources in SOURCES.items():
        assert missing(sources, tmp_path) == list(sources)
        for source in sources:
            with pytest.raises(FileNotFoundError, match=f"{re.escape(source.licence)}") as raised:
                required(tmp_path, source.path)
            said = str(raised.value)
            if source.by_hand:
                assert said.endswith(source.by_hand)
                continue
            command = said.partition("python jobs/fetch_data.py ")[2].split()
            assert any(source in one.sources for one in select_data_sets(command[:1], SETS)), (name, command)
            assert ("--accept" in command) == bool(source.terms)


def test_of_two_meanings_of_one_file_the_second_is_left_out_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    other = DataSet("theirs", "", (SOURCES["intercode/python"][0], SOURCES["intercode/sql"][0]))
    monkeypatch.setattr("lemur_ray.benchmarks.data_sets.TRAINING", (other,))
    assert data_sets(REPORTED.append)
    twisted = type(other.sources[0])(other.sources[0].path, "https://elsewhere/x", "", 0, "MIT")
    monkeypatch.setattr("lemur_ray.benchmarks.data_sets.TRAINING", (DataSet("theirs", "", (twisted,)),))
    said: list[str] = []
    assert "theirs" not in {one.name for one in data_sets(said.append)}
    assert "intercode/python and theirs declare it differently; theirs is left out" in said[0]


@pytest.mark.parametrize("family", ["bbh", "gsm8k", "humaneval", "mbpp", "mmlu", "spider", "ds1000", "multipl_e"])
def test_what_lies_in_another_layout_is_listed_where_a_reader_takes_it(family: str, data_dir: Path) -> None:
    for one in select_data_sets([family], SETS):
        listed: list[str] = []
        list_sets([one], data_dir, listed.append)
        assert ": brought, its reader knows this layout too" in "\n".join(listed), one.name
        benchmark = find(one.name)
        assert next(iter(benchmark.load(benchmark.options(), EvaluationRequest(data=data_dir))))


def test_files_of_another_layout_suffice_unchecked_and_no_folder_hides_what_is_missing(
    data_dir: Path, tmp_path: Path
) -> None:
    said: list[str] = []
    assert check_sets(select_data_sets(["mbpp"], SETS), data_dir, said.append, all_needed=True)
    assert said[0] == "brought  bench/mbpp/mbpp.jsonl.gz: mbpp is read from it; not checked"
    (tmp_path / "bench/mbpp").mkdir(parents=True)
    assert not check_sets(select_data_sets(["mbpp"], SETS), tmp_path, said.append, all_needed=True)


def test_the_list_and_the_check_say_what_is_there(data_dir: Path, tmp_path: Path) -> None:
    said: list[str] = []
    list_sets(SETS, data_dir, said.append)
    text = "\n".join(said)
    assert "    there    intercode/sql/ic_spider_dev.json.gz  1.0 MB, CC BY-SA 4.0" in text
    assert "-        instruct/2023-04-12_oasst_ready.trees.jsonl.gz  34 MB, Apache-2.0" in text
    assert "--accept intercode: " in text
    assert not check_sets(select_data_sets(["intercode/sql"], SETS), tmp_path, said.append, all_needed=True)
    assert said[-1].startswith("0 same, 0 unpinned, 0 differs, 2 missing")
    assert check_sets(SETS, tmp_path, said.append, all_needed=False)
    spoiled = tmp_path / "intercode/sql/ic_spider_dev.json.gz"
    spoiled.parent.mkdir(parents=True)
    spoiled.write_bytes((data_dir / "intercode/sql/ic_spider_dev.json.gz").read_bytes()[:1000])
    assert not check_sets(SETS, tmp_path, said.append, all_needed=False)
    assert "differs  intercode/sql/ic_spider_dev.json.gz: " in "\n".join(said)


def test_published_checksums_are_held_to(data_dir: Path) -> None:
    with (data_dir / "catalogue/pins.tsv").open(newline="") as file:
        pins = list(csv.DictReader(file, delimiter="\t"))
    ours = {source.sha256 for one in SETS for source in one.sources}
    for name in ("MBPP", "DS-1000"):
        published = {pin["sha256"] for pin in pins if pin["name"] == name and pin["sha256"]}
        assert published
        assert published - _OF_ANOTHER_FILE <= ours, name
    assert not _OF_ANOTHER_FILE & ours
    assert _MBPP in ours


_OF_ANOTHER_FILE = {"ca95deaa9a01ef0a6f439f88bcf0dd3db3563d22f22aad6cae04ebb9a8d8c8e9"}
"""Listed for MBPP's mbpp.jsonl (974 tasks, 563,743 bytes), but of sanitized-mbpp.json (427 tasks, 255,053 bytes)"""
_MBPP = "ccf64ceae9c5403bf50a044cb6d505bfd2a2963ee58338ba268fd65beab92a9f"
