"""The same game in other words: furniture and objects trade names, so that nothing in it can be known by heart.

A model trained on such games has to read the room line, the goal and what it sees; what is usual in a household (a mug
is in the cabinet, the shelf comes after the safe) no longer helps. The things a rule depends on keep their names: the
sinkbasin cleans, the microwave heats, the fridge cools, the desklamp lights. Knows nothing of games or of play.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from envs.alfworld.catalogue import FITS, LAMP, TOOL_OF_VERB
from lemur_ray.agents.messages import Message

_KEPT = {LAMP.lower(), *(tool.lower() for tool in TOOL_OF_VERB.values())}
NAMES = tuple(sorted({n.lower() for n in (*FITS, *(o for objects in FITS.values() for o in objects))} - _KEPT))
"""Every name that may be traded for another one."""
_WORD = re.compile(r"\b(" + "|".join(sorted(NAMES, key=len, reverse=True)) + r")\b")


def renamed(messages: Sequence[Message], rng: random.Random) -> tuple[Message, ...]:
    """The conversation with all names exchanged by one permutation drawn from ``rng``."""
    new_name = dict(zip(NAMES, rng.sample(NAMES, len(NAMES)), strict=True))
    return tuple(Message(m.role, _WORD.sub(lambda match: new_name[match[1]], m.content)) for m in messages)
