"""The oracle of ALFWorld's engine (textworld, where it is installed), and the real games of the test data."""

import copy
import importlib
import json
import os
import tarfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
from alfworld_players import Oracle


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[type[Oracle]]:
    """The oracle's class, with textworld's parser remembering what it parsed (it parses each snippet at every step)."""
    # The package sets ALFWORLD_DATA as it is imported; other tests are to find what they set themselves.
    with warnings.catch_warnings(), pytest.MonkeyPatch.context() as patch:
        warnings.simplefilter("ignore")
        patch.setenv("ALFWORLD_DATA", os.environ.get("ALFWORLD_DATA") or str(tmp_path_factory.mktemp("alfworld")))
        try:
            importlib.import_module("alfworld.agents.environment.alfred_tw_env")
            from textworld.envs.pddl import textgen
        except ImportError as error:
            if os.environ.get("CI"):
                raise
            pytest.skip(f"no textworld to compare with ({error}): pip install 'lemur-ray[alfworld]'")
    original, parsed = textgen._parse_and_convert, {}

    def remembered(text, rule_name=None, trace=False):
        if text not in parsed:
            parsed[text] = original(text, rule_name=rule_name, trace=trace)
        return copy.deepcopy(parsed[text])

    textgen._parse_and_convert = remembered
    yield Oracle
    textgen._parse_and_convert = original


@pytest.fixture(scope="session")
def real_archive(data_dir: Path) -> Path:
    """The 134 games of valid_unseen."""
    return data_dir / "mint/tasks/alfworld/valid_unseen_134_games.tar.gz"


@pytest.fixture(scope="session")
def real_games(real_archive: Path) -> dict[str, dict[str, str]]:
    """Their files' contents by id."""
    with tarfile.open(real_archive) as tar:
        members = [member for member in tar if member.name.endswith("/game.tw-pddl")]
        return {"/".join(Path(m.name).parts[-3:-1]): json.load(tar.extractfile(m)) for m in members}
