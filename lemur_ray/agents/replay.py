"""The replay policy: it repeats the replies of a recording, whatever the environment answers.

Some recordings store parsed actions instead of replies. Environments with the option ``recorded`` therefore take a
reply as the action itself. Knows no environment and no format.
"""

from __future__ import annotations

from typing import Any

from lemur_ray.agents.messages import ChatReply, ChatRequest, ContextOverflow
from lemur_ray.agents.recording import Recording


class TurnCounter:
    """Counts the turns of each episode by its id, because requests may omit past turns.

    Every turn ends with a user message: a request with no more of them than the episode's first one starts it (again,
    for example after a fault of the infrastructure). An opening may have several, as worked examples.
    """

    def __init__(self) -> None:
        self._turns: dict[str, tuple[int, int]] = {}
        """Turn and messages of the opening, by episode."""

    def of(self, request: ChatRequest) -> int:
        """The turn (0-based) that a request is about."""
        if request.turn is not None:
            return request.turn
        users = sum(message.role == "user" for message in request.messages)
        turn, opening = self._turns.get(request.episode, (-1, users))
        turn = 0 if users <= opening else turn + 1
        self._turns[request.episode] = turn, opening
        return turn


class ReplayPolicy:
    """Replies with a recording's turns. The request names the episode."""

    wants_hints = False
    repeats = True

    def __init__(self, recording: Recording[Any], name: str = "replay") -> None:
        self.name, self.recording = name, recording
        self._turns = TurnCounter()

    def reply(self, request: ChatRequest) -> ChatReply:
        """The recorded reply. Raises KeyError for an unknown episode, ContextOverflow as recorded."""
        episode = self.recording.of(request.episode)
        turn = self._turns.of(request)
        if turn < len(episode.turns):
            return ChatReply(episode.turns[turn].reply)
        if episode.overflow is not None:
            raise ContextOverflow(f"the log ends after {len(episode.turns)} turns: {episode.overflow}")
        return ChatReply(episode.afterwards)
