"""Actors that say they are on another host, with a LEMUR_HOME of their own; imported, so that these find it by name."""

from __future__ import annotations

import os
from typing import Any

from lemur_ray.rollout.actors.on_ray import _Actor


def actor_at(home: str) -> type[_Actor]:
    """The class of actors whose host has this LEMUR_HOME."""

    class Elsewhere(_Actor):
        rest_s = 0.0

        def __init__(self, make_policy: Any) -> None:
            os.environ["LEMUR_HOME"] = home
            super().__init__(make_policy)

        async def location(self) -> tuple[int, str, str]:
            return os.getpid(), "another host", "another node"

    return Elsewhere
