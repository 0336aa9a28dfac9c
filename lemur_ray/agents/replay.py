"""The policy that plays a recording again: it says what was said, whatever the environment answers.

An environment that is told ``recorded`` takes a reply as the recorded action itself and parses nothing, where a
recording holds what a parser made of the model's words and not the words. Knows no environment and no format.
"""

from __future__ import annotations

from typing import Any

from lemur_ray.agents.messages import ChatReply, ChatRequest, ContextOverflow
from lemur_ray.agents.recording import Recording


class TurnCounter:
    """Counts the turns of each episode by its id, because what a policy is shown of the past may be cut.

    Every turn ends with the environment's message: a request with no more of them than an episode's first one begins
    it (anew, for example after a fault that was not the policy's). An opening may hold several, as worked examples.
    """

    def __init__(self) -> None:
        self._turns: dict[str, tuple[int, int]] = {}
        """Turn and messages of the opening, by episode."""

    def of(self, request: ChatRequest) -> int:
        """The turn (0-based) that a request is about."""
        if request.turn is not None:
            return request.turn
        said = sum(message.role == "user" for message in request.messages)
        turn, opening = self._turns.get(request.episode, (-1, said))
        turn = 0 if said <= opening else turn + 1
        self._turns[request.episode] = turn, opening
        return turn


class ReplayPolicy:
    """Says, turn by turn, what a recording says. Which episode it is stands in the request."""

    wants_hints = False
    repeats = True

    def __init__(self, recording: Recording[Any], name: str = "replay") -> None:
        self.name, self.recording = name, recording
        self._turns = TurnCounter()

    def reply(self, request: ChatRequest) -> ChatReply:
        """Raises KeyError for an episode that is not recorded, ContextOverflow where its model could not answer."""
        episode = self.recording.of(request.episode)
        turn = self._turns.of(request)
        if turn < len(episode.turns):
            return ChatReply(episode.turns[turn].reply)
        if episode.overflow is not None:
            raise ContextOverflow(f"the log ends after {len(episode.turns)} turns: {episode.overflow}")
        return ChatReply(episode.afterwards)
