"""A corpus of two sources that the tests of fetching and feeding share."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lemur_ray.corpus.manifest import row_folder
from lemur_ray.corpus.rows import RowWriter
from lemur_ray.plan.plan import Plan, PlanSource

SEQ_LEN = 32


@pytest.fixture(scope="session")
def two_sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Row sets code (60 rows) and text (20 rows) of 32 tokens."""
    folder = tmp_path_factory.mktemp("two-sources")
    rng = np.random.default_rng(0)
    for name, rows in (("code", 60), ("text", 20)):
        with RowWriter(row_folder(folder, name), SEQ_LEN, vocab_size=512, shard_rows=25) as writer:
            for _ in range(rows):
                cut = int(rng.integers(1, SEQ_LEN))
                writer.write([rng.integers(0, 512, cut), rng.integers(0, 512, SEQ_LEN - cut)])
    return folder


@pytest.fixture
def plan() -> Plan:
    """96 rows, code : text = 5 : 1, code in up to two passes."""
    return Plan((PlanSource("code", "code", 60, 5.0, 2.0), PlanSource("text", "text", 20, 1.0)), 4, 96)
