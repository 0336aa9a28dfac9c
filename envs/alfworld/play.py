"""One play of a game, real or generated: commands in and answers out as text, in the game's grammar.

Surrounding whitespace of a command is dropped; the answer to an impossible one is "Nothing happens.", without limit."""

from envs.alfworld.games.game import Game
from envs.alfworld.grammar import GRAMMARS
from envs.alfworld.sentences import NOTHING_HAPPENS, answer, opening
from envs.alfworld.world import World


class Play:
    """One play of a game. ``opening`` is the first text, ``won`` whether the goal holds now."""

    def __init__(self, game: Game) -> None:
        self.world = World(game)
        self.opening = opening([receptacle.name for receptacle in game.receptacles], game.task)
        self.won = self.world.goal_reached()

    @property
    def game(self) -> Game:
        return self.world.game

    def admissible(self) -> list[str]:
        """Sorted commands that the game would accept now, in its grammar."""
        grammar = GRAMMARS[self.game.grammar]
        write, known = grammar.write, grammar.commands
        return sorted({write(action) for action in self.world.possible() if action[0] in known})

    def step(self, command: str) -> str:
        """Execute one command and return the game's answer, "Nothing happens." if it is impossible."""
        grammar = GRAMMARS[self.game.grammar]
        action = grammar.read(command.strip())
        if action is None or not self.world.do(*action):
            return NOTHING_HAPPENS
        self.won = self.world.goal_reached()
        return answer(self.world, grammar, action)
