"""System prompts of InterCode's environments, by the benchmark's kind: the texts of ``system_prompts.toml``."""

from collections.abc import Mapping

from lemur_ray.host.json_files import toml_beside

SYSTEM: Mapping[str, str] = toml_beside(__file__)
"""The number of turns is to be filled in, as ``max_turns``."""
