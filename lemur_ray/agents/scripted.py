"""Policies without a model: a random admissible action, the expert's action, fixed replies.

The first two live on ``request.hints``, which the environment gives because they ask for them (``wants_hints``); a
model never sees hints. They are the baselines of every report. Knows nothing of any particular environment.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from lemur_ray.agents.messages import ChatReply, ChatRequest
from lemur_ray.agents.replay import Turns


class HintsMissing(Exception):
    """The environment gave no hint that a scripted policy needs."""


class RandomPolicy:
    """Draws one of ``hints["admissible"]`` with the turn's own seed."""

    name = "random"
    wants_hints = True

    def reply(self, request: ChatRequest) -> ChatReply:
        """Raises HintsMissing where there is nothing to draw from."""
        admissible = request.hints.get("admissible")
        if not admissible:
            raise HintsMissing(
                f"random policy: hints {sorted(request.hints)} hold no 'admissible' actions to draw from"
            )
        return ChatReply(random.Random(request.sampling.seed).choice(list(admissible)))


class ExpertPolicy:
    """Repeats ``hints["expert"]``."""

    name = "expert"
    wants_hints = True

    def reply(self, request: ChatRequest) -> ChatReply:
        """Raises HintsMissing where the environment has no expert."""
        action = request.hints.get("expert")
        if action is None:
            raise HintsMissing(f"expert policy: hints {sorted(request.hints)} hold no 'expert' action")
        return ChatReply(str(action))


class ScriptedPolicy:
    """Says ``replies`` turn by turn, and the last one for ever after."""

    wants_hints = False

    def __init__(self, replies: Sequence[str], name: str = "scripted") -> None:
        if not replies:
            raise ValueError("a scripted policy needs at least one reply")
        self.name = name
        self._replies = tuple(replies)
        self._turns = Turns()

    def reply(self, request: ChatRequest) -> ChatReply:
        return ChatReply(self._replies[min(self._turns.of(request), len(self._replies) - 1)])
