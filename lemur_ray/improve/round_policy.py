"""The policy of training episodes: the model and, in part of the turns, the benchmark's expert as its teacher.

Teaching by turns is DAgger (Ross et al. 2011, arXiv 1011.0686). A coin that depends on seed, episode and turn alone
decides who plays a turn. The teacher's turns are trained. In the model's turns its reply is played; if it means the
teacher's command, the teacher's wording takes its place and is trained, else it has weight 0. Without a wording of the
teacher, its whole text must be the teacher's. Knows nothing of Ray."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from lemur_ray.agents.baselines.scripted import HintsMissing
from lemur_ray.agents.messages import ChatReply, ChatRequest, Policy, PolicyUnreachable
from lemur_ray.agents.throttle import Pressure
from lemur_ray.rollout.attempt import derive_seed

_AROUND = " \t\"'`\u201c\u201d\u2018\u2019"
_AFTER = ".,;:!"


class OtherVersion(PolicyUnreachable):
    """Raised if a reply was generated with other weights than those of the round."""


@dataclass(frozen=True)
class RoundPolicySpec:
    """Factory of the policy that plays a round's episodes, in part by the ``model``, else by the benchmark's expert;
    picklable, to be called in any process. ``seed``: decides who plays which turn."""

    model: Callable[[], Policy] | None
    """Factory of the model's policy; None if the model is never asked (``share_of_model`` 0)."""
    version: str
    """Version of the weights whose replies are accepted."""
    share_of_model: float = 1.0
    """Share of the turns that the model plays; 1: there is no teacher."""
    seed: int = 0
    traces: bool = False
    """Whether the model's replies have traces"""

    def __call__(self) -> "RoundPolicy":
        return RoundPolicy(self.model() if self.model else None, self)


class RoundPolicy:
    """Plays a round's episodes. Thread-safe if the model's policy is."""

    def __init__(self, model: Policy | None, spec: RoundPolicySpec) -> None:
        self.name = model.name if model else "expert"
        self.wants_hints = spec.share_of_model < 1
        self._model, self._spec = model, spec

    def reply(self, request: ChatRequest) -> ChatReply:
        """Reply to one turn, by the model or by the expert. A reply of the model that means the expert's command has
        the expert's text (its own in ``instead``), any other has weight 0; without an expert it is unchanged. Raises
        HintsMissing if the expert's reply is not in the request, OtherVersion, and the errors of the model's policy."""
        if not self.wants_hints:
            return self._ask(request)
        lesson, command = (str(request.hints.get(name) or "") for name in ("reply", "expert"))
        lesson = lesson or command
        if not lesson:
            raise HintsMissing(f"hints {sorted(request.hints)} hold no reply of an expert")
        turn = request.turn or 0
        if not model_plays(self._spec.seed, request.episode, turn, self._spec.share_of_model):
            return ChatReply(lesson)
        # A name of its own for every turn: past replies are sent as text, since part of them are the teacher's.
        own = self._ask(replace(request, episode=f"{request.episode}|turn {turn}"))
        if means(own.text, command) if request.hints.get("reply") else own.text.strip() == lesson.strip():
            return replace(own, text=lesson, token_ids=(), finish_reason="stop", instead=own.text)
        return replace(own, weight=0)

    def pressure(self) -> Pressure:
        """State of the concurrency limit of the model's policy."""
        ask: Callable[[], Pressure] | None = getattr(self._model, "pressure", None)
        return ask() if ask else Pressure()

    def _ask(self, request: ChatRequest) -> ChatReply:
        assert self._model is not None
        if self._spec.traces:
            sampling = request.sampling
            if (drawn := (sampling.temperature, sampling.top_p, sampling.top_k)) != (1, 1, 0):
                raise ValueError(f"temperature, top_p, top_k {drawn} of a traced reply: expected (1, 1, 0)")
            request = replace(request, trace=True)
        reply = self._model.reply(request)
        if self._spec.traces and reply.trace is None:
            raise PolicyUnreachable(f"{self.name} returns no ids and log-probabilities: expected this project's server")
        if reply.version != self._spec.version:
            raise OtherVersion(f"{self.name} replied with version {reply.version!r}, expected {self._spec.version!r}")
        return reply


def model_plays(seed: int, episode: str, turn: int, share: float) -> bool:
    """Whether the model plays a turn (from 0): a coin with probability ``share``, a function of its arguments. seed: of
    the run; episode: its key as text."""
    return derive_seed("who plays", seed, episode, turn) < share * 2**31


def means(reply: str, command: str) -> bool:
    """Whether a reply, whose last line is its command, gives ``command``, regardless of case, quotes and blanks."""
    return (own := _command(reply)) != "" and own == _command(command)


def _command(reply: str) -> str:
    lines = [line for line in reply.splitlines() if line.strip() and not line.strip().startswith("```")]
    last = lines[-1].strip().removeprefix(">") if lines else ""
    before = None
    while before != last:
        before, last = last, last.strip(_AROUND).rstrip(_AFTER)
    return re.sub(r"\s+", " ", last).casefold()
