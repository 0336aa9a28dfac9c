"""Rules that end an episode early: too many steps, unparsable replies in a row, or the same action again and again.

After libwebarena 0.0.4, ``early_stop``, which scores the reason as the agent's answer."""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from envs.webarena.actions.action import Action, Kind, equivalent

ANSWER = "Early stop: {reason}"


class StopKind(StrEnum):
    """Names of the rules that end an episode early."""

    MAX_STEPS = "max_steps"
    PARSING_FAILURE = "parsing_failure"
    REPEATING = "repeating"


@dataclass(frozen=True)
class Stop:
    """Early end of an episode: the rule that applied, and its reason in words, scored as the agent's answer."""

    kind: StopKind
    reason: str


@dataclass(frozen=True)
class EarlyStop:
    """Thresholds of the early-stop rules, each a number of actions. Forks of WebArena's code use ``repeating`` 5."""

    max_steps: int = 30
    parsing_failure: int = 3
    repeating: int = 3

    def check(self, actions: Sequence[Action]) -> Stop | None:
        """The early stop that applies after ``actions`` (of the whole episode, oldest first); None if none does."""
        if len(actions) >= self.max_steps:
            return Stop(StopKind.MAX_STEPS, f"Reach max steps {self.max_steps}")
        newest = actions[-self.parsing_failure :]
        if len(newest) >= self.parsing_failure and all(action.kind is Kind.NONE for action in newest):
            return Stop(StopKind.PARSING_FAILURE, f"Failed to parse actions for {self.parsing_failure} times")
        if not actions:
            return None
        last, newest = actions[-1], actions[-self.repeating :]
        if last.kind is Kind.TYPE:
            if sum(equivalent(action, last) for action in actions) >= self.repeating:
                return Stop(StopKind.REPEATING, f"Same typing action for {self.repeating} times")
        elif len(newest) >= self.repeating and all(equivalent(action, last) for action in newest):
            return Stop(StopKind.REPEATING, f"Same action for {self.repeating} times")
        return None
