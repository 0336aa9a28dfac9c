"""The writer of files of sources."""

from pathlib import Path

import pytest
import yaml

from tests.corpus.sources.source_entries import Write


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Writes a YAML file of sources; returns its path."""

    def put(*entries: dict[str, object]) -> str:
        (path := tmp_path / "sources.yaml").write_text(yaml.safe_dump(list(entries), sort_keys=False))
        return str(path)

    return put
