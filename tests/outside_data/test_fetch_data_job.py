"""The command, in processes of its own, against a local Hub: real declarations, a killed fetch, streamed sets."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest

from envs.mint.tasks import load_mint_tasks
from envs.outside_data import GAMES, SOURCES
from lemur_ray.benchmarks.discovery import find
from lemur_ray.outside_data.catalogue import TRAINING
from lemur_ray.outside_data.source import Address
from lemur_ray.report.fidelity import FidelityConfig
from lemur_ray.rollout.benchmark_tasks import evaluation_request, parse_evaluation
from tests.conftest import ROOT
from tests.outside_data.local_hub import Fault, LocalHub

SEVERAL = """
import contextlib, io, json, os, shlex, sys
sys.path.insert(0, sys.argv[1])
import fetch_data
for line in sys.argv[2:]:
    name, equals, value = line.partition("=")
    if equals and name.isupper():
        os.environ[name] = value
        continue
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        code = fetch_data.main(shlex.split(line))
    print(json.dumps([code, out.getvalue()]))
"""
Run = Callable[..., list[tuple[int, str]]]


@pytest.fixture
def run(hub: LocalHub, tmp_path: Path) -> Run:
    """Several commands, one after another in one process, and what each said; NAME=VALUE is for those that follow."""
    assert hub.url

    def done(*lines: str) -> list[tuple[int, str]]:
        words = [sys.executable, "-c", SEVERAL, str(ROOT / "jobs"), *lines]
        env = {**os.environ, "LEMUR_DATA": str(tmp_path / "data")}
        ended = subprocess.run(words, capture_output=True, text=True, env=env, cwd=ROOT, timeout=120)
        assert ended.returncode == 0, ended.stderr
        return [tuple(json.loads(line)) for line in ended.stdout.splitlines()]

    return done


def address(name: str) -> Address:
    (one,) = (one for one in TRAINING if one.name == name)
    return (*one.sources, *one.streams)[0].address


def test_one_command_brings_all_that_intercode_and_mint_are_played_with(
    hub: LocalHub, run: Run, data_dir: Path, tmp_path: Path
) -> None:
    trees: dict[tuple[str, str], list[tuple[str, bytes]]] = {}
    for source in (source for sources in SOURCES.values() for source in sources if source.url):
        content, found = (data_dir / source.path).read_bytes(), source.address
        if source.stored == "tar":
            with tarfile.open(fileobj=io.BytesIO(content)) as archive:
                for member in archive.getmembers()[: 60 if source.path == GAMES else None]:  # some games do
                    if (data := archive.extractfile(member)) is not None:
                        files = trees.setdefault((found.repo, found.commit), [])
                        files.append((f"repo-{found.commit}/{found.file}{member.name}", data.read()))
        else:
            hub.put(
                found.file, gzip.decompress(content) if source.stored == "gzip" else content, found.repo, found.commit
            )
    for key, files in trees.items():
        out = io.BytesIO()
        with tarfile.open(fileobj=out, mode="w") as archive:
            for name, content in [*files, (f"{files[0][0]}.solution", b"secret")]:
                member = tarfile.TarInfo(name)
                member.size = len(content)
                archive.addfile(member, io.BytesIO(content))
        hub.archives[key] = out.getvalue()
    refused, done, checked = run("intercode mint", "intercode mint --accept intercode", "intercode mint --check")
    assert refused[0] == 1
    assert "must not be redistributed. Add --accept intercode" in refused[1]
    assert done[0] == 1, "the trees of Bash are made by hand, and the command says so"
    assert len([line for line in done[1].splitlines() if "by hand" in line]) == 4
    assert "36 same, 0 unpinned, 0 differs, 4 missing" in checked[1]
    ours, theirs = load_mint_tasks("math", tmp_path / "data"), load_mint_tasks("math", data_dir)
    assert [task.id for task in ours] == [task.id for task in theirs]
    assert (tmp_path / "data" / GAMES).is_file()


def test_a_killed_fetch_goes_on_where_it_was(hub: LocalHub, run: Run, tmp_path: Path) -> None:
    found, content = address("openorca"), os.urandom(25 << 20)
    hub.put(found.file, content, found.repo, found.commit)
    hub.faults[found.file] = [Fault(after=24 << 20, stall=True)]
    command = [sys.executable, str(ROOT / "jobs" / "fetch_data.py"), "--data", str(tmp_path / "data"), "openorca"]
    killed = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert hub.served.wait(60)
    part = wait_for_part(tmp_path / "data")
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert not (tmp_path / "data/instruct").exists()
    hub.requests.clear()
    ((code, said),) = run("openorca")
    assert code == 0, said
    assert (tmp_path / "data/instruct/1M-GPT4-Augmented.parquet").read_bytes() == content
    begun = [int(headers["Range"][6:].partition("-")[0]) for headers in hub.gets(found.file)]
    assert min(begun) >= 10 << 20, "what had come was not asked for again"
    assert not part.exists()


def wait_for_part(data: Path) -> Path:
    """The unfinished file once its first ten megabytes are written."""
    import time

    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        for part in (data / ".fetching").glob("*.part"):
            if part.stat().st_size >= 10 << 20:
                return part
        time.sleep(0.02)
    raise AssertionError("nothing came")


def rows(first: int, count: int) -> bytes:
    out = io.BytesIO()
    table = pyarrow.table(
        {"content": [f"row {n}" for n in range(first, first + count)], "n": range(first, first + count)}
    )
    pyarrow.parquet.write_table(table, out, row_group_size=100)
    return out.getvalue()


@pytest.mark.slow
def test_streamed_sets_come_in_rows_more_go_on_behind_the_last_and_gated_ones_are_explained(
    hub: LocalHub, run: Run, tmp_path: Path
) -> None:
    web, stack = address("refinedweb"), address("the-stack-dedup/python")
    for part in range(2):
        hub.put(f"data/train-0000{part}-of-00002.parquet", rows(part * 300, 300), web.repo, web.commit)
    hub.put("README.md", b"# a card\n", web.repo, web.commit)
    hub.put("data/python/data-00000.parquet", rows(0, 50), stack.repo, stack.commit)
    hub.gated.add(stack.repo)
    code = "the-stack-dedup/python --rows 20"
    said = run(
        *("refinedweb --rows 250", "refinedweb --rows 450", "refinedweb --rows 100", "refinedweb --check"),
        *(code, f"{code} --accept the-stack-dedup", f"HF_TOKEN={hub.token}", f"{code} --accept the-stack-dedup"),
    )
    assert [code for code, _ in said] == [0, 0, 0, 0, 1, 1, 0], said
    tables = [pyarrow.parquet.read_table(path) for path in sorted((tmp_path / "data/corpus/refinedweb").glob("*.p*"))]
    assert [len(table) for table in tables] == [250, 200]
    assert [n for table in tables for n in table["n"].to_pylist()] == list(range(450))
    assert "450 rows there already" in said[2][1]
    assert "rows     corpus/refinedweb: 450" in said[3][1]
    assert "newest version" in said[4][1]
    assert f"accept its terms at {hub.url}/datasets/{stack.repo} and set HF_TOKEN" in said[5][1]
    assert len(pyarrow.parquet.read_table(tmp_path / "data/corpus/the-stack-dedup/python")) == 20
    asked = {path for _, path, _ in hub.requests if "resolve" in path}
    assert all(web.commit in path or stack.commit in path for path in asked), "the commit is always named"


def test_nothing_named_and_a_wrong_name_are_told_what_there_is(run: Run) -> None:
    (nothing, wrong) = run("", "openorka")
    assert nothing[0] == wrong[0] == 1
    assert "--list" in nothing[1]
    assert "did you mean 'openorca'" in wrong[1]


def test_what_is_fetched_without_a_folder_is_looked_for_there_by_who_plays_it(
    run: Run, lemur_home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lemur_home / "data").mkdir(parents=True)
    ((_, said),) = run(f"LEMUR_HOME={lemur_home}", "LEMUR_DATA=", "gsm8k --check")
    assert said.rstrip().endswith(f"in {lemur_home / 'data'}")
    monkeypatch.delenv("LEMUR_DATA", raising=False)
    config = parse_evaluation(["--benchmark", "gsm8k"], "gsm8k")
    benchmark = find("gsm8k")
    asked = evaluation_request(config, benchmark, "full")
    assert asked.data == lemur_home / "data" == FidelityConfig().folder
    with pytest.raises(FileNotFoundError, match=f"fetch_data.py gsm8k --data {lemur_home / 'data'}"):
        next(iter(benchmark.load(config.options, asked)))
