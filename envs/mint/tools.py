"""The functions that a model may call from its code, and the game commands of the ALFWorld subset's functions.

Names, parameters and order are MINT's; the descriptions are this project's, used if there are no recorded runs."""

from collections.abc import Callable
from dataclasses import dataclass

from lemur_ray.host.json_files import toml_beside


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
HOUSEHOLD = tuple(
    Tool(**{**row, "command": row["command"].format}) for row in toml_beside(__file__, "wording.toml")["household"]
)
"""The eleven tools of the ALFWorld subset, in the order of their descriptions. No game supports ``toggle``."""


def tools_of(subset: str) -> tuple[Tool, ...]:
    """Tool functions of a subset: game commands for alfworld, none for humaneval and mbpp, else Wikipedia search."""
    if subset == "alfworld":
        return HOUSEHOLD
    return () if subset in ("humaneval", "mbpp") else (WIKIPEDIA,)
