"""The oracle of ALFWorld's engine: textworld, where it is installed."""

import copy
import importlib
import os
import warnings
from collections.abc import Iterator

import pytest
from alfworld_players import Oracle


@pytest.fixture(scope="session")
def oracle() -> Iterator[type[Oracle]]:
    """The oracle's class, with textworld's parser remembering what it parsed (it parses each snippet at every step)."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
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
