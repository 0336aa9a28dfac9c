"""A toy environment that can do everything an environment must not: raise, hang, exit, lie about its types.

Its protocol: the model says ``right`` until it has said so ``length`` times; ``left`` goes back; all else is no action.
Registered at import, so ``tests.rollout.toy:toy/Line-v0`` works in any process, an actor's too.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import gymnasium

from lemur_ray.agents.baselines.scripted import ExpertPolicy
from lemur_ray.agents.messages import ChatReply, ChatRequest, Sampling
from lemur_ray.agents.trajectory import Episode, Task
from lemur_ray.rollout.attempt import EpisodeLimits
from lemur_ray.rollout.ledger import Ledger
from lemur_ray.rollout.progress import Progress
from lemur_ray.rollout.runner import run_episodes
from lemur_ray.rollout.schedule.episode_plan import EpisodePlan
from lemur_ray.rollout.schedule.retries import RetryPolicy
from lemur_ray.rollout.threads import Pool
from lemur_ray.sandbox.sandbox import SandboxDestroyed, SandboxFileError

ENV_ID = "tests.rollout.toy:toy/Line-v0"
PATIENT = EpisodeLimits()
AT_ONCE = RetryPolicy(unreachable_delay_s=0.0)
closed: list[str] = []
"""Names of the tasks whose environment was closed, in this process."""


class LineEnv(gymnasium.Env[str, str]):
    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.options = options or {}
        self.at, self.seed = 0, seed
        self.fault("reset")
        told = f", epoch {self.options['epoch']}" if "epoch" in self.options else ""
        return f"seed {seed}{told}", {"system": "Walk.", **self.hints(), **self.options.get("reset_info", {})}

    def hints(self) -> dict[str, Any]:
        return {"hints": {"admissible": ["left", "right"], "expert": "right"}} if self.options.get("hints") else {}

    def step(self, reply: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        self.fault("step")
        action = reply.strip() if reply.strip() in ("left", "right") else None
        self.at += {"right": 1, "left": -1, None: 0}[action]
        solved = self.at >= self.options.get("length", 3)
        info = {"action": action, "valid": action is not None, "solved": solved, **self.hints()}
        info |= self.options.get("step_info", {})
        fell = self.at < -5
        return f"at {self.at}" if action else "not an action", float(solved), solved or fell, False, info

    def fault(self, where: str) -> None:
        match self.options.get(where):
            case "raise":
                raise RuntimeError("the toy broke")
            case "raise once" if not os.path.exists(self.options["mark"]):
                open(self.options["mark"], "w").close()
                raise RuntimeError("the toy broke once")
            case "hang":
                threading.Event().wait()
            case "exit":
                sys.exit(3)
            case "destroyed by the policy":
                raise SandboxDestroyed("its own processes", "policy")
            case "destroyed by the machine":
                raise SandboxDestroyed("no power", "infra")
            case "unreadable":
                raise SandboxFileError("a path too long")
            case "kill once" if not os.path.exists(self.options["mark"]):
                open(self.options["mark"], "w").close()
                os.kill(os.getpid(), signal.SIGKILL)

    def close(self) -> None:
        closed.append(self.options.get("name", ""))
        self.fault("close")


gymnasium.register("toy/Line-v0", LineEnv)


def toy_task(name: str = "t0", max_turns: int = 5, **options: Any) -> Task:
    return Task("toy", name, ENV_ID, "line", {"name": name, **options}, max_turns)


class SlowExpert(ExpertPolicy):
    """An expert that takes its time over every reply, as a model does."""

    def __init__(self, latency_s: float = 1.0) -> None:
        self.latency_s = latency_s

    def reply(self, request: ChatRequest) -> ChatReply:
        time.sleep(self.latency_s)
        return super().reply(request)


class WrongPolicy(ExpertPolicy):
    def reply(self, request: ChatRequest) -> ChatReply:
        return ChatReply("nowhere")


def run(
    pool: Pool,
    tasks: list[Task],
    path: Path,
    *,
    epochs: int = 1,
    limits: EpisodeLimits = PATIENT,
    retries: RetryPolicy = AT_ONCE,
) -> list[Episode]:
    """Episodes of toy tasks, played in this process and kept in a ledger at ``path``."""
    plan = EpisodePlan(tasks, epochs=epochs, policy="p", recipe="r", sampling=Sampling(), limits=limits)
    with Ledger(path) as ledger:
        progress = Progress(io.StringIO(), time.monotonic)
        return run_episodes(plan, pool, ledger, retries=retries, progress=progress, clock=time.monotonic)
