"""Parses ALFWorld's game files (``game.tw-pddl``): a problem, its domain, and the grammar.

The domain determines which furniture cleans, heats and cools (two of the recorded games have an older rule for sinks);
the grammar has the task in words and the wording of commands. Knows no play.
"""

from __future__ import annotations

import hashlib
import json
import re
import tarfile
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from envs.alfworld.games.catalogue import TOOL_OF_VERB
from envs.alfworld.games.game import Game, GrammarName
from envs.alfworld.games.pddl import atoms, parse_pddl
from envs.alfworld.games.pddl_problem import read_problem

GAME_FILE = "game.tw-pddl"
_PLAYED = ("pddl_problem", "pddl_domain", "grammar")
_TASK = re.compile(r"Your task is to: (.*?)\.?\"")
_PUT: Mapping[GrammarName, str] = {"old": '"put {o} in/on {r}"', "new": '"move {o} to {r}"'}
"""Wording in each grammar of the command in which they differ."""


def read_game(content: Any) -> Game:
    """The game of a file's JSON. Raises ValueError that says what is wrong with it."""
    try:
        problem, domain, grammar = texts = [content[name] for name in _PLAYED]
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a game of ALFWorld: {type(error).__name__}: {error}") from error
    if not all(isinstance(text, str) for text in texts):
        raise ValueError("not a game of ALFWorld: pddl_problem, pddl_domain and grammar must be texts")
    if (task := _TASK.search(grammar)) is None:
        raise ValueError("grammar without the line 'Your task is to: ...'")
    return read_problem(problem, task[1], tools=tools_of(domain), grammar=_grammar_name(grammar))


def digest(content: Mapping[str, Any]) -> str:
    """16 hex digits that identify the parts of a file's JSON on which play depends."""
    played = json.dumps([content.get(name) for name in _PLAYED])
    return hashlib.sha256(played.encode()).hexdigest()[:16]


def digest_of_all(digests: Mapping[str, str]) -> str:
    """16 hex digits of several games, from their ids and digests in any order."""
    return hashlib.sha256(json.dumps(sorted(digests.items())).encode()).hexdigest()[:16]


def read_with_digests(archive: Path) -> dict[str, tuple[Game, str]]:
    """The games of a tar archive, and their digests, by id (``<task>/<trial>``), in its order.

    Raises ValueError that names the archive and the file if one is no game, or if there is none.
    """
    games = {}
    with tarfile.open(archive) as tar:
        for member in tar:
            name = Path(member.name)
            if name.name != GAME_FILE or not member.isfile() or (file := tar.extractfile(member)) is None:
                continue
            try:
                content = json.load(file)
                games["/".join(name.parts[-3:-1])] = (read_game(content), digest(content))
            except ValueError as error:
                raise ValueError(f"{archive}, {member.name}: not a game: {error}") from error
    if not games:
        raise ValueError(f"{archive}: no {GAME_FILE} in it")
    return games


@lru_cache(maxsize=8)
def tools_of(domain: str) -> frozenset[tuple[str, str]]:
    """(verb, furniture class): what cleans, heats and cools in a domain's text."""
    actions = {part[1]: part for part in parse_pddl(domain)[1:] if isinstance(part, list) and part[0] == ":action"}
    if missing := sorted(verb for verb in TOOL_OF_VERB if f"{verb}object" not in actions):
        raise ValueError(f"PDDL domain without the actions that {', '.join(missing)}")
    return frozenset(
        (verb, atom[2].removesuffix("type"))
        for verb in TOOL_OF_VERB
        for action in [actions[f"{verb}object"]]
        for atom in atoms(action[action.index(":precondition") + 1])
        if atom[0] == "receptacletype"
    )


def _grammar_name(grammar: str) -> GrammarName:
    names = [name for name, words in _PUT.items() if words in grammar]
    if len(names) != 1:
        raise ValueError(f"grammar with {len(names)} of the known commands {', '.join(_PUT.values())}, expected one")
    return names[0]
