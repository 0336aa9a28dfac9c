"""Processors and memory that the actor of episodes requests from its Ray cluster.

The values are means over episodes, which mostly wait for a model, plus a margin for their busiest turn; limits of
sandboxes, which episodes do not reach, are higher. Measured by ``tests/perf/rollout/episode_takes.py``."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from lemur_ray.host.renamed_names import renamed_names

MIB = 2**20


@dataclass(frozen=True)
class Resources:
    """Resource request of one or several episodes. ``cpus``: number of processors that they keep busy on average;
    ``memory_bytes``. Can be added, and multiplied by a number of episodes."""

    cpus: float = 0.01
    memory_bytes: int = 4 * MIB

    def __mul__(self, episodes: int) -> "Resources":
        return Resources(self.cpus * episodes, self.memory_bytes * episodes)

    def __add__(self, other: "Resources") -> "Resources":
        return Resources(self.cpus + other.cpus, self.memory_bytes + other.memory_bytes)

    def minimum(self, other: "Resources") -> "Resources":
        """The smaller value of both requests for each field."""
        return Resources(min(self.cpus, other.cpus), min(self.memory_bytes, other.memory_bytes))

    at_most = minimum  # its name in the last release


PROCESS = Resources(0.1, 256 * MIB)
"""Request of an actor process itself, with the modules of environments"""
TEXT = Resources()
"""Request of an episode without processes of its own: a question, a text game, a query."""
COMMANDS = Resources(0.05, 32 * MIB)
"""Request of an episode whose sandbox runs one short program at a time: 13 MB while idle, 0.02 to 0.08 CPU s a turn."""
PROGRAMS = Resources(0.1, 128 * MIB)
"""Request of an episode whose sandbox runs compilers, or large Python imports (numpy, pandas: 75 MB, 0.34 CPU s)."""
BROWSER = Resources(0.25, 256 * MIB)
"""Request of an episode in a browser context, with its share of the browser process."""


if not TYPE_CHECKING:
    __getattr__ = renamed_names(__name__, Takes="Resources")
