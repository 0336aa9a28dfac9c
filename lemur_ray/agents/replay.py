"""A policy that repeats the replies of a recording, whatever the environment answers.

Some recordings store parsed actions instead of replies: with the option ``recorded`` a reply is the action."""

from typing import Any

from lemur_ray.agents.messages import ChatReply, ChatRequest, ContextOverflow
from lemur_ray.agents.recording import Recording


class TurnCounter:
    """Counts the turns of each episode by its requests, which may omit past turns. A request with no more user messages
    than the episode's first one starts the episode again, for example after an infrastructure error."""

    def __init__(self) -> None:
        self._turns: dict[str, tuple[int, int]] = {}
        """Episode id -> present turn, and number of user messages in the episode's first request."""

    def of(self, request: ChatRequest) -> int:
        """The turn, from 0, that the request is for: ``request.turn`` if set, else the number of its earlier calls."""
        if request.turn is not None:
            return request.turn
        users = sum(message.role == "user" for message in request.messages)
        turn, opening = self._turns.get(request.episode, (-1, users))
        turn = 0 if users <= opening else turn + 1
        self._turns[request.episode] = turn, opening
        return turn


class ReplayPolicy:
    """Replies with the recorded turns of the episode that the request's ``episode`` identifies; needs no model.
    ``name``: its name in episode keys."""

    wants_hints = False
    repeats = True

    def __init__(self, recording: Recording[Any], name: str = "replay") -> None:
        self.name, self.recording = name, recording
        self._turns = TurnCounter()

    def reply(self, request: ChatRequest) -> ChatReply:
        """The recorded reply of the request's turn; after the last one, the recording's ``afterwards`` text. Raises
        KeyError for an episode that is not recorded, ContextOverflow after the last turn if it was so recorded."""
        episode = self.recording.of(request.episode)
        turn = self._turns.of(request)
        if turn < len(episode.turns):
            return ChatReply(episode.turns[turn].reply, tool_calls=episode.turns[turn].tool_calls)
        if episode.overflow is not None:
            raise ContextOverflow(f"the log ends after {len(episode.turns)} turns: {episode.overflow}")
        return ChatReply(episode.afterwards)
