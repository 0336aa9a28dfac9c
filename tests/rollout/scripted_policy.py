"""The policy of fixed replies that tests play."""

from __future__ import annotations

from collections.abc import Sequence

from lemur_ray.agents.messages import ChatReply, ChatRequest
from lemur_ray.agents.replay import TurnCounter


class ScriptedPolicy:
    """Says ``replies`` turn by turn, and the last one for ever after."""

    wants_hints = False

    def __init__(self, replies: Sequence[str], name: str = "scripted") -> None:
        if not replies:
            raise ValueError("a scripted policy needs at least one reply")
        self.name = name
        self._replies = tuple(replies)
        self._turns = TurnCounter()

    def reply(self, request: ChatRequest) -> ChatReply:
        return ChatReply(self._replies[min(self._turns.of(request), len(self._replies) - 1)])
