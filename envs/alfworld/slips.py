"""Slips: commands that a game refuses, of the kinds with which models fail, as disturbances of a demonstration.

A demonstration without them never holds "Nothing happens.", so a model tuned on it has not seen how to go on."""

from collections.abc import Callable
from random import Random

from envs.alfworld.expert import Expert
from envs.alfworld.knowledge import kind_of
from envs.alfworld.play import Play

Slip = tuple[str | None, str]
"""Thought and command."""


def slip(play: Play, expert: Expert, random: Random) -> Slip | None:
    """A (kind, command) that the game refuses now, to stand before the expert's next command; None if none applies.
    Kinds are drawn with ``random`` as often as they were the first refused command of lost games
    (docs/guides/improve.md). Changes neither ``play`` nor ``expert``."""
    chances = [one for make, share in _KINDS for one in [make(expert, random)] * share if one is not None]
    if not chances:
        return None
    chosen = random.choice(chances)
    return None if chosen[1] in play.admissible() else chosen


def _wrong_number(expert: Expert, random: Random) -> Slip | None:
    """The expert's ``take`` with another number of the same class: cup 2 where cup 1 lies."""
    verb, _, rest = expert.advice().partition(" ")
    if verb != "take":
        return None
    thing, _, place = rest.partition(" from ")
    other = _other_number(thing, random)
    return f"find: {other}, {place}", f"take {other} from {place}"


def _absent_furniture(expert: Expert, random: Random) -> Slip | None:
    """A walk to furniture of a class in the room, with a number that the room does not have."""
    known = expert.knowledge.receptacles
    kind = kind_of(random.choice(known))
    last = max(int(name.rpartition(" ")[2]) for name in known if kind_of(name) == kind)
    return expert.thought(), f"go to {kind} {last + random.randint(1, 2)}"


def _where_it_stands(expert: Expert, random: Random) -> Slip | None:
    here = expert.knowledge.here
    return None if here is None else (expert.thought(), f"go to {here}")


def _other_number(name: str, random: Random) -> str:
    number = int(name.rpartition(" ")[2])
    return f"{kind_of(name)} {random.choice([n for n in range(1, 5) if n != number])}"


_KINDS: tuple[tuple[Callable[[Expert, Random], Slip | None], int], ...] = (
    (_wrong_number, 13),
    (_absent_furniture, 9),
    (_where_it_stands, 4),
)
"""With the number of lost games, of 26, whose first refused command was of the kind."""
