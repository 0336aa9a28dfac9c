"""A conversation to be trained on, and the rules a well-formed one keeps.

The one shape every reader produces (specified as {dataset, id, messages}): at most one system turn, first; then user
and assistant by turns, beginning with user. Knows nothing of tokens or files.
"""

from __future__ import annotations

from dataclasses import dataclass

from lemur_ray.agents.messages import Message


@dataclass(frozen=True)
class Conversation:
    """One training example. ``dataset`` names where it came from."""

    dataset: str
    id: str
    messages: tuple[Message, ...]


def fault(conversation: Conversation) -> str | None:
    """Why a conversation cannot be trained on, as a short rule name, or None."""
    messages = conversation.messages
    turns = messages[1:] if messages and messages[0].role == "system" else messages
    if not turns:
        return "no_turns"
    if any(not m.content.strip() for m in messages):
        return "empty_content"
    if any(m.role == "system" for m in turns):
        return "system_turn_not_first"
    if any(m.role != ("user", "assistant")[i % 2] for i, m in enumerate(turns)):
        return "roles_do_not_alternate"
    if len(turns) < 2:
        return "no_assistant_turn"
    return None
