"""Tables of ALFWorld's household: furniture of each room, what fits where, and which actions apply to what.

Class names are ALFRED's (AI2-THOR object types). The facts (what fits where, what can be
cleaned, heated, cooled, opened) are those of alfworld 0.4.2's ``gen/constants.py``, restricted to the classes used
here; a test compares them. Room contents are chosen here: smaller than the real scenes, same classes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

TASK_TYPES = (
    "pick_and_place_simple",
    "look_at_obj_in_light",
    "pick_clean_then_place_in_recep",
    "pick_heat_then_place_in_recep",
    "pick_cool_then_place_in_recep",
    "pick_two_obj_and_place",
)
LIGHT = "look_at_obj_in_light"
TWO = "pick_two_obj_and_place"
LAMP = "DeskLamp"

TASK_LINES: Mapping[str, tuple[str, ...]] = {
    "pick_and_place_simple": ("put a {object} in {target}", "put some {object} on {target}"),
    "look_at_obj_in_light": ("look at {object} under the {target}", "examine the {object} with the {target}"),
    "pick_clean_then_place_in_recep": (
        "put a clean {object} in {target}",
        "clean some {object} and put it in {target}",
    ),
    "pick_heat_then_place_in_recep": ("put a hot {object} in {target}", "heat some {object} and put it in {target}"),
    "pick_cool_then_place_in_recep": ("put a cool {object} in {target}", "cool some {object} and put it in {target}"),
    "pick_two_obj_and_place": ("put two {object} in {target}", "find two {object} and put them in {target}"),
}
"""ALFWorld's wordings of a goal by task type; {object} and {target} are lower-case class names."""


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

ROOMS: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "kitchen": {
        "Fridge": (1, 1), "Microwave": (1, 1), "SinkBasin": (1, 1), "CounterTop": (1, 3), "Cabinet": (2, 4),
        "Drawer": (1, 3), "StoveBurner": (1, 2), "GarbageCan": (1, 1), "DiningTable": (0, 1), "Shelf": (0, 2),
        "CoffeeMachine": (0, 1), "Toaster": (0, 1),
    },
    "bedroom": {
        "Bed": (1, 1), "Desk": (1, 2), "SideTable": (0, 2), "Drawer": (1, 4), "Dresser": (0, 1), "Shelf": (1, 3),
        "GarbageCan": (1, 1), "Safe": (0, 1), "LaundryHamper": (0, 1),
    },
    "livingroom": {
        "Sofa": (1, 1), "ArmChair": (1, 2), "CoffeeTable": (1, 1), "SideTable": (1, 2), "DiningTable": (0, 1),
        "Drawer": (1, 3), "Shelf": (0, 3), "GarbageCan": (1, 1), "Dresser": (0, 1), "Ottoman": (0, 1),
    },
    "bathroom": {
        "SinkBasin": (1, 2), "Toilet": (1, 1), "BathtubBasin": (0, 1), "CounterTop": (1, 1), "Cabinet": (1, 4),
        "GarbageCan": (1, 1), "Shelf": (0, 1), "Drawer": (0, 2), "ToiletPaperHanger": (1, 1), "TowelHolder": (0, 1),
    },
}  # fmt: skip
"""By room and furniture class, the minimum and maximum number of pieces in a generated game."""

STOCK: Mapping[str, tuple[str, ...]] = {
    "kitchen": (
        *("Apple", "Bread", "Egg", "Lettuce", "Potato", "Tomato", "Cup", "Mug", "Bowl", "Plate", "Pan", "Pot"),
        *("Fork", "Spoon", "Knife", "ButterKnife", "Spatula", "Ladle", "DishSponge", "SoapBottle"),
        *("SaltShaker", "PepperShaker", "Kettle", "WineBottle"),
    ),
    "bedroom": (
        *("AlarmClock", "Book", "CD", "CellPhone", "CreditCard", "KeyChain", "Laptop", "Mug", "Pen", "Pencil"),
        *("Pillow", "Bowl", "BaseballBat", "BasketBall", "TissueBox", "Box"),
    ),
    "livingroom": (
        *("Book", "Box", "CreditCard", "KeyChain", "Laptop", "Newspaper", "Pillow", "Plate", "RemoteControl"),
        *("Statue", "TissueBox", "Vase", "WateringCan", "Watch", "CellPhone"),
    ),
    "bathroom": (
        *("Candle", "Cloth", "SoapBar", "SoapBottle", "SprayBottle", "TissueBox", "ToiletPaper", "Towel"),
        *("HandTowel", "DishSponge"),
    ),
}
"""Room -> classes of the small things that a generated game may place in it."""

ROOMS_OF_TASK: Mapping[str, tuple[str, ...]] = {
    "pick_and_place_simple": ("kitchen", "bedroom", "livingroom", "bathroom"),
    "look_at_obj_in_light": ("bedroom", "livingroom"),
    "pick_clean_then_place_in_recep": ("kitchen", "kitchen", "bathroom"),
    "pick_heat_then_place_in_recep": ("kitchen",),
    "pick_cool_then_place_in_recep": ("kitchen",),
    "pick_two_obj_and_place": ("kitchen", "bedroom", "livingroom", "bathroom"),
}
"""Task type -> rooms it is played in. A room listed twice is drawn twice as often."""

