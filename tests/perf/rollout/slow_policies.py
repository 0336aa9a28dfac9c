"""Policies that take their time, importable by the workers of a Ray cluster."""

import os
import threading
import time
from pathlib import Path

from lemur_ray.agents.messages import ChatReply, ChatRequest
from tests.rollout.scripted_policy import ScriptedPolicy


class Slow(ScriptedPolicy):
    """Takes a second over every reply, as a model does, and goes on looking around to the last turn."""

    def __init__(self, replies: tuple[str, ...]) -> None:
        super().__init__(replies)

    def reply(self, request: ChatRequest) -> ChatReply:
        time.sleep(1.0)
        return super().reply(request)


class Waiting(ScriptedPolicy):
    """Answers nobody until it may; counts in a file who has asked."""

    def __init__(self, folder: Path, replies: tuple[str, ...]) -> None:
        super().__init__(replies)
        self.folder, self.lock, self.asked = folder, threading.Lock(), 0

    def reply(self, request: ChatRequest) -> ChatReply:
        with self.lock:
            self.asked += 1
            (self.folder / f"asked-{os.getpid()}").write_text(str(self.asked))
        while not (self.folder / "go").exists():
            time.sleep(1.0)
        return super().reply(request)
