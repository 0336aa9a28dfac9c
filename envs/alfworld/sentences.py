"""The game's answers in English, each a function of the state after an action. Nothing here changes the state.

The wordings are ALFWorld's (``alfred.twl2`` of alfworld 0.3 and 0.4, MIT), byte for byte, which tests check."""

from collections.abc import Collection, Sequence

from envs.alfworld.games.catalogue import HELP
from envs.alfworld.games.game import Thing
from envs.alfworld.grammar import Action, Grammar
from envs.alfworld.world import World

NOTHING_HAPPENS = "Nothing happens."
WELCOME = "-= Welcome to TextWorld, ALFRED! =-"


def answer(world: World, grammar: Grammar, action: Action) -> str:
    """The game's answer to an action that was executed. Raises ValueError for an unknown action."""
    verb, *names = action
    match verb, names:
        case "go", [receptacle]:
            arrived = world.here if grammar.arrives_at_location else receptacle
            return f"You arrive at {arrived}. {_furniture(world, receptacle)}"
        case "open", [receptacle]:
            return f"You open the {receptacle}. {_furniture(world, receptacle)}"
        case "close", [receptacle]:
            return f"You close the {receptacle}."
        case "take", [thing, receptacle]:
            return f"You pick up the {thing} from the {receptacle}."
        case "put", [thing, receptacle]:
            return f"You {grammar.write((verb, f'the {thing}', f'the {receptacle}'))}."
        case "use", [thing]:
            return f"You turn on the {thing}."
        case "slice", [thing, knife]:
            return f"You sliced the {thing} with the {knife}."
        case "examine", [name]:
            known = world.game.thing.get(name)
            return _furniture(world, name) if known is None else _thing(known, world.states.get(name, ()))
        case "look", []:
            return _look(world)
        case "inventory", []:
            return "You are not carrying anything." if world.held is None else f"You are carrying: a {world.held}."
        case "help", []:
            return HELP
        case (("clean" | "heat" | "cool"), [thing, receptacle]):
            return f"You {verb} the {thing} using the {receptacle}."
    raise ValueError(f"no sentence for {action}")


def listing(names: Sequence[str]) -> str:
    """English list: ``a mug 1``, ``a mug 1, and a pen 2``, ``a mug 1, a pen 2, and a pen 1``, or ``nothing``."""
    return _list([f"a {name}" for name in names]) if names else "nothing"


def _list(items: Sequence[str]) -> str:
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])}, and {items[-1]}"


def room_line(receptacles: Sequence[str]) -> str:
    return f"You are in the middle of a room. Looking quickly around you, you see {listing(receptacles)}."


def task_line(task: str) -> str:
    return f"Your task is to: {task}."


def opening(receptacles: Sequence[str], task: str) -> str:
    return f"{WELCOME}\n\n{room_line(receptacles)}\n\n{task_line(task)}"


def _look(world: World) -> str:
    here = world.furniture_here()
    if not here:
        return room_line([])  # before the first go to: upstream finds no furniture there
    return f"You are facing the {_list(here)}. Next to it, you see {listing(world.beside())}."


def _furniture(world: World, receptacle: str) -> str:
    if not world.game.receptacle[receptacle].openable:
        return f"On the {receptacle}, you see {listing(world.contents(receptacle))}."
    if receptacle in world.opened:
        return f"The {receptacle} is open. In it, you see {listing(world.contents(receptacle))}."
    return f"The {receptacle} is closed."


def _thing(thing: Thing, states: Collection[str]) -> str:
    """Sentence on an examined thing: contents, else hot, cool or clean, else lit, else sliced. Only cool is "cold"."""
    name, sliced = thing.name, "sliced" in states
    if thing.holding is not None:
        return f"This is a normal {name}. In it, you see {listing(thing.holding)}."
    words = [word for word in ("hot", "cool") if word in states][:1]
    if "clean" in states:
        words.append("clean")
    if words:
        if words == ["cool"] and not sliced:
            words = ["cold"]
        return f"This is a {' and '.join(words)} {'sliced ' if sliced else ''}{name}."
    if thing.switchable and "lit" in states:
        return f"This {name} is on."
    return f"This is a sliced {name}." if sliced else f"There's nothing special about {name}."
