"""System prompts of InterCode's environments, by the benchmark's kind: the texts of ``system_prompts.toml``."""

import tomllib
from collections.abc import Mapping
from pathlib import Path

SYSTEM: Mapping[str, str] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
"""The number of turns is to be filled in, as ``max_turns``."""
