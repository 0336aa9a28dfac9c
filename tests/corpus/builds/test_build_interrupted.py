"""Builds that are killed at any moment, or that run out of disk: the same command ends in the same bytes."""

from __future__ import annotations

import errno
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from small_corpora import PROSE, QUESTION, tree_hash, write_texts

from lemur_ray.corpus.build import build
from lemur_ray.corpus.config import CorpusConfig
from lemur_ray.corpus.manifest import CorpusError
from lemur_ray.text.tokenizer import Tokenizer

rename = os.replace


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> CorpusConfig:
    """Two sources with a near duplicate and a text of a benchmark, so that every step has work."""
    home = tmp_path_factory.mktemp("sources")
    Tokenizer.train([PROSE] * 20, 300).save(home / "tokenizer.json")
    for name in ("one", "two"):
        write_texts(home, name, 4)
    text = (home / "one" / "0.txt").read_text()
    (home / "two" / "copy.txt").write_text(f"{text} edited")
    (home / "two" / "question.txt").write_text(f"{text[::-1]} {QUESTION} {PROSE}")
    return CorpusConfig(
        source=tuple(f"{name}:text:{home / name}" for name in ("one", "two")), tokenizer=str(home / "tokenizer.json"),
        seq_len=128, part_mb=0.001, heldout_rows=2, near_duplicates=0.8, decontaminate=True,
    )  # fmt: skip


def make(config: CorpusConfig, out: Path) -> dict[str, Any]:
    return build(config, out, workers=0, benchmarks={"farm": [QUESTION]}, say=lambda line: None)


def whole(config: CorpusConfig, out: Path) -> tuple[dict[str, str], int]:
    """(content of the files of an uninterrupted build, number of files that it renames)."""
    renamed = 0

    def replace(*paths: Any) -> None:
        nonlocal renamed
        renamed += 1
        rename(*paths)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", replace)
        manifest = make(config, out)
    assert manifest["counts"]["two"]["dropped"] == {"benchmark": 1, "near_duplicate": 1}
    return tree_hash(out), renamed


def interrupted(at: int, act: Callable[[], None]) -> Callable[..., None]:
    """A rename that acts at the call with this number, before it for even numbers and after it for odd ones."""
    calls = 0

    def replace(*paths: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == at and not at % 2:
            act()
        rename(*paths)
        if calls == at:
            act()

    return replace


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_build_killed_at_any_of_thirty_moments_ends_in_the_same_bytes(config: CorpusConfig, tmp_path: Path) -> None:
    expected, renames = whole(config, tmp_path / "whole")
    for at in np.unique(np.linspace(1, renames, 30).astype(int)).tolist():
        out = tmp_path / f"killed-{at}"
        child = os.fork()
        if not child:
            os.replace = interrupted(at, lambda: os.kill(os.getpid(), signal.SIGKILL))
            make(config, out)
            os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, f"rename {at}"
        make(config, out)
        assert tree_hash(out) == expected, f"killed at rename {at}"
        shutil.rmtree(out)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9])
def test_a_full_disk_is_an_error_after_which_the_same_command_goes_on(
    config: CorpusConfig, tmp_path: Path, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, renames = whole(config, tmp_path / "whole")

    def fail() -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "replace", interrupted(int(share * renames), fail))
        with pytest.raises(CorpusError, match=r"the disk is full .* the same command goes on"):
            make(config, tmp_path / "out")
    assert not (tmp_path / "out" / "manifest.json").exists()
    make(config, tmp_path / "out")
    assert tree_hash(tmp_path / "out") == expected
