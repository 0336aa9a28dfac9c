"""Reads ALFWorld's game files (``game.tw-pddl``): a PDDL problem, its domain, and the grammar of the texts.

The domain determines which furniture cleans, heats and cools (some older games have another rule for sinks);
the grammar has the task in words and the wording of commands."""

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
from envs.alfworld.games.pddl_problem import atoms, parse_pddl, read_problem

GAME_FILE = "game.tw-pddl"
_PLAYED = ("pddl_problem", "pddl_domain", "grammar")
_TASK = re.compile(r"Your task is to: (.*?)\.?\"")
_PUT: Mapping[GrammarName, str] = {"old": '"put {o} in/on {r}"', "new": '"move {o} to {r}"'}
"""The command that differs between the two grammars, as a game file spells it in each."""


def read_game(content: Any) -> Game:
    """Build a game from a game file's parsed JSON. Raises ValueError that names the fault."""
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
    """Hash of the parts of a game file's JSON on which play depends: 16 hex digits of their SHA-256."""
    played = json.dumps([content.get(name) for name in _PLAYED])
    return hashlib.sha256(played.encode()).hexdigest()[:16]


def digest_of_all(digests: Mapping[str, str]) -> str:
    """One hash of several games from their ids and digests, in any order: 16 hex digits of SHA-256."""
    return hashlib.sha256(json.dumps(sorted(digests.items())).encode()).hexdigest()[:16]


def read_with_digests(archive: Path) -> dict[str, tuple[Game, str]]:
    """Read all games of a tar archive: id (``<task>/<trial>``) -> (game, its ``digest``), in the archive's order.
    Raises ValueError if a game file is invalid or the archive has none, OSError or TarError if it cannot be read."""
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
    """(verb, furniture class) pairs of a PDDL domain: what cleans, heats, cools. Raises ValueError without them."""
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
