"""Finds and reads ALFWorld's own games on disk: a folder of ALFWorld's data, or an archive of one.

| place | layout |
|---|---|
| a folder | ``[json_2.1.1/]<split>/<task>/<trial>/game.tw-pddl``, as ``alfworld-download`` leaves it |
| an archive (.tar.gz) | the same inside |

A game is named by its path ``<task>/<trial>``, never by a number: the order of a folder is the machine's. Games that
ALFWorld marks as not solvable are left out, as it does."""

import json
import os
import tarfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from envs.alfworld.games.game_file import GAME_FILE, digest
from lemur_ray.benchmarks.rows import MissingFiles

SPLITS = {"valid_seen": 140, "valid_unseen": 134}
"""Number of games in each split."""
_DATA = "json_2.1.1"


class MissingGames(MissingFiles, ValueError):
    """Raised if the games of a split are at none of the usual places."""


def find_games(split: str, games: str, data: Path | None) -> Path:
    """Path of a split (a folder or an archive): ``games`` if given, else searched below ``data``, $ALFWORLD_DATA and
    ~/.cache/alfworld. Raises MissingGames with the paths tried and the command that fetches the games."""
    if games:
        roots = [Path(games).expanduser()]
    else:
        downloaded = os.environ.get("ALFWORLD_DATA") or "~/.cache/alfworld"  # where alfworld-download leaves them
        roots = [*([data / "alfworld"] if data is not None else []), Path(downloaded).expanduser()]
    tried = [place for root in roots for place in _places(root, split)]
    for place in tried:
        if place.exists():
            return place.absolute()
    raise MissingGames(
        f"alfworld/{split}: no games at {', '.join(map(str, tried))}. Say where they are with --games DIR or "
        f"ALFWORLD_DATA; `python jobs/fetch_data.py alfworld/{split}{f' --data {data}' if data else ''}` fetches them "
        "(MIT, 2 GB unpacked)"
    )


def _places(root: Path, split: str) -> list[Path]:
    if root.is_file():
        return [root]
    return [root / _DATA / split, root / split, root / f"{split}.tar.gz"]


def game_digests(place: Path, split: str) -> dict[str, str]:
    """Digests of the solvable games of a split by ``<task>/<trial>``, sorted. Raises ValueError if there is none."""
    if place.is_dir():
        files = place.rglob(GAME_FILE)
        games: Mapping[str, Mapping[str, Any]] = {"/".join(f.parts[-3:-1]): _parse(f.read_bytes(), f) for f in files}
    else:
        games = _games_in_archive(place, split)
    digests = {name: digest(games[name]) for name in sorted(games) if games[name].get("solvable", True)}
    if not digests:
        raise ValueError(f"{place}: no {GAME_FILE} of {split} in it")
    return digests


def game_content(place: Path, split: str, game: str) -> Mapping[str, Any]:
    """The parsed JSON of one game's file in a folder or archive. Raises ValueError if it is missing or malformed."""
    if place.is_dir():
        file = place / game / GAME_FILE
        if not file.is_file():
            raise ValueError(f"{file}: no such game")
        return _parse(file.read_bytes(), file)
    known = _games_in_archive(place, split)
    if game not in known:
        raise ValueError(f"{place}: no game {game} of {split} in it")
    return known[game]


@lru_cache(maxsize=2)
def _games_in_archive(archive: Path, split: str) -> Mapping[str, Mapping[str, Any]]:
    """Parsed game files of one split in an archive by ``<task>/<trial>``; the last two results are cached."""
    games = {}
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                parts = Path(member.name).parts
                if parts[-1] == GAME_FILE and split in parts and (file := tar.extractfile(member)) is not None:
                    games["/".join(parts[-3:-1])] = _parse(file.read(), Path(f"{archive}, {member.name}"))
    except (tarfile.TarError, EOFError, OSError) as error:
        raise ValueError(f"{archive}: not an archive of games ({error})") from error
    return games


def _parse(text: bytes, where: Path) -> Mapping[str, Any]:
    try:
        content = json.loads(text)
    except ValueError as error:
        raise ValueError(f"{where}: not a game of ALFWorld: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{where}: not a game of ALFWorld: a JSON {type(content).__name__}")
    return content
