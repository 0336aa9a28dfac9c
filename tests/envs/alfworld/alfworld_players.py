"""textworld as the oracle of ALFWorld's engine, and a player who tries everything."""

import random
import sys

from envs.alfworld.engine import Play
from envs.alfworld.expert import Expert


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
    """Chooses commands: the expert's, random possible ones, impossible ones and nonsense, mixed from a seed."""

    def __init__(self, play: Play, seed: int) -> None:
        self.play, self.rng = play, random.Random(seed)
        self.expert = Expert(play.opening)

    def choose(self) -> str:
        kind = self.rng.random()
        if kind < 0.45:
            return self.expert.advice()
        if kind < 0.7:
            return self.rng.choice(self.play.admissible())
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
        here, held = self.play.world.here or receptacle, self.play.world.held or thing
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
