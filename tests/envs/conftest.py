"""The sample database of InterCode-SQL, built once."""

from pathlib import Path

import pytest

from envs.intercode.sql.sample_database import build_sample
from envs.intercode.sql.sqlite_engine import SqliteDatabase


@pytest.fixture(scope="session")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_sample(tmp_path_factory.mktemp("sql") / "sample.sqlite")


@pytest.fixture
def database(sample: Path) -> SqliteDatabase:
    return SqliteDatabase(sample)
