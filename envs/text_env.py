"""TextEnv: base class of environments whose observation is a text and whose action is a model's raw reply.

It checks option names, counts turns, ends episodes and fills ``info``. A subclass implements ``begin`` and ``respond``
and may implement ``hints``; it parses replies itself, because only it knows its protocol.

The keys of ``info`` at every reset and step:

- ``action``: the parsed action; None at reset, or if the reply has none;
- ``valid``: whether the reply was an action that could be executed;
- ``solved``: whether the task is solved;
- ``outcome``: at the end of an episode, the value of an ``Outcome``;
- ``system``: at reset, the system prompt, if there is one;
- ``dialogue_limit``: at reset, the number of messages of past turns that a model is shown, if there is a limit;
- ``reply_prefix``: at reset, the prefix of past replies when a model is shown them, if there is one;
- ``ask``: at reset, worked examples before the observation, tools offered natively, and the reply that replaces a
  policy's ValueError, if any;
- ``results``: the result of each tool call, if the observation is not the result;
- ``tools``: at a step, the tools to offer natively from now on, if they change;
- ``score``: at the end, the score of the episode;
- ``note``: text to store with the episode if it ends here;
- ``scores``: the score so far by each grader, if there are several;
- ``state``: digest of the environment's state, if it can tell: equal ones lie before the same choice;
- ``picture``: a picture shown with the observation, a PNG as a ``data:`` URL, if there is one;
- ``hints``: if ``options["hints"]``, information for scripted policies that a model may not see.

The reward is 0.0 until the end and the score at the end, unless the benchmark rewards every turn (``Turn.reward``). A
solved or otherwise finished task is ``terminated``; the turn limit is ``truncated``, outcome ``turn_limit``."""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, ClassVar

import gymnasium

from envs.spaces import Message
from lemur_ray.agents.messages import Message as Chat
from lemur_ray.agents.trajectory import Outcome
from lemur_ray.config import did_you_mean
from lemur_ray.sandbox.sandbox import SandboxError


