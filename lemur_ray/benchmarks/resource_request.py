"""Resource requests of episodes: processors and memory that an actor requests from its cluster.

The values are means over episodes, which mostly wait for a model, plus a margin for their busiest turn. A limit that
episodes never reach (a sandbox's memory) is no request. Measured by ``tests/perf/rollout/episode_takes.py``.
"""

from __future__ import annotations

from dataclasses import dataclass

MIB = 2**20


@dataclass(frozen=True)
class Resources:
    """Resource request of one episode or several. ``cpus``: processors busy on average."""

    cpus: float = 0.01
    memory_bytes: int = 4 * MIB

    def __mul__(self, episodes: int) -> Resources:
        return Resources(self.cpus * episodes, self.memory_bytes * episodes)

    def __add__(self, other: Resources) -> Resources:
        return Resources(self.cpus + other.cpus, self.memory_bytes + other.memory_bytes)

    def minimum(self, other: Resources) -> Resources:
        """The smaller of both values, each."""
        return Resources(min(self.cpus, other.cpus), min(self.memory_bytes, other.memory_bytes))


PROCESS = Resources(0.1, 256 * MIB)
"""An actor process itself, with the modules of environments"""
TEXT = Resources()
"""A question, a text game, a query: no process of its own."""
COMMANDS = Resources(0.05, 32 * MIB)
"""A sandbox in which short programs run, one at a time: 13 MB while it waits, 0.02 to 0.08 CPU s a turn."""
PROGRAMS = Resources(0.1, 128 * MIB)
"""A sandbox with a Python that has imported what is large (75 MB with numpy and pandas, 0.34 CPU s), or compilers."""
BROWSER = Resources(0.25, 256 * MIB)
"""A browser's context, and its part of the browser."""
