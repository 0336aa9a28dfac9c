"""Runs a solution, the policy's code, in its own process, where a grader calls its functions.

Expected values, tests and the grader are never in that process; it returns values as JSON with their exact types
(``inside/payload/plain_values.py``). Exit codes and printed output are ignored. Compares nothing itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lemur_ray.sandbox.programs import Failure, Program
from lemur_ray.sandbox.sandbox import Blame, Sandbox


@dataclass(frozen=True)
class Answer:
    """Result of a call of the solution: ``value`` (encoded by ``payload/plain_values.py``), or None and why."""

    value: list[Any] | None
    failure: Failure | None = None
    """Why the process gave no answer, if it gave none."""
    blame: Blame | None = None
    """Whose fault ``failure`` is; None if unknown."""
    raised: str = ""
    """The name of the exception that the call raised; the policy's code may choose it."""

    @property
    def fault(self) -> str:
        """Why there is no value, as text: ``failure`` or ``raised``; empty if there is a value."""
        return self.failure or self.raised


class SolutionProcess(Program):
    """A process in ``sandbox`` with the policy's ``code`` loaded. ``loaded``: the answer to loading it, which may be a
    failure. ``time_s`` and ``options``: limits and environment, as for ``Program``, whose errors it raises."""

    def __init__(self, sandbox: Sandbox, code: str, *, time_s: float = 10.0, **options: Any) -> None:
        super().__init__(sandbox, "solution", time_s=time_s, **options)
        self.loaded = self.ask({"code": code})

    def ask(self, order: Mapping[str, Any]) -> Answer:
        """Send an order (see the table in ``inside/payload/solution.py``) and return the result. Exceptions, time-outs
        and crashes of the code are fields of the answer, never raised."""
        reply = self.exchange(order)
        if reply.message is None:
            return Answer(None, reply.failure, reply.blame)
        if "raised" in reply.message:
            return Answer(None, raised=str(reply.message["raised"])[:200])
        return Answer(reply.message.get("value"))
