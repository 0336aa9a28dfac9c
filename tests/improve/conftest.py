"""The run of a tiny random model, which improvement runs start from."""

from pathlib import Path

import pytest

from tests.improve.capital_game import start_run


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return start_run(tmp_path_factory.mktemp("start") / "start")
