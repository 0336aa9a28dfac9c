"""Baseline policies without a model: no answer at all, a random admissible action, the expert's action.

They read ``request.hints``, which environments supply to policies with ``wants_hints`` and never to a model. The same
request always gets the same reply (``repeats``)."""

import random

from lemur_ray.agents.messages import ChatReply, ChatRequest


class HintsMissing(Exception):
    """Raised if a request lacks the hint that a scripted policy needs (an expert's action, the admissible actions); the
    message lists the hints that it has."""


class NoopPolicy:
    """A baseline that does nothing: every reply is empty."""

    name = "noop"
    wants_hints = False
    repeats = True

    def reply(self, request: ChatRequest) -> ChatReply:
        return ChatReply("")


class RandomPolicy:
    """Replies with a random action of ``hints["admissible"]``, drawn with the request's sampling seed."""

    name = "random"
    wants_hints = True
    repeats = True

    def reply(self, request: ChatRequest) -> ChatReply:
        """A random admissible action; empty without hints. Raises HintsMissing if the hints list no actions."""
        admissible = request.hints.get("admissible")
        if not admissible and request.hints:
            raise HintsMissing(
                f"random policy: hints {sorted(request.hints)} hold no 'admissible' actions to draw from"
            )
        admissible = admissible or [""]
        return ChatReply(random.Random(request.sampling.seed).choice(list(admissible)))


class ExpertPolicy:
    """Replies with ``hints["expert"]``, the action of the environment's expert."""

    name = "expert"
    wants_hints = True
    repeats = True

    def reply(self, request: ChatRequest) -> ChatReply:
        """The expert's action. Raises HintsMissing if the environment has no expert."""
        action = request.hints.get("expert")
        if action is None:
            raise HintsMissing(f"expert policy: hints {sorted(request.hints)} hold no 'expert' action")
        return ChatReply(str(action))
