"""``jobs/agent_eval.py`` in this process, for all who play episodes with it."""

import importlib
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from envs.intercode.sql.sample_database import build_sample
from tests.conftest import ROOT

Run = Callable[..., tuple[int, list[str], str]]


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_sample(tmp_path_factory.mktemp("sample") / "sample.sqlite")


@pytest.fixture
def run(
    lemur_home: Path, sample: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Run]:
    """The job in this process: exit code, lines of stdout, stderr. The sample database is there already."""
    monkeypatch.delenv("LEMUR_DATA", raising=False)
    (lemur_home / "intercode").mkdir(parents=True)
    shutil.copy(sample, lemur_home / "intercode")
    monkeypatch.syspath_prepend(str(ROOT / "jobs"))
    job = importlib.import_module("agent_eval")

    def run_job(*argv: str) -> tuple[int, list[str], str]:
        code = job.main(["--actors", "0", "--in-flight", "8", *argv])
        captured = capsys.readouterr()
        return code, captured.out.splitlines(), captured.err

    yield run_job
    for name in ("agent_eval", "_path"):
        sys.modules.pop(name, None)
