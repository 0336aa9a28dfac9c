"""Message: the gymnasium space of all Unicode texts, for observations and for a model's raw replies.

gymnasium's own ``Text`` only has letters and digits of a bounded length."""

from typing import Any

import gymnasium
import numpy as np

_SAMPLE_LENGTH = 64
_SAMPLE_RANGES = ((0x20, 0x7F), (0x20, 0x7F), (0x09, 0x0B), (0xA1, 0x250), (0x4E00, 0x4F00), (0x1F600, 0x1F640))
"""Half-open ranges of code points for samples; printable ASCII is twice as likely as any other."""


class Message(gymnasium.Space[str]):
    """All strings that can be encoded as UTF-8, that is, without lone surrogates. Two message spaces are equal."""

    def __init__(self, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        return False

    def sample(self, mask: Any | None = None, probability: Any | None = None) -> str:
        """A random text of at most 64 characters, perhaps empty or with line breaks. Raises ValueError for masks."""
        if mask is not None or probability is not None:
            raise ValueError("Message.sample takes no mask and no probability")
        length = int(self.np_random.integers(0, _SAMPLE_LENGTH + 1))
        ranges = self.np_random.integers(0, len(_SAMPLE_RANGES), size=length)
        return "".join(chr(int(self.np_random.integers(*_SAMPLE_RANGES[i]))) for i in ranges)

    def contains(self, x: Any) -> bool:
        return isinstance(x, str) and is_unicode(x)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message)

    def __hash__(self) -> int:
        return hash(Message)

    def __repr__(self) -> str:
        return "Message()"


def is_unicode(text: str) -> bool:
    """Whether the text can be encoded as UTF-8. Python strings may contain lone surrogates, which cannot."""
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)
