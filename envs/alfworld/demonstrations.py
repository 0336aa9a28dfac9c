"""Games that the expert wins as conversations to tune on, with or without slips.

A slip is a command that the game refuses, of the kinds with which models fail. A demonstration without them never holds
"Nothing happens.", so a model tuned on it has not seen how to go on."""

from collections.abc import Callable, Iterator
from random import Random

from envs.alfworld.expert import Expert
from envs.alfworld.games.game import Game
from envs.alfworld.games.generator import draw_game
from envs.alfworld.knowledge import kind_of
from envs.alfworld.play import Play
from envs.alfworld.prompts import Prompt, opening
from envs.alfworld.tasks import MAX_TURNS
from lemur_ray.agents.messages import Message


def demonstrations(
    count: int, slips: float = 0.0, seed: int = 0, *, prompt: Prompt = "brief"
) -> Iterator[tuple[str, tuple[Message, ...]]]:
    """Play the first ``count`` training games of ``seed`` with the expert, and yield (id, messages up to its last
    command) for each that it wins. A reply is the expert's thought, if it has one, and its command on the last line
    (docs/decisions/004). slips: chance (0 to 1) that the expert's turn comes after one with a command that the game
    refuses (weight 0). A pure function of its arguments. No held-out game is used, and no goal of one."""
    for index in range(count):
        play, random = Play(Game.from_spec(draw_game("train", seed, index))), Random(f"slips {seed} {index}")
        first, system = opening(play, play.game, prompt, MAX_TURNS)
        messages = [Message("system", system)] if system else []
        messages.append(Message("user", first))
        expert, may_slip = Expert(play.opening), True
        for _ in range(MAX_TURNS):
            mistake = _slip(play, expert, random) if may_slip and slips and random.random() < slips else None
            thought, command = mistake or (expert.thought(), expert.advice())
            may_slip = mistake is None
            answer = play.step(command)
            reply = f"{thought}\n{command}" if thought else command
            messages += [Message("assistant", reply, weight=int(may_slip)), Message("user", answer)]
            expert.observe(command, answer)
            if play.won:
                yield f"train-{seed}-{index:05d}", tuple(messages[:-1])
                break


_Slip = tuple[str | None, str]
"""Thought and command."""


def _slip(play: Play, expert: Expert, random: Random) -> _Slip | None:
    """A (kind, command) that the game refuses now, to stand before the expert's next command; None if none applies.
    Kinds are drawn with ``random`` as often as they were the first refused command of lost games
    (docs/guides/improve.md). Changes neither ``play`` nor ``expert``."""
    chances = [one for make, share in _KINDS for one in [make(expert, random)] * share if one is not None]
    if not chances:
        return None
    chosen = random.choice(chances)
    return None if chosen[1] in play.admissible() else chosen


def _wrong_number(expert: Expert, random: Random) -> _Slip | None:
    """The expert's ``take`` with another number of the same class: cup 2 where cup 1 lies."""
    verb, _, rest = expert.advice().partition(" ")
    if verb != "take":
        return None
    thing, _, place = rest.partition(" from ")
    kind, _, number = thing.rpartition(" ")
    other = f"{kind} {random.choice([n for n in range(1, 5) if n != int(number)])}"
    return f"find: {other}, {place}", f"take {other} from {place}"


def _absent_furniture(expert: Expert, random: Random) -> _Slip | None:
    """A walk to furniture of a class in the room, with a number that the room does not have."""
    known = expert.knowledge.receptacles
    kind = kind_of(random.choice(known))
    last = max(int(name.rpartition(" ")[2]) for name in known if kind_of(name) == kind)
    return expert.thought(), f"go to {kind} {last + random.randint(1, 2)}"


def _go_to_current_place(expert: Expert, random: Random) -> _Slip | None:
    here = expert.knowledge.here
    return None if here is None else (expert.thought(), f"go to {here}")


_KINDS: tuple[tuple[Callable[[Expert, Random], _Slip | None], int], ...] = (
    (_wrong_number, 13),
    (_absent_furniture, 9),
    (_go_to_current_place, 4),
)
"""With the number of lost games, of 26, whose first refused command was of the kind."""
