"""Program that plays one game with the ``alfworld`` package: JSON lines in (the game, then commands), JSON lines out.

Plays as ``AlfredTWEnv`` does: textworld's PDDL environment with ALFWorld's own names for things."""

import json
import os
import sys
from typing import Any


def main() -> None:
    """Read a game and commands from standard input until it ends; write text, won and admissible commands for each."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what the package prints goes to standard error, not between the answers
    try:
        import textworld
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
        from textworld.envs import PddlEnv
    except ImportError as error:
        sys.exit(f"--engine alfworld needs the extra alfworld ({error}): pip install 'lemur-ray[alfworld]'")
    env = AlfredDemangler(PddlEnv(textworld.EnvInfos(won=True, admissible_commands=True)), shuffle=False)
    env.load(json.loads(sys.stdin.readline()))
    state: Any = env.reset()
    while True:
        answer = {"text": state.feedback, "won": state["won"], "admissible": state["admissible_commands"]}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()
        line = sys.stdin.readline()
        if not line:
            return
        state, _, _ = env.step(json.loads(line))


if __name__ == "__main__":
    main()
