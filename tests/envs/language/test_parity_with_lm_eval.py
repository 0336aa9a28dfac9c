"""Readings of GSM8K, MMLU and BIG-Bench Hard beside lm-eval's filters on stored replies: every difference has a cause.

``python -m tests.grading.parity lm-eval --peer PYTHON`` compares all of them.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.envs.language.conftest import PYTHON
from tests.grading.parity.written_replies import beside_lm_eval

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("clients")]


def test_every_difference_from_lm_evals_filters_has_a_known_cause(data_dir: Path, tmp_path: Path) -> None:
    files = ("hyperbaton", "ruin_names")
    compared = list(beside_lm_eval(str(PYTHON), data_dir, tmp_path, files, every=13))
    assert len(compared) == 9
    assert sum(len(replies) for _, replies, _ in compared) > 5000
    assert [one for _, _, differing in compared for one in differing if not one.cause] == []
