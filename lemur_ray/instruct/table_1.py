"""Files of the public sets of Table 1, by their names in the catalogue: those that are there, else fetched."""

from collections.abc import Callable, Collection
from dataclasses import replace
from pathlib import Path
from typing import Any

from lemur_ray.instruct.chat_tokens import with_chat_format
from lemur_ray.instruct.config import SetsConfig
from lemur_ray.instruct.needs import check_table_needs
from lemur_ray.outside_data.catalogue import TRAINING
from lemur_ray.outside_data.checking import missing
from lemur_ray.outside_data.fetching import FetchOptions, fetch
from lemur_ray.outside_data.source import FetchError
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.text.tokenizer_folder import load_path

DATA_SETS: dict[str, tuple[tuple[str, ...], ...]] = {
    "oasst1": (("oasst1",),),
    "openorca": (("openorca",),),
    "sharegpt": (("sharegpt",), ("sharegpt-cleaned",)),
    "evol": (("evol-codealpaca", "evol-instruct-code"), ("evol-codealpaca",)),
}
"""For each set of Table 1, its choices of data sets in the catalogue, the one that is fetched first."""


def table_tokenizer(config: SetsConfig, path: str) -> Tokenizer:
    """Tokenizer for a table: that at ``path`` with a chat format; without a path, bytes are tokens. Raises ValueError
    that lists missing packages for the filters of all sets, or an unusable chat template; OSError."""
    loaded = load_path(path) if path else Tokenizer.bytes_only()
    every: dict[str, Any] = {name: (name,) for name in DATA_SETS}
    check_table_needs(replace(config, **every), (), "", loaded, packages_are_here=True)
    return with_chat_format(loaded, "")


def table_1_files(
    config: SetsConfig, data: Path, accepted: Collection[str], may_fetch: bool, say: Callable[[str], None]
) -> dict[str, tuple[str, ...]]:
    """Files of every set of Table 1 for which ``config`` names none, as values of its fields: name of the set -> files.
    The first choice of data sets of which all files are in the folder ``data`` is used, else the first one is
    downloaded into it. accepted: families of data sets whose terms the user accepts. may_fetch: whether to download.
    say: gets a line for each set. Raises FetchError if a download fails or is not allowed, OSError."""
    known = {one.name: one for one in TRAINING}
    files: dict[str, tuple[str, ...]] = {}
    for name, choices in DATA_SETS.items():
        if getattr(config, name):
            continue
        for choice in choices:
            sources = [source for one in choice for source in known[one].sources]
            if not missing(sources, data):
                break
        else:
            choice = choices[0]
            sources = [source for one in choice for source in known[one].sources]
            if not may_fetch:
                lacking = ", ".join(source.path for source in missing(sources, data))
                raise FetchError(f"{name}: {data} lacks {lacking}: python jobs/fetch_data.py {' '.join(choice)}")
            if failed := fetch([known[one] for one in choice], FetchOptions(data, accepted, say)):
                raise FetchError("; ".join(failed))
        say(f"{name}: {', '.join(source.path for source in sources)}")
        files[name] = tuple(str(data / source.path) for source in sources)
    return files