LAMP_SPOTS: Mapping[str, tuple[str, ...]] = {
    "bedroom": ("Desk", "SideTable", "Dresser", "Shelf"),
    "livingroom": ("SideTable", "CoffeeTable", "Dresser"),
}
NEVER_TARGET = frozenset({"StoveBurner", "CoffeeMachine", "Toaster", "ToiletPaperHanger", "TowelHolder"})
OPENABLE = frozenset({"Fridge", "Cabinet", "Microwave", "Drawer", "Safe"})

NOVEL_OBJECTS = frozenset(
    {*("Egg", "Spatula", "Statue", "Laptop", "Candle", "Plate", "Fork", "Pillow", "SprayBottle", "CreditCard")}
)
"""Ten classes that are goal objects only in the split novel_object; elsewhere they are clutter."""


def _classes(names: str) -> frozenset[str]:
    return frozenset(names.split())


_TABLE = frozenset(thing for things in STOCK.values() for thing in things) - {"Towel", "Pillow"}
_SEAT = _classes("KeyChain Cloth RemoteControl Pillow Box Book Newspaper BasketBall CellPhone CreditCard Laptop")
_DRESSER = _classes(
    "Cloth ToiletPaper WateringCan Box Book Pen CreditCard CellPhone Laptop WineBottle Vase Pencil KeyChain Plate "
    "Watch TissueBox RemoteControl Cup CD Statue Candle Newspaper AlarmClock BasketBall SprayBottle Bowl Mug"
)

FITS: Mapping[str, frozenset[str]] = {
    "CounterTop": _TABLE,
    "CoffeeTable": _TABLE,
    "DiningTable": _TABLE,
    "SideTable": _TABLE,
    "Sofa": _SEAT,
    "ArmChair": _SEAT,
    "Ottoman": _SEAT,
    "Dresser": _DRESSER,
    "Desk": _DRESSER | {"SoapBottle"},
    "Bed": _classes("Pillow Newspaper Book BaseballBat BasketBall CellPhone Laptop"),
    "Safe": _classes("KeyChain Watch CellPhone CreditCard Vase Statue CD"),
    "LaundryHamper": _classes("Cloth"),
    "Fridge": _classes("Egg Tomato WineBottle Plate Pan Cup Apple Pot Bread Potato Bowl Lettuce Mug"),
    "Microwave": _classes("Potato Plate Egg Cup Apple Tomato Bowl Bread Mug"),
    "SinkBasin": _classes(
        "Cloth Egg Tomato SoapBar HandTowel Ladle Spatula Kettle Plate Pan Spoon Cup Apple Knife Pot Bowl Potato "
        "DishSponge Fork ButterKnife Lettuce Mug"
    ),
    "BathtubBasin": _classes("DishSponge HandTowel Cloth SoapBar"),
    "Cabinet": _classes(
        "Cloth ToiletPaper WateringCan Box Book SoapBar HandTowel Ladle WineBottle Vase Kettle Plate TissueBox Pan "
        "SaltShaker PepperShaker Cup CD Candle Pot Newspaper SoapBottle SprayBottle Bowl DishSponge Mug"
    ),
    "Drawer": _classes(
        "Cloth ToiletPaper WateringCan Book Pen CreditCard CellPhone SoapBar HandTowel Ladle Pencil Spatula KeyChain "
        "RemoteControl Watch TissueBox Spoon SaltShaker PepperShaker CD Candle Knife Newspaper SoapBottle SprayBottle "
        "DishSponge Fork ButterKnife"
    ),
    "Shelf": _classes(
        "ToiletPaper WateringCan Book CreditCard HandTowel WineBottle KeyChain Plate Watch TissueBox SaltShaker Cup CD "
        "Statue SprayBottle DishSponge Mug Cloth Box Pen CellPhone SoapBar Vase Pencil Kettle RemoteControl "
        "PepperShaker Candle Pot Newspaper AlarmClock SoapBottle Bowl"
    ),
    "GarbageCan": _classes(
        "Cloth ToiletPaper Egg Tomato Pen SoapBar WineBottle HandTowel Pencil TissueBox CD Apple Newspaper SoapBottle "
        "SprayBottle Potato Bread DishSponge Lettuce"
    ),
    "Toilet": _classes(
        "Cloth TissueBox ToiletPaper Candle Newspaper SoapBottle SprayBottle SoapBar DishSponge HandTowel"
    ),
    "StoveBurner": _classes("Pan Kettle Pot"),
    "CoffeeMachine": _classes("Mug"),
    "Toaster": frozenset(),
    "ToiletPaperHanger": _classes("ToiletPaper"),
    "TowelHolder": _classes("Towel"),
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
