"""Foreign-v0: adapter for any Gymnasium environment whose observations and actions are texts.

When the episode ends, by itself or by the turn limit, the task is solved if the environment says so
(``info["is_success"]`` or ``info["success"]``), or else if the sum of its rewards reaches ``solved_at``. The score is
that sum over ``solved_at``, from 0 to 1. A reply outside the action space uses up a turn and does not reach the
environment. Exceptions that the environment raises count as faults of the environment."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import gymnasium

from envs.spaces import Message
from envs.text_env import Opening, TextEnv, Turn
from lemur_ray.agents.trajectory import Outcome
from lemur_ray.host.user_modules import look_here_for

_SUCCESS_KEYS = ("is_success", "success")


class ForeignEnv(TextEnv):
    """Adapter for a text environment of another author. Replies reach it stripped of surrounding whitespace. Options of
    ``reset``: ``id`` (``module:Id`` as for ``gymnasium.make``), ``arguments`` of its constructor, ``seed``, and
    ``solved_at``, the sum of rewards from which the task is solved."""

    option_names: ClassVar[frozenset[str]] = frozenset({"id", "arguments", "seed", "solved_at"})
    _reported_success: bool | None = None

    def begin(self, options: Mapping[str, Any]) -> Opening:
        self._env = self.opened.enter_context(make_env(str(options["id"]), options.get("arguments") or {}))
        self._sum, self._solved_at = 0.0, float(options.get("solved_at", 1.0))
        self._reported_success = None
        text, info = self._env.reset(seed=options.get("seed"))
        system = info.get("system")
        return Opening(text, system if isinstance(system, str) else None)

    def respond(self, reply: str) -> Turn:
        action = reply.strip()
        if not self._env.action_space.contains(action):
            refusal = f"Not an action here ({self._env.action_space}). Reply with the action alone."
            return self._scored(Turn(refusal, None, valid=False))
        text, reward, terminated, truncated, info = self._env.step(action)
        self._sum += float(reward)
        self._reported_success = next((bool(info[name]) for name in _SUCCESS_KEYS if name in info), None)
        limit = Outcome.TURN_LIMIT if truncated and not terminated else None
        over = terminated or truncated
        return self._scored(Turn(text, action, True, finished=over, reward=float(reward), outcome=limit))

    def hints(self) -> dict[str, Any]:
        """An empty dict: without hints, the random policy replies with an empty text."""
        return {}

    def _scored(self, turn: Turn) -> Turn:
        """The turn with the score so far. At the turn limit it is decided whether the task is solved, too."""
        over = turn.finished or self._turns_left == 1
        solved = over and (self._sum >= self._solved_at if self._reported_success is None else self._reported_success)
        share = max(0.0, min(1.0, self._sum / self._solved_at))
        score = 1.0 if solved else min(share, 1.0 if self._reported_success is None else 0.999)
        return replace(turn, solved=solved, score=score)


def make_env(env_id: str, arguments: Mapping[str, Any]) -> gymnasium.Env[str, str]:
    """Create the environment. Raises ValueError if that fails, or if its observations or actions are not texts."""
    try:
        look_here_for(env_id.partition(":")[0])
        env = gymnasium.make(env_id, disable_env_checker=True, **arguments)
    except (gymnasium.error.Error, ImportError, TypeError) as error:
        raise ValueError(f"gym:{env_id}: cannot be made: {type(error).__name__}: {error}") from error
    for what, space in (("observations", env.observation_space), ("actions", env.action_space)):
        if not isinstance(space, gymnasium.spaces.Text | Message):
            env.close()
            raise ValueError(f"gym:{env_id}: its {what} are {space}, expected texts (gymnasium.spaces.Text)")
    return env
