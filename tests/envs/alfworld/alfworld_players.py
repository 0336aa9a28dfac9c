"""textworld as the oracle of ALFWorld's engine, the expert's whole games, and a player who tries everything."""

import random
import sys
from importlib import resources

from envs.alfworld.expert import Expert
from envs.alfworld.games.game import Game
from envs.alfworld.grammar import GRAMMARS
from envs.alfworld.play import Play


def textworld_game(problem: str, task: str) -> dict[str, str]:
    """What textworld loads: a problem with the installed alfworld's own domain and grammar."""
    data = resources.files("alfworld") / "data"
    return {
        "pddl_domain": (data / "alfred.pddl").read_text(encoding="utf-8"),
        "grammar": (data / "alfred.twl2").read_text(encoding="utf-8").replace("UNKNOWN GOAL", task),
        "pddl_problem": problem,
    }


def play_expert(game: Game, seed: int = 0, *, noise: float = 0.0, max_steps: int = 50) -> list[tuple[str, str]]:
    """The (command, answer) pairs of the expert's game, until it is won or ``max_steps`` are over.

    With ``noise`` that share of the commands, drawn by ``seed``, is a random admissible one instead.
    """
    rng = random.Random(seed)
    play = Play(game)
    turns: list[tuple[str, str]] = []
    expert = Expert(play.opening)
    while not play.won and len(turns) < max_steps:
        command = rng.choice(play.admissible()) if noise and rng.random() < noise else expert.advice()
        answer = play.step(command)
        expert.observe(command, answer)
        turns.append((command, answer))
    return turns


class Oracle:
    """One game in textworld, with ALFWorld's names. textworld has one global parser: never use it from two threads."""

    def __init__(self, content):
        import textworld
        from alfworld.agents.environment.alfred_tw_env import AlfredDemangler
        from textworld.envs import PddlEnv

        arguments = list(sys.argv)
        try:
            infos = textworld.EnvInfos(won=True, admissible_commands=True)
            self._env = AlfredDemangler(PddlEnv(infos), shuffle=False)
            self._env.load(content)
            self._state = self._env.reset()
        finally:
            sys.argv[:] = arguments  # textworld's translator overwrites them
        self.text = self._state.feedback

    @property
    def won(self):
        return bool(self._state["won"])

    def admissible(self):
        return list(self._state["admissible_commands"])

    def step(self, command):
        self._state, _, _ = self._env.step(command)
        return self._state.feedback

    def close(self):
        self._env.close()


class Meddler:
    """Chooses commands: the expert's, random possible ones, impossible ones and nonsense, mixed from a seed.

    Plays real and generated games, in either grammar; the expert is asked where it knows the task's wording.
    """

    def __init__(self, play: Play, seed: int) -> None:
        self.play, self.rng = play, random.Random(seed)
        self.grammar = GRAMMARS[play.game.grammar]
        try:
            self._expert: Expert | None = Expert(play.opening)
        except ValueError:  # people worded the tasks of the real games
            self._expert = None

    def observe(self, command: str, answer: str) -> None:
        action = self.grammar.read(command.strip())
        if self._expert is not None and action is not None and action[0] in GRAMMARS["new"].commands:
            self._expert.observe(GRAMMARS["new"].write(action), answer)

    def choose(self) -> str:
        kind = self.rng.random()
        if kind < 0.45 and self._expert is not None:
            action = GRAMMARS["new"].read(self._expert.advice())
            assert action is not None
            return self.grammar.write(action)
        if kind < 0.7:
            possible = self.play.admissible()
            moving = [command for command in possible if command.startswith(("go ", "examine "))]
            acting = [command for command in possible if command not in moving]
            return self.rng.choice(acting if self.rng.random() < 0.6 else moving)
        return self._impossible() if kind < 0.88 else self._odd()

    def choose_impossible(self) -> str:
        """A command that does nothing now."""
        possible = set(self.play.admissible())
        while (command := self.rng.choice([self._impossible, self._odd])()).strip() in possible:
            pass
        return command

    def _impossible(self) -> str:
        """Grammatical and mostly not possible now; sometimes it is, which is as good."""
        game, rng = self.play.game, self.rng
        receptacle = rng.choice(game.receptacles).name
        thing = rng.choice(game.things).name
        here = rng.choice(self.play.world.furniture_here() or [receptacle])
        held = self.play.world.held or thing
        return rng.choice(
            [
                f"go to {thing}",
                f"go to {here}",
                f"open {receptacle}",
                f"open {here}",
                f"close {receptacle}",
                f"close {here}",
                f"take {thing} from {receptacle}",
                f"take {thing} from {here}",
                f"move {thing} to {receptacle}",
                f"move {held} to {receptacle}",
                f"move {thing} to {here}",
                f"clean {held} with {here}",
                f"heat {held} with {receptacle}",
                f"cool {thing} with {here}",
                f"use {thing}",
                f"examine {thing}",
                f"examine {receptacle}",
                f"slice {thing} with {held}",
                f"put {held} in/on {here}",
            ]
        )

    def _odd(self) -> str:
        command = self.rng.choice(self.play.admissible())
        odd = [
            f"  {command}\n",
            f"\t{command} ",
            command.upper(),
            command.capitalize(),
            command.replace(" ", "  ", 1),
            f"{command}.",
            f"> {command}",
            f"{command} {command}",
            command.rpartition(" ")[0],
            "",
            "   ",
            "Look",
            "help me",
            "inventory 1",
            "go to",
            "take from",
            "examine",
            "toggle desklamp 1",
            "q\u00fcit \U0001f600",
        ]
        return self.rng.choice(odd)
