"""The build job killed in the middle, at every stage, and run again: the same bytes, as a user runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from small_corpora import tree_hash

ROOT = Path(__file__).resolve().parents[3]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # a minute alone, far more on a machine that is busy


@pytest.fixture(scope="module")
def head(ray_local: str) -> dict[str, str]:
    """Environment of a job that joins the session's cluster: starting one of its own each time would take minutes."""
    return {**os.environ, "RAY_ADDRESS": ray_local}


def command(sources: tuple[str, ...], out: Path, workers: int = 1) -> list[str]:
    arguments = ["--seq-len", "256", "--vocab-size", "600", "--tokenizer-sample-mb", "0.3", "--heldout-rows", "4"]
    arguments += ["--part-mb", "0.02", "--near-duplicates", "0.8", "--workers", str(workers), "--out", str(out)]
    for source in sources:
        arguments += ["--source", source]
    return [sys.executable, str(ROOT / "jobs" / "build_corpus.py"), *arguments]


def run(arguments: list[str], env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(arguments, env=env, cwd="/", capture_output=True, text=True, timeout=600)


def kill_when(arguments: list[str], env: dict[str, str], out: Path, pattern: str, count: int) -> None:
    """Start the job and kill -9 it as soon as ``count`` files of its build folder match ``pattern``."""
    process = subprocess.Popen(
        arguments, env=env, cwd="/", stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    deadline = time.monotonic() + 600
    while len(list(out.glob(f".build/{pattern}"))) < count:
        assert process.poll() is None, f"the job ended before {pattern} was there"
        assert time.monotonic() < deadline, f"no {pattern} within 600 s"
        time.sleep(0.005)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert not (out / "manifest.json").exists()


@pytest.mark.sweep  # the slow tier kills one at any of thirty moments in test_build_interrupted
def test_a_build_killed_at_every_stage_ends_in_the_same_bytes(
    head: dict[str, str], small_sources: tuple[str, str], tmp_path: Path
) -> None:
    whole = run(command(small_sources, tmp_path / "whole"), head)
    assert whole.returncode == 0, whole.stderr
    result = json.loads(whole.stdout.splitlines()[-1])
    assert result["corpus"] == str(tmp_path / "whole")
    assert set(result["tokens"]) == {"code", "text"}

    out = tmp_path / "killed"
    for pattern, count in (("clean/*.json", 4), ("bands/*.json", 3), ("tokens/*.json", 5)):
        kill_when(command(small_sources, out), head, out, pattern, count)
    last = run(command(small_sources, out), head)
    assert last.returncode == 0, last.stderr
    assert "going on with its finished parts" in last.stdout
    assert tree_hash(out) == tree_hash(tmp_path / "whole")

    again = run(command(small_sources, out, workers=0), head)
    assert again.returncode == 0
    assert "used as it is" in again.stdout


def test_errors_of_the_job_are_one_clear_line_and_an_exit_code(head: dict[str, str], tmp_path: Path) -> None:
    missing = run([*command((), tmp_path / "out", workers=0), "--source", f"mine:code:{tmp_path}/none"], head)
    assert missing.returncode == 1
    assert f"{tmp_path}/none does not exist" in missing.stderr
    unknown = run([*command((), tmp_path / "out"), "--vocab-sise", "3"], head)
    assert unknown.returncode == 2
    assert "--vocab-size" in unknown.stderr + unknown.stdout
    out_of_range = run([*command((), tmp_path / "out"), "--code-to-text", "-1"], head)
    assert out_of_range.returncode == 2
    assert "code_to_text -1.0: expected" in out_of_range.stderr


def test_the_embedded_corpus_is_ten_to_one_and_fills_its_rows(head: dict[str, str], tmp_path: Path) -> None:
    done = run([sys.executable, str(ROOT / "jobs" / "build_corpus.py"), "--out", str(tmp_path / "corpus")], head)
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    # A source of a hundred files, as some machines' JavaScript is, cannot fill its rows as a thousand files do; of the
    # standard library some machines have 990 files that pass, others 1,100.
    manifest = json.loads((tmp_path / "corpus" / "manifest.json").read_text())
    large = [source["fill"] for source in manifest["sources"] if source["documents"] >= 500 and source["rows"] >= 1000]
    assert large
    assert min(large) >= 0.999
    assert result["fill"] >= 0.99
    assert sum(result["tokens"].values()) > 4_000_000
    assert 7 < result["built"]["code_to_text"] < 13
    assert {"python", "docstrings"} <= set(result["tokens"])
