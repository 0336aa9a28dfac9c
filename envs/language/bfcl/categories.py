"""Categories of BFCL: the option that chooses them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from envs.published_protocols import published_protocol
from lemur_ray.benchmarks.protocol_options import Tools

SINGLE_TURN = published_protocol("bfcl")

NOT_PLAYED = {
    "memory": "a question is about what the model stored in earlier conversations, each with a context of its own",
    "web_search": "its functions ask a search service on the web, which needs the network and a key",
    "format_sensitivity": "it asks questions of other categories again, and the leaderboard does not score it",
}
"""Reasons by the first letters of the names of categories"""


@dataclass(frozen=True)
class ChosenCategories(Tools):
    """Command-line options of a BFCL benchmark: which of the categories ``EVERY``, set by a subclass, are played.
    Raises ValueError for any other category."""

    EVERY: ClassVar[Sequence[str]] = ()
    categories: str = ""
    """Categories to play, separated by commas. Empty: all of the benchmark."""

    def __post_init__(self) -> None:
        if unknown := [one for one in self.played if one not in self.EVERY]:
            reasons = [why for name, why in NOT_PLAYED.items() if unknown[0].startswith(name)]
            problem = f"{unknown[0]} is not played here: {reasons[0]}" if reasons else f"no category {unknown[0]!r}"
            raise ValueError(f"--categories: {problem}; expected some of {', '.join(self.EVERY)}")

    @property
    def played(self) -> Sequence[str]:
        return [one.strip() for one in self.categories.split(",")] if self.categories else self.EVERY
