"""A benchmark whose every episode lives in a sandbox of its own, for tests that shoot at sandboxes.

The model must say ``right`` as often as the task asks; each time its word is written down in the sandbox and the words
are counted there. ``$ COMMAND`` runs a command. Run as a program, this is ``jobs/agent_eval.py`` with this
benchmark: tasks carry the label in ``BOXES_RUN``, by which their sandboxes are found. ``reset_differs`` makes the
sandbox of the first attempt come back from its reset unlike it was (``mark``: a file that is there afterwards).
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium

from envs.intercode.shell.terminal import Terminal
from envs.text_env import Opening, TextEnv, Turn
from lemur_ray.agents.trajectory import Outcome, Task
from lemur_ray.benchmarks.contract import Benchmark, EvaluationRequest
from lemur_ray.sandbox.backends import slots
from lemur_ray.sandbox.sandbox import Limits, Sandbox, SandboxSpec, open_sandbox

ROOT = Path(__file__).resolve().parents[2]
ENV_ID = "tests.e2e.boxes:test/Box-v0"
BENCHMARK = "tests.e2e.boxes:BOXES"
MAX_TURNS = 8
LIMITS = Limits(time_s=30.0)


class BoxEnv(TextEnv):
    option_names = frozenset({"run", "length", "reset_differs", "mark"})

    def __init__(self) -> None:
        super().__init__()
        self._sandbox: Sandbox | None = None

    def begin(self, options: Mapping[str, Any]) -> Opening:
        self.close()
        self._length = int(options.get("length", 3))
        self._sandbox = open_sandbox(SandboxSpec(limits=LIMITS, run=options["run"]))
        if options.get("reset_differs"):
            mark = Path(options["mark"])
            first = not mark.exists()
            with mark.open("a") as file:
                file.write(f"{self.np_random.integers(10**9)}\n")
            if first:
                self._sandbox.first_hash = "of another tree"  # type: ignore[attr-defined]
            self._sandbox.reset()
        self._terminal = Terminal(self._sandbox, "/work", compat=False, limits=LIMITS)
        return Opening("Say right.", "You walk.")

    def respond(self, reply: str) -> Turn:
        word = reply.strip()
        if word.startswith("$ "):
            return Turn(self._terminal.run(word[2:]).text, word, valid=True)
        if word not in ("right", "left"):
            return Turn("Say right or left.", None, valid=False)
        output = self._terminal.run(f"echo {word} >> trail; grep -c right trail")
        if output.destroyed:
            return Turn(output.text, word, valid=True, finished=True, outcome=Outcome.SANDBOX_DESTROYED)
        done = int(output.text)
        return Turn(
            f"{done} of {self._length}", word, valid=True, solved=done >= self._length, score=done / self._length
        )

    def close(self) -> None:
        if self._sandbox is not None:
            self._sandbox.close()
            self._sandbox = None


gymnasium.register("test/Box-v0", BoxEnv)


def box_task(name: str, run: str, **options: Any) -> Task:
    return Task("test/boxes", name, ENV_ID, "box", {"run": run, **options}, MAX_TURNS)


def sandboxes_of(run: str) -> dict[int, int]:
    """Of the sandboxes with this label that are open: process -> when it started."""
    found = {}
    for path in slots.folder().glob("[0-9]*"):
        try:
            record = json.loads(path.read_text() or "{}")
        except (ValueError, OSError):
            continue  # being written
        if record.get("run") == run and record.get("process"):
            found[record["process"][0]] = record["process"][1]
    return found


def orphans() -> list[int]:
    """Processes of a slot's user (root gives each slot one) whose slot nobody has taken."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            number = entry.stat().st_uid - slots.FIRST_UID
            if entry.name.isdigit() and 0 <= number < slots.SLOTS:
                path = slots.folder() / str(number)
                if not (path.exists() and path.read_text()):
                    found.append(int(entry.name))
    return found


@dataclass(frozen=True)
class NoOptions:
    """None."""


def _boxes(options: NoOptions, request: EvaluationRequest) -> Iterator[Task]:
    return (box_task(f"b{i}", os.environ["BOXES_RUN"]) for i in itertools.count())


BOXES = Benchmark(NoOptions, _boxes, {"full": 16, "brief": 16}, default_limit=4)


def main() -> int:
    sys.path[:0] = [str(ROOT), str(ROOT / "jobs")]
    import agent_eval

    return int(agent_eval.main())


if __name__ == "__main__":
    sys.exit(main())
