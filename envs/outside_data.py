"""Data files of the built-in benchmarks, which are not part of this project: the sets of ``outside_data.toml``.

Benchmarks whose file names follow from their tasks (BBH, BFCL, GPQA, MultiPL-E) declare theirs beside those."""

from collections.abc import Mapping
from pathlib import Path

from lemur_ray.host.json_files import toml_beside
from lemur_ray.outside_data import required as outside
from lemur_ray.outside_data.source import Source, declared_sources

GAMES = "mint/tasks/alfworld/valid_unseen_134_games.tar.gz"
GAME_IDS = "mint/tasks/alfworld/gamefile_id.txt"
_DECLARED = toml_beside(__file__)
_PARTS = {one["name"]: declared_sources(one) for one in _DECLARED["parts"]}
SETS: Mapping[str, tuple[Source, ...]] = {
    one["name"]: (*declared_sources(one), *(file for part in one.get("with", ()) for file in _PARTS[part]))
    for one in _DECLARED["sets"]
}
"""Files of each set, by its name."""
SOURCES = {name: files for name, files in SETS.items() if name.startswith(("intercode/", "mint/"))}
"""The sets of InterCode and MINT."""


def mint_tasks_file(subset: str) -> str:
    """Path, below the data folder, of the task file of a MINT subset."""
    return f"mint/tasks/{subset}.test_prompts.jsonl.gz"


def required(data: Path, name: str) -> Path:
    """The path of the file ``name`` below ``data``. Raises FileNotFoundError, with size, licence and the command that
    fetches it, if it is missing."""
    return outside.required(data, name, SETS)
