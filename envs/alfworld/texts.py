"""Every sentence the game says: pure functions of names. Knows no rules.

The wordings are ALFWorld's (alfworld 0.4.2, ``alfred.twl2``, MIT): a text here is right when textworld says the same,
and the tests compare them. There is no other freedom in this file.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

NOTHING_HAPPENS = "Nothing happens."
WELCOME = "-= Welcome to TextWorld, ALFRED! =-"
HELP = "\n".join(
    [
        "Available commands:",
        "  look:                             look around your current location",
        "  inventory:                        check your current inventory",
        "  go to (receptacle):               move to a receptacle",
        "  open (receptacle):                open a receptacle",
        "  close (receptacle):               close a receptacle",
        "  take (object) from (receptacle):  take an object from a receptacle",
        "  move (object) to (receptacle):  place an object in or on a receptacle",
        "  examine (something):              examine a receptacle or an object",
        "  use (object):                     use an object",
        "  heat (object) with (receptacle):  heat an object using a receptacle",
        "  clean (object) with (receptacle): clean an object using a receptacle",
        "  cool (object) with (receptacle):  cool an object using a receptacle",
        "  slice (object) with (object):     slice an object using a sharp object",
        "",
    ]
)


def listing(names: Sequence[str]) -> str:
    """``a mug 1``, ``a mug 1, and a pen 2``, ``a mug 1, a pen 2, and a pen 1``, or ``nothing``."""
    if not names:
        return "nothing"
    items = [f"a {name}" for name in names]
    return items[0] if len(items) == 1 else f"{', '.join(items[:-1])}, and {items[-1]}"


def room_line(receptacles: Sequence[str]) -> str:
    return f"You are in the middle of a room. Looking quickly around you, you see {listing(receptacles)}."


def task_line(task: str) -> str:
    return f"Your task is to: {task}."


def opening(receptacles: Sequence[str], task: str) -> str:
    return f"{WELCOME}\n\n{room_line(receptacles)}\n\n{task_line(task)}"


def lost() -> str:
    """``look`` before the first ``go to``: upstream finds no furniture there."""
    return room_line([])


def facing(receptacle: str) -> str:
    return f"You are facing the {receptacle}. Next to it, you see nothing."


def surface(receptacle: str, things: Sequence[str]) -> str:
    return f"On the {receptacle}, you see {listing(things)}."


def closed(receptacle: str) -> str:
    return f"The {receptacle} is closed."


def inside(receptacle: str, things: Sequence[str]) -> str:
    return f"The {receptacle} is open. In it, you see {listing(things)}."


def thing(name: str, states: Collection[str]) -> str:
    """What one sees on looking closely. ``states`` are of clean, hot, cool; what is only cool is called cold."""
    if "clean" in states and ("hot" in states or "cool" in states):
        return f"This is a {'hot' if 'hot' in states else 'cool'} and clean {name}."
    for state, word in (("hot", "hot"), ("clean", "clean"), ("cool", "cold")):
        if state in states:
            return f"This is a {word} {name}."
    return f"There's nothing special about {name}."
