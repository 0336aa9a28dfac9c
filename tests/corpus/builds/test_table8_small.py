"""The shipped file with the sixteen sources of Table 8, built from a small Hub, web lists and folders."""

from __future__ import annotations

import io
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from small_corpora import PROSE, tree_hash

from lemur_ray.corpus import build as builds
from lemur_ray.corpus.build import build
from lemur_ray.corpus.config import CorpusConfig
from lemur_ray.outside_data import byte_stream
from lemur_ray.outside_data.catalogue import STACK_LANGUAGES
from lemur_ray.recipes.lemur_mixture import TABLE_8
from lemur_ray.text.tokenizer import Tokenizer
from tests.outside_data.local_hub import COMMIT, Fault, LocalHub, serve
from tests.source_tree import ROOT
from tests.storage.test_corpus_killed import Processes, forked

STACK = ("bigcode/the-stack-dedup", "17cad72c886a2858e08d4c349a00d6466f54df63")
Make = Callable[[str, int], dict[str, Any]]


def code(name: str, number: int) -> str:
    return "".join(f"def {name}_{number}_{line}(value):\n    return value + {line}\n\n" for line in range(4))


def prose(name: str, number: int) -> str:
    draw = np.random.default_rng([number, *name.encode()])
    words = draw.choice(["the", "of", "and", "harvest", "people"] * 8 + [f"word{chr(97 + i)}s" for i in range(26)], 150)
    return ". ".join(" ".join(words[at : at + 15]) for at in range(0, 150, 15)) + "."


def parquet(**columns: list[Any]) -> bytes:
    pq.write_table(pa.table(columns), out := io.BytesIO(), row_group_size=8)
    return out.getvalue()


def put_sources(hub: LocalHub, data: Path) -> None:
    """Files in the places and forms in which the sources of Table 8 are published."""
    for folder in (*STACK_LANGUAGES.values(), "rust", "go"):
        texts = [code(folder.replace("+", "p").replace("-", "_"), number) for number in range(12)]
        if folder == "jupyter-notebook":
            cells = [[{"cell_type": "code", "source": text, "outputs": []}] for text in texts]
            texts = [json.dumps({"cells": one, "nbformat": 4}) for one in cells]
        licences = [["MIT"] if number % 2 else ["Apache-2.0", "BSD-3-Clause"] for number in range(12)]
        repos = [f"people/{folder}-{number}" for number in range(12)]
        content = parquet(
            content=texts, lang=[folder] * 12, max_stars_repo_licenses=licences, max_stars_repo_name=repos
        )
        hub.put(f"data/{folder}/data-00000-of-00001.parquet", content, *STACK)
    for repo, commit, name, column in (
        ("tiiuae/falcon-refinedweb", "2fc26b55236ff7efe9f22e21fe18a40ad9d0a295", "data/train-00000.parquet", "content"),
        ("wikimedia/wikipedia", "b04c8d1ceb2f5cd4588862100d08de323dccfbaa", "20231101.en/train-0.parquet", "text"),
    ):
        texts = [prose(repo, number) for number in range(12)]
        urls = [f"https://site/{number}" for number in range(12)]
        hub.put(name, parquet(**{column: texts, "url": urls}), repo, commit)
    for name in ("arxiv", "stackexchange"):
        records = [{"text": prose(name, number), "meta": {"url": f"https://{name}/{number}"}} for number in range(12)]
        hub.put(f"{name}.jsonl", "".join(json.dumps(record) + "\n" for record in records).encode(), "web/files")
        (urls_of := data / f"corpus/redpajama/urls/{name}.txt").parent.mkdir(parents=True, exist_ok=True)
        urls_of.write_text(f"{hub.url}/datasets/web/files/resolve/{COMMIT}/{name}.jsonl\n")
        hub.put(f"urls/{name}.txt", urls_of.read_bytes(), "togethercomputer/RedPajama-Data-1T", "main")
    for name, count in (("pg19", 6), ("dm-mathematics", 6)):
        (folder := data / "corpus" / name).mkdir(parents=True)
        for number in range(count):
            (folder / f"{number}.txt").write_text(prose(name, number))


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LocalHub]:
    with serve() as served:
        for name, value in (("HF_ENDPOINT", served.url), ("HF_HOME", str(tmp_path / "hf")), ("NO_PROXY", "127.0.0.1")):
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("LEMUR_DATA", str(tmp_path / "data"))
        monkeypatch.setenv("HF_TOKEN", served.token)
        monkeypatch.setattr(byte_stream.time, "sleep", lambda seconds: None)
        served.gated.add(STACK[0])
        put_sources(served, tmp_path / "data")
        yield served


@pytest.fixture
def make(hub: LocalHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Make:
    """Builds the corpus in a folder with a number of processes (0: this one)."""
    Tokenizer.train([PROSE] * 20, 300).save(tmp_path / "tokenizer.json")
    config = CorpusConfig(
        sources=str(ROOT / "lemur_ray/recipes/table8.yaml"), tokenizer=str(tmp_path / "tokenizer.json"), seq_len=64,
        part_mb=0.002, near_duplicates=0.8,
    )  # fmt: skip
    inline = builds.Workers

    def workers(count: int, must_see: Path | None = None) -> Any:
        return Processes(count, must_see) if count else inline(0)

    monkeypatch.setattr(builds, "Workers", workers)
    return lambda name, count: build(config, tmp_path / name, workers=count, say=lambda line: None)


@pytest.mark.slow
def test_the_sources_of_table_8_are_built_by_one_and_by_three_workers_with_equal_bytes(
    hub: LocalHub, make: Make, tmp_path: Path
) -> None:
    hub.faults["rust/data-00000-of-00001.parquet"] = [Fault(503), Fault(after=200), Fault(429, {"Retry-After": "1"})]
    manifest = make("one", 0)
    assert not hub.faults["rust/data-00000-of-00001.parquet"]
    counts = {name: (one["read"], one["kept"]) for name, one in manifest["counts"].items()}
    sizes = {"others": 24, "books": 6, "dm_mathematics": 6}
    assert counts == {row.name: (sizes.get(row.name, 12),) * 2 for row in TABLE_8}
    assert [line.partition(":")[0] for line in manifest["missing"]] == [row.name for row in TABLE_8], (
        "budgets are larger"
    )
    statistics = json.loads((tmp_path / "one/statistics.json").read_text())
    assert "Apache-2.0, BSD-3-Clause" in json.dumps(statistics)
    make("three", 3)
    assert tree_hash(tmp_path / "three") == tree_hash(tmp_path / "one")


@pytest.mark.sweep  # test_corpus_killed kills builds of one source in folders and buckets
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_build_of_table_8_killed_at_twenty_moments_ends_in_the_same_bytes(make: Make, tmp_path: Path) -> None:
    began = time.monotonic()
    make("whole", 0)
    lasted, killed, pause = time.monotonic() - began, 0, threading.Event()
    for moment in np.linspace(0.02, 0.98, 20).tolist():
        child = forked(lambda moment=moment: make(f"killed-{moment}", 3))  # type: ignore[misc]
        while os.getpgid(child) != child:  # its processes are killed as a group
            pause.wait(0.001)
        deadline = time.monotonic() + moment * lasted
        while time.monotonic() < deadline and not os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            pause.wait(0.001)
        os.killpg(child, signal.SIGKILL)
        killed += os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        make(f"killed-{moment}", 0)
        assert tree_hash(tmp_path / f"killed-{moment}") == tree_hash(tmp_path / "whole"), f"killed at {moment:.2f}"
    assert killed >= 10, "the others had ended"
