"""Instruction tables whose files, tokenizer or shelf lie in a bucket are those of a disk."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.agents.messages import Message
from lemur_ray.corpus.bucket_rows import open_rows
from lemur_ray.corpus.manifest import CorpusError, read_manifest
from lemur_ray.instruct.config import SetsConfig
from lemur_ray.instruct.conversation import Conversation
from lemur_ray.instruct.pipeline import build_sets
from lemur_ray.instruct.table import build_table
from lemur_ray.storage.file_system import file_system
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.text.tokenizer_folder import load_path, save_folder
from lemur_ray.train.run.needs import check_files

TOKENIZER = Tokenizer.bytes_only()


@pytest.fixture
def url() -> str:
    return f"memory://{uuid.uuid4().hex}"


def config(file: str, **more: Any) -> SetsConfig:
    return SetsConfig(evol=(file,), language="", encoder="hashing:64", **more)


def test_sets_in_a_bucket_make_the_table_of_a_disk_and_are_read_once(
    url: str, tmp_path: Path, lemur_home: Path
) -> None:
    rows = [{"instruction": f"Write {n} functions about {n * n}", "output": f"def f{n}(): ..."} for n in range(12)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "evol.jsonl").write_text(lines)
    fs, there = file_system(f"{url}/raw/evol.jsonl")
    fs.pipe_file(there, lines.encode())
    how: Any = {"seq_len": 256, "workers": 0}
    said: list[str] = []
    here, mine = build_sets(config(str(tmp_path / "evol.jsonl")), TOKENIZER, tmp_path / "shelf", say=said.append, **how)
    place, made = build_sets(config(f"{url}/raw/evol.jsonl"), TOKENIZER, f"{url}/runs/x/table", say=said.append, **how)
    assert str(place).startswith(f"{url}/runs/x/table/")
    assert made["sources"] == mine["sources"] == read_manifest(place)["sources"]
    assert made["config_hash"] == mine["config_hash"]
    for path in Path(here).rglob("*"):
        name = path.relative_to(here).as_posix()
        if path.is_file() and not name.startswith((".", "manifest", "conversations")):
            assert fs.cat_file(f"{file_system(str(place))[1]}/{name}") == path.read_bytes(), name
    assert len(open_rows(place, "chat")) == mine["sources"][0]["rows"]
    assert not list((lemur_home / "copies").glob("making-*/*")), "the disk keeps nothing of it"
    again = build_sets(config(f"{url}/raw/evol.jsonl"), TOKENIZER, f"{url}/runs/x/table", say=said.append, **how)
    assert (again, said[-1]) == ((place, made), f"{place} was made of these files with these options: used as it is")


def test_a_file_that_is_missing_or_damaged_in_a_bucket_is_named_by_its_url(url: str, lemur_home: Path) -> None:
    with pytest.raises(CorpusError, match=rf"--evol {url}/none.jsonl: no such file"):
        build_sets(config(f"{url}/none.jsonl"), TOKENIZER, f"{url}/table", seq_len=64, workers=0)
    with pytest.raises(FileNotFoundError, match=f"files: {url}/none.jsonl: not there"):
        check_files([f"{url}/none.jsonl"])
    fs, there = file_system(f"{url}/cut.jsonl.gz")
    fs.pipe_file(there, b"\x1f\x8b\x08 cut")
    check_files([f"{url}/cut.jsonl.gz"])
    with pytest.raises(ValueError, match=rf"{url}/cut.jsonl.gz is cut short or damaged"):
        build_sets(config(f"{url}/cut.jsonl.gz"), TOKENIZER, f"{url}/table", seq_len=64, workers=0)


def test_a_table_of_conversations_is_made_in_a_bucket_once(url: str, lemur_home: Path) -> None:
    talk = Conversation("own", "1", (Message("user", "Why?"), Message("assistant", "So.")))
    place, manifest = build_table([talk], TOKENIZER, f"{url}/table", seq_len=64)
    fs, there = file_system(f"{place}/manifest.json")
    written = fs.modified(there)
    assert build_table([talk], TOKENIZER, f"{url}/table", seq_len=64) == (place, manifest)
    assert fs.modified(there) == written


def test_a_tokenizer_in_a_bucket_is_that_of_a_disk(url: str) -> None:
    save_folder(TOKENIZER, f"{url}/model")
    for named in (f"{url}/model", f"{url}/model/", f"{url}/model/tokenizer.json"):
        assert load_path(named).is_same(TOKENIZER)
    with pytest.raises(FileNotFoundError, match=rf"no tokenizer.json in {url}/other"):
        load_path(f"{url}/other")
