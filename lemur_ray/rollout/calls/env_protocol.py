"""Checks of what an environment returns from ``reset`` and ``step``, and the errors that end an episode.

Optional entries of ``info`` are checked when they are read."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lemur_ray.agents.messages import Message
from lemur_ray.agents.trajectory import Outcome

ERROR_CHARS = 500
"""Maximum characters of an exception's message in the reply that replaces it."""
_QUOTING = re.compile(r"[\s`'\"\\]+")


class EnvironmentFault(Exception):
    """Raised if an environment raised an exception, missed its deadline or returned invalid values."""


class QuarantineFault(EnvironmentFault):
    """Raised if an environment's sandbox could not be reset; the sandbox is never used again."""


class MachineFault(EnvironmentFault):
    """Raised if the machine, or a remote service that an environment calls, failed; the attempt is repeated."""


class PolicyFault(Exception):
    """Raised if the policy's code destroyed its sandbox, which ends the episode with score 0."""


@dataclass(frozen=True)
class RequestOptions:
    """Options of requests to the policy, which an environment returns from ``reset``. ``raw``: send text without a chat
    template; ``prefill``: start of the reply; ``choices``: the only replies allowed."""

    raw: bool = False
    prefill: str = ""
    choices: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    """Stop strings, instead of the benchmark's; empty: the benchmark's."""
    examples: tuple[Message, ...] = ()
    """Worked examples: messages before the first observation."""
    shared_chars: int = 0
    """Number of characters at the start of the opening that are the same in other episodes."""
    dialogue_limit: int | None = None
    """See ``Trajectory.dialogue_limit``."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """Tools to offer natively, as in ``ChatRequest.tools``."""
    value_error_reply: str = ""
    """Reply to use if the policy raises ValueError, with ``{error}`` for the message. Empty: such an error is a harness
    bug."""

    def reply_to(self, error: ValueError) -> str:
        """The reply to use in place of a policy that raised ``error``: ``value_error_reply`` with the error's message
        on one line, without quotes and at most ERROR_CHARS characters."""
        return self.value_error_reply.replace("{error}", _QUOTING.sub(" ", str(error)).strip()[:ERROR_CHARS])


@dataclass(frozen=True)
class EnvResult:
    """The checked result of an environment's ``reset`` or ``step``, as in Gymnasium; after ``reset`` the reward is 0.
    Its properties read entries of ``info``, and raise EnvironmentFault for an entry of wrong type."""

    env_id: str
    observation: str
    info: Mapping[str, Any]
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False

    @classmethod
    def of_reset(cls, value: Any, env_id: str) -> "EnvResult":
        """Check the (observation, info) that ``reset`` returned. ``env_id``: for errors. Raises EnvironmentFault."""
        match value:
            case (str() as observation, Mapping() as info):
                return cls(env_id, observation, info)
        raise EnvironmentFault(f"{env_id}: reset returned {_shape(value)}: expected (observation: str, info: dict)")

    @classmethod
    def of_step(cls, value: Any, env_id: str) -> "EnvResult":
        """Check the return value of ``step``, Gymnasium's (observation, reward, terminated, truncated, info).
        ``env_id``: for errors. Raises EnvironmentFault for an observation that is no str, a reward that is not finite,
        or ``info`` that is no mapping."""
        match value:
            case (str() as observation, (int() | float()) as reward, terminated, truncated, Mapping() as info):
                if _is_finite(reward):
                    return cls(env_id, observation, info, float(reward), bool(terminated), bool(truncated))
        expected = "(observation: str, finite reward, terminated, truncated, info: dict)"
        raise EnvironmentFault(f"{env_id}: step returned {_shape(value)}: expected {expected}")

    @property
    def score(self) -> float:
        """``info['score']``, else the reward of this step. Raises EnvironmentFault if it is no finite number."""
        return self._finite(self.info.get("score", self.reward))

    @property
    def scores(self) -> dict[str, float]:
        """``info['scores']``: scores by name of grader; empty if there is only one grader."""
        scores = self.info.get("scores") or {}
        if not isinstance(scores, Mapping):
            raise self._fault("scores", f"of type {type(scores).__name__}", "a mapping")
        return {str(name): self._finite(score) for name, score in scores.items()}

    @property
    def results(self) -> tuple[str, ...]:
        """``info['results']``: a text for each tool call of the reply; empty if the observation is the only result."""
        results = self.info.get("results") or ()
        if not isinstance(results, list | tuple) or not all(isinstance(text, str) for text in results):
            raise self._fault("results", f"of type {type(results).__name__}", "a list of texts")
        return tuple(results)

    @property
    def tools(self) -> tuple[Mapping[str, Any], ...]:
        """``info['tools']`` of a step: tools that requests offer natively from now on; empty: no change."""
        try:
            return tuple(_tool(tool) for tool in self.info.get("tools") or ())
        except (KeyError, TypeError, ValueError) as error:
            raise self._fault("tools", f"{str(self.info['tools'])[:100]!r} ({error})", "a list of tools") from error

    @property
    def outcome(self) -> Outcome | None:
        """The outcome in ``info['outcome']``; None if the environment declares none."""
        name = self.info.get("outcome")
        try:
            return Outcome(name) if name else None
        except ValueError:
            raise self._fault("outcome", repr(name), f"one of {', '.join(Outcome)}") from None

    @property
    def request_options(self) -> RequestOptions:
        """The options in ``info['ask']`` and ``info['dialogue_limit']`` of a reset; defaults where there are none."""
        ask = self.info.get("ask") or {}
        try:
            return RequestOptions(
                raw=bool(ask.get("raw", False)),
                prefill=str(ask.get("prefill", "")),
                choices=tuple(map(str, ask.get("choices", ()))),
                stop=tuple(map(str, ask.get("stop", ()))),
                examples=tuple(Message.from_json(message) for message in ask.get("before", ())),
                shared_chars=int(ask.get("shared", 0)),
                dialogue_limit=self._count("dialogue_limit"),
                tools=tuple(_tool(tool) for tool in ask.get("tools", ())),
                value_error_reply=str(ask.get("on_value_error", "")),
            )
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise EnvironmentFault(f"{self.env_id}: info['ask'] is {str(ask)[:100]!r}: {error}") from error

    def text(self, name: str) -> str | None:
        """The text ``info[name]``; None if there is no such entry. Raises EnvironmentFault if it is no str."""
        value = self.info.get(name)
        if value is None or isinstance(value, str):
            return value
        raise self._fault(name, f"of type {type(value).__name__}", "a text or None")

    def _count(self, name: str) -> int | None:
        value = self.info.get(name)
        if value is None or (isinstance(value, int) and value >= 0):
            return value
        raise self._fault(name, repr(str(value)[:40]), "a whole number or None")

    def _finite(self, score: Any) -> float:
        if isinstance(score, int | float) and _is_finite(score):
            return float(score)
        raise self._fault("score", repr(str(score)[:40]), "a finite number")

    def _fault(self, name: str, actual: str, expected: str) -> EnvironmentFault:
        return EnvironmentFault(f"{self.env_id}: info[{name!r}] is {actual}: expected {expected}")


def _is_finite(number: float) -> bool:
    try:
        return math.isfinite(number)
    except OverflowError:  # an integer beyond the range of float
        return False


def _tool(tool: Any) -> dict[str, Any]:
    if tool["type"] != "function" or not isinstance(tool["function"]["name"], str):
        raise ValueError(f"tool {str(tool)[:80]}: expected {{type: function, function: {{name, ...}}}}")
    return dict(tool)


def _shape(value: Any) -> str:
    if isinstance(value, tuple):
        return "(" + ", ".join(repr(v) if isinstance(v, float) else type(v).__name__ for v in value) + ")"
    return type(value).__name__
