"""The toy of a line on which somebody outside is asked before every step; in a module of its own, found by its name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import gymnasium

from lemur_ray.agents.external_calls import external_call
from tests.rollout.toy import LineEnv


class AskingEnv(LineEnv):
    ask: ClassVar[Callable[[], None]] = staticmethod(lambda: None)

    def step(self, reply: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        with external_call("teacher") as count:
            AskingEnv.ask()
            count(prompt_tokens=50, completion_tokens=5)
        return super().step(reply)


gymnasium.register("toy/Asking-v0", AskingEnv)
