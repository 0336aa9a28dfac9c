"""ALFWorldText-v0: one ALFWorld game, generated or real, as a gymnasium environment.

Options of ``reset`` (all optional):

- ``split`` (train, heldout, novel_object; default heldout), ``seed`` (default 0), ``index`` (default: drawn by the
  environment's own seed): which generated game; or ``game``: the JSON of a ``GameSpec``; or
  ``file`` (a folder or an archive of ALFWorld's own games), ``real_split`` and ``id``: that game, in its own wording,
  with ``engine`` (own: this project's; alfworld: that package's, in a separate process) and ``database_id`` (not read:
  identifies the games);
- ``prompt``: ``full`` (system prompt, the game's own opening; default) or ``brief`` (task line and room line alone);
- ``max_steps`` (default 50) and ``hints``: ``{"admissible": [commands], "expert": command, "reply": thought and
  command}`` at every turn.

The reward is 1.0 in the turn that wins the game, else 0. Without a win, it is truncated after ``max_steps``."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from envs.alfworld.expert import Expert
from envs.alfworld.games.game import Game
from envs.alfworld.games.game_file import read_game
from envs.alfworld.games.generator import draw_game
from envs.alfworld.games.spec import GameSpec
from envs.alfworld.grammar import reworded
from envs.alfworld.package_play import PackagePlay
from envs.alfworld.play import Play
from envs.alfworld.prompts import PROMPTS, opening
from envs.alfworld.real_games import game_content
from envs.alfworld.reply import read_command
from envs.alfworld.sentences import NOTHING_HAPPENS
from envs.text_env import Opening, TextEnv, Turn, one_of

ENGINES = ("own", "alfworld")
_NAMED = frozenset({"split", "seed", "index"})
_REAL = frozenset({"file", "real_split", "id"})
_NUM_DRAWN = 2**31
"""Exclusive upper bound of the game index that is drawn at random if ``reset`` names no game."""


class ALFWorldTextEnv(TextEnv):
    """One ALFWorld game as an environment: a reply contains a command, and the observation is the game's answer to it.
    The options of ``reset`` are listed in the module."""

    option_names: ClassVar[frozenset[str]] = frozenset({*_NAMED, "game", "prompt", *_REAL, "engine", "database_id"})
    _play: Play | PackagePlay | None = None
    _game: Game | None = None
    _expert: Expert | None = None

    def begin(self, options: Mapping[str, Any]) -> Opening:
        prompt = one_of("prompt", options.get("prompt", "full"), PROMPTS)
        self.close()
        play, game = self._started(options)
        self._expert = Expert(play.opening, game.goal) if self.with_hints else None
        self._play, self._game = play, game
        return Opening(*opening(play, game, prompt, self.max_steps))

    def close(self) -> None:
        if isinstance(self._play, PackagePlay):
            self._play.close()
        self._play = None

    def respond(self, reply: str) -> Turn:
        play = self._running()
        command = read_command(reply)
        answer = NOTHING_HAPPENS if command is None else play.step(command)
        if self._expert is not None and command is not None:
            self._expert.observe(reworded(command, "new"), answer)
        return Turn(answer, command, valid=answer != NOTHING_HAPPENS, solved=play.won, score=float(play.won))

    def state(self) -> str:
        return self._play.world.digest() if isinstance(self._play, Play) else ""

    def hints(self) -> dict[str, Any]:
        if self._expert is None:
            raise RuntimeError("hints were not asked for at reset")
        assert self._game is not None
        thought, advice = self._expert.thought(), reworded(self._expert.advice(), self._game.grammar)
        reply = f"{thought}\n{advice}" if thought else advice
        return {"admissible": self._running().admissible(), "expert": advice, "reply": reply}

    def _running(self) -> Play | PackagePlay:
        if self._play is None:
            raise RuntimeError("no running game: call reset first")
        return self._play

    def _started(self, options: Mapping[str, Any]) -> tuple[Play | PackagePlay, Game]:
        engine = one_of("engine", options.get("engine", "own"), ENGINES)
        if not _REAL & set(options):
            if engine != "own":
                raise ValueError(f"option engine: {engine} plays ALFWorld's own games, which option file names")
            game = Game.from_spec(self._spec(options))
            return Play(game), game
        if missing := sorted(_REAL - set(options)):
            raise ValueError(f"a real game is named by {', '.join(sorted(_REAL))}; missing: {', '.join(missing)}")
        content = game_content(Path(options["file"]), options["real_split"], options["id"])
        game = read_game(content)
        return (Play(game) if engine == "own" else PackagePlay(content)), game

    def _spec(self, options: Mapping[str, Any]) -> GameSpec:
        if "game" in options:
            if also := sorted(_NAMED & set(options)):
                raise ValueError(f"option game excludes {also}: name a generated game or give one, not both")
            if not isinstance(options["game"], Mapping):
                raise ValueError(f"option game: a {type(options['game']).__name__}, expected the JSON of a game spec")
            return GameSpec.from_json(options["game"])
        numbers = {"seed": options.get("seed", 0)}
        numbers["index"] = options["index"] if "index" in options else int(self.np_random.integers(_NUM_DRAWN))
        for name, number in numbers.items():
            if not isinstance(number, int) or isinstance(number, bool):
                raise ValueError(f"option {name}: {number!r}, expected a whole number")
        return draw_game(options.get("split", "heldout"), **numbers)
