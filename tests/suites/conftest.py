"""The job that plays a suite, in this process."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT

Run = Callable[..., tuple[int, list[str], str]]


@pytest.fixture
def run(lemur_home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Iterator[Run]:
    monkeypatch.delenv("LEMUR_DATA", raising=False)
    monkeypatch.syspath_prepend(str(ROOT / "jobs"))
    job = importlib.import_module("agent_eval")

    def run_job(*argv: str) -> tuple[int, list[str], str]:
        code = job.main(["--actors", "0", *argv])
        captured = capsys.readouterr()
        return code, captured.out.splitlines(), captured.err

    yield run_job
    for name in ("agent_eval", "_path"):
        sys.modules.pop(name, None)
