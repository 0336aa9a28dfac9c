"""Tables of ALFWorld's household: furniture of each room, what fits where, and which actions apply to what.

Class names are ALFRED's (AI2-THOR object types). The facts (what fits where, what can be cleaned, heated, cooled,
opened) are those of alfworld 0.4.2's ``gen/constants.py``, restricted to the classes used here; a test compares them.
Room contents are chosen here: smaller than the real scenes, same classes. The long tables are in ``household.toml``."""

from collections.abc import Mapping
from dataclasses import dataclass

from lemur_ray.host.json_files import toml_beside

_TABLES = toml_beside(__file__, "household.toml")


def _names(table: str) -> dict[str, tuple[str, ...]]:
    """The rows of a table whose values are names separated by spaces."""
    return {key: tuple(names.split()) for key, names in _TABLES[table].items()}


TASK_LINES: Mapping[str, tuple[str, ...]] = _TABLES["task_lines"]
"""ALFWorld's wordings of a goal by task type; {object} and {target} are lower-case class names."""
TASK_TYPES = tuple(TASK_LINES)
HELP: str = _TABLES["help"]
"""The game's answer to ``help``."""
LIGHT = "look_at_obj_in_light"
TWO = "pick_two_obj_and_place"
LAMP = "DeskLamp"


@dataclass(frozen=True)
class Treatment:
    """A goal's action on its object (``verb``: clean, heat, cool), and the furniture class it needs (``tool``)."""

    verb: str
    tool: str


TREATMENTS: Mapping[str, Treatment] = {
    "pick_clean_then_place_in_recep": Treatment("clean", "SinkBasin"),
    "pick_heat_then_place_in_recep": Treatment("heat", "Microwave"),
    "pick_cool_then_place_in_recep": Treatment("cool", "Fridge"),
}
TOOL_OF_VERB: Mapping[str, str] = {t.verb: t.tool for t in TREATMENTS.values()}
TOOLS = frozenset((verb, tool.lower()) for verb, tool in TOOL_OF_VERB.items())
"""(verb, furniture class in lower case) pairs: what cleans, heats and cools in alfworld 0.4.2."""
ROOMS: Mapping[str, Mapping[str, tuple[int, int]]] = _TABLES["rooms"]
"""By room and furniture class, the minimum and maximum number of pieces in a generated game."""
STOCK: Mapping[str, tuple[str, ...]] = _names("stock")
"""Room -> classes of the small things that a generated game may place in it."""
ROOMS_OF_TASK: Mapping[str, tuple[str, ...]] = _names("rooms_of_task")
"""Task type -> rooms it is played in. A room listed twice is drawn twice as often."""
LAMP_SPOTS: Mapping[str, tuple[str, ...]] = _names("lamp_spots")
NEVER_TARGET = frozenset({"StoveBurner", "CoffeeMachine", "Toaster", "ToiletPaperHanger", "TowelHolder"})
OPENABLE = frozenset({"Fridge", "Cabinet", "Microwave", "Drawer", "Safe"})
NOVEL_OBJECTS = frozenset(
    {*("Egg", "Spatula", "Statue", "Laptop", "Candle", "Plate", "Fork", "Pillow", "SprayBottle", "CreditCard")}
)
"""Ten classes that are goal objects only in the split novel_object; elsewhere they are clutter."""
_ON_TABLES = frozenset(thing for things in STOCK.values() for thing in things) - {"Towel", "Pillow"}
FITS: Mapping[str, frozenset[str]] = {
    **dict.fromkeys(("CounterTop", "CoffeeTable", "DiningTable", "SideTable"), _ON_TABLES),
    **{furniture: frozenset(things) for furniture, things in _names("fits").items()},
}
"""Furniture class -> classes of the small things that it can hold."""
TREATABLE: Mapping[str, frozenset[str]] = {
    "clean": FITS["SinkBasin"] - {"HandTowel"},
    "heat": frozenset({"Plate", "Egg", "Cup", "Apple", "Tomato", "Bread", "Potato", "Mug"}),
    "cool": FITS["Fridge"],
}
"""Verb -> classes of the small things that it works on."""


def class_names() -> list[str]:
    """Sorted names of all furniture and thing classes, in lower case as the game spells them."""
    furniture = {name for pieces in ROOMS.values() for name in pieces}
    things = {name for stock in STOCK.values() for name in stock}
    return sorted(name.lower() for name in furniture | things | {LAMP})
