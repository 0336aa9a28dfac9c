"""A game played by the ``alfworld`` package itself, in a separate process (``package_process``).

The package has one global parser, overwrites ``sys.argv`` and draws from the global ``random``: one process plays one
game and ends with it. Needs the extra ``alfworld``."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from typing import Any

PACKAGES = ("alfworld", "textworld")


def package_missing() -> str | None:
    """Why the package cannot play, and how to install it; None if it is installed. Does not import it."""
    absent = [name for name in PACKAGES if find_spec(name) is None]
    if not absent:
        return None
    return (
        f"--engine alfworld needs the extra alfworld, and {', '.join(absent)} is not installed: apt-get install -y g++ "
        f"make python3-dev && {sys.executable} -m pip install -r requirements-alfworld.lock; --engine own needs none"
    )


class PackageGone(RuntimeError):
    """Raised if the game's process has ended or sent malformed output; the message has its last line of stderr."""


class PackagePlay:
    """One play of the game file with the parsed JSON ``content``. ``opening``: the first text; ``won``: whether the
    goal is reached. Starts a process; raises PackageGone if that fails."""

    def __init__(self, content: Mapping[str, Any]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "envs.alfworld.package_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path or os.getcwd() for path in sys.path)},
        )
        self.won = False
        self._possible: list[str] = []
        self.opening = self._ask(dict(content))

    def admissible(self) -> list[str]:
        """Sorted commands that the game would accept now."""
        return sorted(self._possible)

    def step(self, command: str) -> str:
        """Execute one command and return the game's answer. Raises PackageGone if the process has ended."""
        return self._ask(command)

    def close(self) -> None:
        """Kill the game's process and close its pipes."""
        with self._process:  # closes the pipes and waits
            self._process.kill()

    def _ask(self, value: Any) -> str:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(value) + "\n")
            self._process.stdin.flush()
            answer = json.loads(self._process.stdout.readline())
        except (OSError, ValueError) as error:
            self._process.kill()
            words = (self._process.communicate()[1] or "").strip().splitlines()[-1:] or ["nothing"]
            raise PackageGone(f"the alfworld package ended, its last words: {words[0]}") from error
        self.won, self._possible = bool(answer["won"]), list(answer["admissible"])
        return str(answer["text"])
