"""The functions that a model may call from its code, and the game commands of the ALFWorld subset's functions.

Names, parameters and order are MINT's; the descriptions are this project's, used if there are no recorded runs."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Tool:
    """A function that the model's code can call, as the prompt describes it. Arguments and result are strings."""

    name: str
    parameters: tuple[str, ...]
    description: str
    command: Callable[..., str] | None = None
    """Function from the arguments to the game's command; None except in the ALFWorld subset."""

    @property
    def signature(self) -> str:
        return f"{self.name}({', '.join(f'{parameter}: str' for parameter in self.parameters)}) -> str"


WIKIPEDIA = Tool(
    "wikipedia_search",
    ("query",),
    "Looks a few words up in Wikipedia and returns the summaries of the best pages; print what it returns.",
)
"""The only tool of the five reasoning subsets."""


def _tool(name: str, parameters: tuple[str, ...], what: str, example: str, command: Callable[..., str]) -> Tool:
    return Tool(name, parameters, f"{what}, as in {example}", command)


_BOTH = ("object", "receptacle")

HOUSEHOLD: tuple[Tool, ...] = (
    _tool(
        "put", _BOTH, "Leaves what you carry in or on furniture", 'put("cup 2", "shelf 1")', "put {} in/on {}".format
    ),
    _tool("goto", ("receptacle",), "Walks to furniture and tells what is there", 'goto("desk 1")', "go to {}".format),
    _tool("take_from", _BOTH, "Picks a thing up", 'take_from("cup 2", "desk 1")', "take {} from {}".format),
    _tool("open_receptacle", ("receptacle",), "Opens furniture", 'open_receptacle("safe 1")', "open {}".format),
    _tool("toggle", ("object_or_receptacle",), "Switches a thing", 'toggle("desklamp 1")', "toggle {}".format),
    _tool("close_receptacle", ("receptacle",), "Closes furniture", 'close_receptacle("safe 1")', "close {}".format),
    _tool("clean", _BOTH, "Cleans what you carry", 'clean("fork 3", "sinkbasin 1")', "clean {} with {}".format),
    _tool("heat", _BOTH, "Heats what you carry", 'heat("potato 1", "microwave 1")', "heat {} with {}".format),
    _tool("cool", _BOTH, "Cools what you carry", 'cool("potato 1", "fridge 1")', "cool {} with {}".format),
    _tool("use", ("receptacle",), "Switches a lamp on", 'use("desklamp 1")', "use {}".format),
    _tool("look", (), "Tells again what is around you", "look()", lambda: "look"),
)
"""The eleven tools of the ALFWorld subset, in the order of their descriptions. No game supports ``toggle``."""


def tools_of(subset: str) -> tuple[Tool, ...]:
    """Tool functions of a subset: game commands for alfworld, none for humaneval and mbpp, else Wikipedia search."""
    if subset == "alfworld":
        return HOUSEHOLD
    return () if subset in ("humaneval", "mbpp") else (WIKIPEDIA,)
