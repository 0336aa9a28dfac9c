"""Baseline policies without a model: a random admissible action, the expert's action.

They use ``request.hints``, which environments supply to policies with ``wants_hints`` and never to a model. Their
replies are deterministic (``repeats``). Knows nothing of any particular environment.
"""

from __future__ import annotations

import random

from lemur_ray.agents.messages import ChatReply, ChatRequest


class HintsMissing(Exception):
    """The environment gave no hint that a scripted policy needs."""


class RandomPolicy:
    """Draws one of ``hints["admissible"]`` with the turn's own seed."""

    name = "random"
    wants_hints = True
    repeats = True

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
    repeats = True

    def reply(self, request: ChatRequest) -> ChatReply:
        """Raises HintsMissing where the environment has no expert."""
        action = request.hints.get("expert")
        if action is None:
            raise HintsMissing(f"expert policy: hints {sorted(request.hints)} hold no 'expert' action")
        return ChatReply(str(action))