@dataclass(frozen=True)
class Opening:
    """Start of an episode, which ``begin`` returns: system prompt, worked examples and first observation, and how a
    model is shown past turns and offered tools."""

    observation: str
    system: str | None = None
    """The system prompt that explains the protocol, or None."""
    dialogue_limit: int | None = None
    """Maximum number of messages of past turns that a model is shown besides the opening; None: all. 0: none, and
    the newest observation replaces the first."""
    reply_prefix: str = ""
    """Prefix of a model's own past replies when it is shown them, if the protocol has one."""
    examples: tuple[tuple[str, str], ...] = ()
    """Worked examples before the observation, each a turn of the user and of the assistant."""
    picture: str = ""
    """Picture shown with the observation: a PNG as a ``data:`` URL."""
    note: str = ""
    """Text to store with the episode if it ends before the first reply."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """Tools to offer natively, in OpenAI's format. A model's calls then stand in its reply (``read_calls``)."""
    on_value_error: str = ""
    """Reply that replaces a policy's ValueError, with {error} for its text, if the protocol defines one. Empty: such
    an error is a bug of the harness."""


@dataclass(frozen=True)
class Turn:
    """Result of one reply, which ``respond`` returns: what the policy sees next, the action read from the reply (None
    if there is none), whether it was valid, and whether the task is solved."""

    observation: str
    action: str | None
    valid: bool
    solved: bool = False
    finished: bool = False
    """True: the episode is over although not solved, for example after a wrong submission."""
    score: float = 0.0
    """The score if the episode ends here, from 0 to 1."""
    reward: float | None = None
    """Reward of this turn, if the benchmark has one. None: 0 until the end, then the score."""
    scores: Mapping[str, float] | None = None
    """Score so far by each grader, if there are several."""
    outcome: Outcome | None = None
    """Why a finished episode ended, if neither ``solved`` nor ``failed``; None otherwise."""
    note: str = ""
    """Text stored with the episode in addition to the dialogue; only the newest counts."""
    picture: str = ""
    """Picture shown with the observation: a PNG as a ``data:`` URL."""
    results: Sequence[str] = ()
    """Result of each tool call of the reply. Empty: ``observation`` is the result."""
    tools: Sequence[Mapping[str, Any]] = ()
    """Tools to offer natively from the next request on. Empty: no change."""


class TextEnv(gymnasium.Env[str, str]):
    """Base class of text environments. Options of ``reset`` that all have: ``max_steps`` (turn limit) and ``hints``
    (whether ``info`` has hints for scripted policies, default False)."""

    metadata: dict[str, Any] = {"render_modes": []}  # noqa: RUF012 - gymnasium declares it so
    option_names: ClassVar[frozenset[str]] = frozenset()
    """Names of the options that ``begin`` accepts."""
    default_max_steps: ClassVar[int] = 50
    graders: ClassVar[tuple[str, ...]] = ()
    """Keys of ``Turn.scores``, if there are several graders."""

    def __init__(self) -> None:
        self.observation_space = Message()
        self.action_space = Message()
        self.max_steps = self.default_max_steps
        self.with_hints = False
        self._turns_left = 0
        self.opened = ExitStack()
        """What the episode has opened (sandboxes, processes, connections): ended by ``close``, and before the next."""

    @abstractmethod
    def begin(self, options: Mapping[str, Any]) -> Opening:
        """Start the task that the options (without the common ones) describe. Raises ValueError for bad options.
        ``self.np_random`` is seeded; ``self.max_steps`` and ``self.with_hints`` are set for this episode."""

    @abstractmethod
    def respond(self, reply: str) -> Turn:
        """Parse one raw reply, execute it, and return the result. Must not raise for any text, except SandboxError with
        the blame ``policy`` for what its code did to a sandbox: that ends the episode as ``sandbox_destroyed``."""

    def state(self) -> str:
        """Digest of everything that the task's further course depends on; empty if the environment cannot tell."""
        return ""

    def hints(self) -> dict[str, Any]:
        """Hints for scripted policies: "expert" (a reply) and "admissible" (a list of replies), or one of them. Called
        if option ``hints`` is set. Raises ValueError if the environment has none."""
        raise ValueError(f"{type(self).__name__} has no hints: leave the option out")

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Begin an episode, replacing a running one; returns (observation, ``info`` with the fields of ``Opening`` that
        are set). Raises ValueError for options that are unknown or of the wrong type."""
        super().reset(seed=seed)
        self._turns_left = 0
        given = dict(options or {})
        check_option_names(given, self.option_names | {"max_steps", "hints"})
        max_steps = given.pop("max_steps", self.default_max_steps)
        check_whole_number("max_steps", max_steps, "a whole number of turns")
        with_hints = given.pop("hints", False)
        if not isinstance(with_hints, bool):
            raise ValueError(f"option hints: {with_hints!r}, expected true or false")
        self.max_steps, self.with_hints = max_steps, with_hints
        self.opened.close()  # not close(), which a subclass may only be able to run after its begin()
        opening = self.begin(given)
        self._turns_left = max_steps
        info = self._info(None, valid=True, solved=False)
        info |= _set_fields(opening, "system", "dialogue_limit", "reply_prefix", "picture", "note")
        if ask := _asking(opening):
            info["ask"] = ask
        return opening.observation, info

    def step(self, reply: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Take one turn; returns Gymnasium's (observation, reward, terminated, truncated, ``info``). ``info`` has the
        fields of ``Turn`` that are set, and at the end ``outcome`` and ``score``. Raises RuntimeError before a reset or
        after the end, TypeError for anything but a string, SandboxError if the policy is not to blame for it."""
        if self._turns_left < 1:
            raise RuntimeError("step without a running episode: call reset first")
        if not isinstance(reply, str):
            raise TypeError(f"reply of type {type(reply).__name__}: expected a string")
        try:
            turn = self.respond(reply)
        except SandboxError as error:
            if error.blame != "policy":
                raise
            turn = self._destroyed(reply, error)
        self._turns_left -= 1
        terminated = turn.solved or turn.finished
        truncated = not terminated and self._turns_left == 0
        info = self._info(turn.action, valid=turn.valid, solved=turn.solved)
        if turn.scores is not None:
            info["scores"] = dict(turn.scores)
        info |= _set_fields(turn, "picture", "note")
        info |= {name: list(items) for name, items in _set_fields(turn, "results", "tools").items() if items}
        if terminated or truncated:
            self._turns_left = 0
            info["outcome"] = _outcome(turn, truncated).value
            info["score"] = float(turn.score)
        reward = float(turn.score) if terminated or truncated else 0.0
        if turn.reward is not None:
            reward = float(turn.reward)
        return turn.observation, reward, terminated, truncated, info

    def close(self) -> None:
        """End all that the episode has opened. May be called twice, and by another thread than the episode's."""
        self.opened.close()

    def _destroyed(self, reply: str, error: SandboxError) -> Turn:
        """Turn that ends the episode of a policy whose code has ended or broken its sandbox, with score 0."""
        text = f"The sandbox was destroyed by its code: {error}"
        scores = dict.fromkeys(self.graders, 0.0) or None
        return Turn(
            text, reply, valid=False, finished=True, reward=0.0, scores=scores, outcome=Outcome.SANDBOX_DESTROYED
        )

    def _info(self, action: str | None, *, valid: bool, solved: bool) -> dict[str, Any]:
        info: dict[str, Any] = {"action": action, "valid": valid, "solved": solved}
        if state := self.state():
            info["state"] = state
        if self.with_hints:
            info["hints"] = self.hints()
        return info


