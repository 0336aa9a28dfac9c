"""The conversations of a chat file, of which the first invalid row is raised."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from lemur_ray.instruct.conversation import Conversation, checked_conversations


def read_conversations(file: str | Path) -> Iterator[Conversation]:
    """Yield the conversations of a file. Raises ValueError for the first invalid row."""
    for one in checked_conversations(file):
        if isinstance(one, ValueError):
            raise one
        yield one