def _set_fields(value: Opening | Turn, *names: str) -> dict[str, Any]:
    """Those of the fields ``names`` that do not have their default, by name."""
    return {name: set_ for name in names if (set_ := getattr(value, name)) != getattr(type(value), name)}


def _asking(opening: Opening) -> dict[str, Any]:
    """Value of ``info["ask"]``: messages before the first observation, and the reply for a policy's ValueErrors."""
    asked: dict[str, Any] = {}
    if opening.examples:
        messages = [m for ask, reply in opening.examples for m in (Chat("user", ask), Chat("assistant", reply))]
        before = [m.to_json() for m in messages]
        asked = {"before": before, "shared": sum(len(m["content"]) for m in before) + len(opening.system or "")}
    if opening.tools:
        asked["tools"] = list(opening.tools)
    return asked | _set_fields(opening, "on_value_error")


def _outcome(turn: Turn, truncated: bool) -> Outcome:
    if turn.solved:
        return Outcome.SOLVED
    return Outcome.TURN_LIMIT if truncated else turn.outcome or Outcome.FAILED


def check_option_names(options: Mapping[str, Any], known: frozenset[str]) -> None:
    """Raise ValueError for an unknown option, with the nearest known name."""
    for name in options:
        if name not in known:
            raise ValueError(f"unknown option {name!r}{did_you_mean(str(name), sorted(known))}")


def check_texts(options: Mapping[str, Any], *names: str) -> None:
    """Raise ValueError for the first of the options ``names`` that is missing or not a non-empty text."""
    for name in names:
        if not isinstance(options.get(name), str) or not options[name]:
            raise ValueError(f"option {name}: {options.get(name)!r}, expected a text that is not empty")


def check_whole_number(name: str, value: Any, expected: str = "a whole number") -> None:
    """Raise ValueError unless the ``value`` of option ``name`` is an int from 1. ``expected``: words for the error."""
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ValueError(f"option {name}: {value!r}, expected {expected}, 1 or more")


def one_of(name: str, value: Any, known: Sequence[Any]) -> Any:
    """``value``, of option ``name``, if it is one of ``known``; booleans are not numbers. Raises ValueError if not."""
    if value not in known or isinstance(value, bool) != isinstance(known[0], bool):
        raise ValueError(f"option {name}: {value!r}, expected one of {', '.join(map(str, known))}")
    return value
