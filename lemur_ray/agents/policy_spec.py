"""The value of ``--policy``: parsed on the driver, carried to every actor, built into a policy there.

``KINDS`` is the table of policy kinds; a new kind is one more entry. Models are served elsewhere: a ``checkpoint`` must
have become an endpoint before its policy can be built; the server of a ``handle`` builds the policy itself."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

from lemur_ray.agents.baselines.function_policy import Function, label_of, policy_of, resolve
from lemur_ray.agents.baselines.human import HumanPolicy
from lemur_ray.agents.baselines.scripted import ExpertPolicy, NoopPolicy, RandomPolicy
from lemur_ray.agents.endpoint import Endpoint, EndpointOptions, RequestSlots, checked_url, redact_url
from lemur_ray.agents.external_calls import endpoint_at
from lemur_ray.agents.messages import Policy
from lemur_ray.agents.openai_policy import OpenAIPolicy
from lemur_ray.agents.recording import Recording, RecordingFormat
from lemur_ray.agents.replay import ReplayPolicy


@dataclass(frozen=True)
class PolicySpec:
    """Description of a policy, parsed from ``--policy KIND:TARGET`` and completed with its model, label and request
    options: picklable, and builds the policy when called."""

    kind: str
    """Key of ``KINDS``"""
    target: str = ""
    """URL of an endpoint, run of a checkpoint or handle (empty: the newest), or path of a recording"""
    model: str = ""
    """Model name at the endpoint"""
    label: str = ""
    """Name of the policy in episode keys and reports"""
    our_server: bool = False
    """Whether an endpoint is this project's server, which reports the version of its weights"""
    context: int = 0
    """Context length of the endpoint's model, in tokens; 0: unknown"""
    count: Callable[[str], int | None] | None = None
    """Function from a text to its number of tokens, if a serving application offers one"""
    options: EndpointOptions = EndpointOptions()
    """Request options of an endpoint, or of a model that is served here"""
    application: str = ""
    """Application that already serves a handle's model on the cluster (``serve.on_ray.attach``); empty: none"""
    recordings: RecordingFormat | None = None
    """How the benchmark's recordings are read, if one is replayed"""
    stored: Callable[[Path], Recording[Any]] | None = None
    """Reader of stored replies that are graded again (``rollout/stored_replies.py``)"""
    chat_template: str = ""
    """Chat template of a model that is served here: a file, or chatml; empty: the model's own"""
    function: Function | Policy | None = None
    """The Python function, or policy, that replies"""

    @classmethod
    def parse(cls, text: str, model: str = "", recordings: RecordingFormat | None = None) -> "PolicySpec":
        """Parse ``text``, the value of ``--policy``, such as "openai:http://host:8000/v1" or "expert". ``model``: value
        of ``--policy-model``; ``recordings``: the benchmark's format of recordings, if it has one. Raises ValueError
        for any other text."""
        name, colon, target = text.partition(":")
        kind = KINDS.get(name)
        spec = kind.parse(cls(name, target, model, name, recordings=recordings), bool(colon)) if kind else None
        if spec is None:
            known = "; ".join(f"{kind.form} ({kind.help})" for kind in KINDS.values())
            raise ValueError(f"--policy {redact_url(text)!r}: expected one of {known}")
        return spec

    @property
    def traits(self) -> "PolicyKind":
        """The entry of ``KINDS``."""
        return KINDS[self.kind]

    @property
    def served_here(self) -> bool:
        """Whether this evaluation must serve the model before the policy can query it (``checkpoint``, ``handle``)."""
        return self.traits.served_here

    @property
    def knows_our_words(self) -> bool:
        """Whether this project serves the model, here or elsewhere: such models were tuned on the brief prompts."""
        return self.served_here or self.our_server

    @property
    def recording(self) -> str:
        """Path of the recording that is replayed; empty for any other policy."""
        return self.target if self.traits.replays_recording else ""

    @property
    def replies(self) -> str:
        """Path of the stored replies that are graded; empty for any other policy."""
        return self.target if self.stored is not None else ""

    def within(self, slots: RequestSlots) -> "PolicySpec":
        """A copy that takes its request slots from ``slots``, which other processes share."""
        return replace(self, options=replace(self.options, places=slots))

    def at_endpoint(self, url: str, model: str, label: str) -> "PolicySpec":
        """A copy that queries the model at ``url``, where it is served as ``model``. ``label``: name in episode
        keys."""
        return replace(self, kind=ENDPOINT, target=url, model=model, label=label)

    def without_files(self) -> Callable[[], Policy]:
        """A factory of the same policy for other hosts: the recording or stored replies are read now and contained in
        it. Raises what reading them raises (ValueError, OSError)."""
        if self.recording or self.replies:
            policy = self()
            assert isinstance(policy, ReplayPolicy)
            return partial(ReplayPolicy, policy.recording, policy.name)
        return replace(self, chat_template="", recordings=None)

    def __call__(self) -> Policy:
        return self.traits.build(self)


class Baseline(NamedTuple):
    """A policy without a trained model, as reports show it. ``place``: its place in lists, models have 0; ``is_floor``:
    whether tasks that it solves need no skill."""

    name: str
    place: int
    is_floor: bool = False


@dataclass(frozen=True)
class PolicyKind:
    """A kind of policy, an entry of ``KINDS``: how ``--policy`` is parsed, what the policy needs, and how it is built.
    ``help``: one line for ``--help``; ``replays_recording``: whether its target is a recording."""

    form: str
    """Syntax of ``--policy``, for the error message"""
    help: str
    parse: Callable[[PolicySpec, bool], PolicySpec | None]
    """Complete a spec with only kind, target and model; the flag is whether the text had a colon. Returns None if the
    text does not have this form; may raise ValueError"""
    build: Callable[[PolicySpec], Policy]
    served_here: bool = False
    """Whether a model must be served before the policy can be built"""
    by_handle: bool = False
    """Whether the model is asked for token ids inside the cluster, and may be served there already"""
    asks_endpoint: bool = False
    """Whether the policy sends HTTP requests to an endpoint, which names the model"""
    replays_recording: bool = False
    needs_hints: bool = False
    """Whether the environment must give hints: an expert's or the admissible actions"""
    baseline: Baseline | None = None
    """How reports show it; None for a model"""


def _endpoint(spec: PolicySpec, colon: bool) -> PolicySpec | None:
    if not spec.target.startswith(("http://", "https://")):
        return None
    label = f"openai:{spec.model}" if spec.model else ""
    return PolicySpec(spec.kind, checked_url(spec.target, "--policy"), spec.model, label)


def _recording(spec: PolicySpec, colon: bool) -> PolicySpec | None:
    if not spec.target:
        return None
    if spec.recordings is None:
        raise ValueError(f"--policy {f'replay:{spec.target}'!r}: this benchmark knows no recordings to replay")
    file = Path(spec.target).expanduser().absolute()
    return PolicySpec(spec.kind, str(file), label=f"replay:{spec.recordings.name(file)}", recordings=spec.recordings)


def _function(spec: PolicySpec, colon: bool) -> PolicySpec | None:
    if not spec.target:
        return None
    value = resolve(spec.target)
    label = f"{spec.kind}:{label_of(value, spec.target)}"
    return PolicySpec(spec.kind, spec.target, label=label, function=value)


def _build_function(spec: PolicySpec) -> Policy:
    assert spec.function is not None
    return policy_of(spec.function, spec.label)


def _model(spec: PolicySpec, colon: bool) -> PolicySpec:
    return PolicySpec(spec.kind, spec.target, spec.model)


def _name_alone(spec: PolicySpec, colon: bool) -> PolicySpec | None:
    return None if colon else PolicySpec(spec.kind, label=spec.kind)


def _elsewhere(spec: PolicySpec, colon: bool) -> None:
    """Parser of kinds that ``rollout/stored_replies.py`` parses; always returns None."""


def _build_endpoint(spec: PolicySpec) -> Policy:
    return OpenAIPolicy(spec.target, spec.model, name=spec.label, options=spec.options)


def _build_replay(spec: PolicySpec) -> Policy:
    read = spec.stored or (spec.recordings.read if spec.recordings else None)
    if read is None:
        raise ValueError(f"policy {spec.kind!r} has no reader for {spec.target}")
    return ReplayPolicy(read(Path(spec.target)), spec.label)


def _not_served(spec: PolicySpec) -> Policy:
    raise ValueError(f"policy {spec.kind!r} must be served before it can be asked")


ENDPOINT = "openai"
KINDS: Mapping[str, PolicyKind] = {
    ENDPOINT: PolicyKind("openai:URL", "an OpenAI-compatible endpoint, for example openai:http://127.0.0.1:8000/v1",
                         _endpoint, _build_endpoint, asks_endpoint=True),
    "checkpoint": PolicyKind("checkpoint[:RUN]", "a local checkpoint, served here: a run folder or its name, by "
                             "default the newest", _model, _not_served, served_here=True),
    "handle": PolicyKind("handle[:RUN]", "the same, asked for token ids inside the cluster, without HTTP; RUN, a model "
                         "or an application that jobs/serve.py serves there already is asked as it is", _model,
                         _not_served, served_here=True, by_handle=True),
    "replay": PolicyKind("replay:FILE", "a recorded run of the benchmark, where it knows any (.json or .jsonl, either "
                         "with .gz)", _recording, _build_replay, replays_recording=True),
    "ledger": PolicyKind("ledger:DIR", "what a policy said in an evaluation's folder, graded again", _elsewhere,
                         _build_replay),
    "replies": PolicyKind("replies:FILE", 'JSON lines with "task", "reply" and, for samples, "sample", graded',
                          _elsewhere, _build_replay),
    "function": PolicyKind("function:MODULE:NAME", "a Python function from messages to the text of a reply", _function,
                           _build_function),
    "human": PolicyKind("human", "a person at this terminal", _name_alone, lambda spec: HumanPolicy()),
    "noop": PolicyKind("noop", "nothing at all: every reply is empty", _name_alone, lambda spec: NoopPolicy(),
                       baseline=Baseline("no action", 4, is_floor=True)),
    "random": PolicyKind("random", "a random admissible action or answer, empty where a benchmark lists none",
                         _name_alone, lambda spec: RandomPolicy(),
                         baseline=Baseline("random action", 2, is_floor=True)),
    "expert": PolicyKind("expert", "the environment's own expert", _name_alone, lambda spec: ExpertPolicy(),
                         needs_hints=True, baseline=Baseline("expert", 3)),
}  # fmt: skip
"""Kinds of ``--policy`` by the text before the colon."""


@cache
def _model_at(endpoint: Endpoint, name: str) -> Policy:
    return OpenAIPolicy(endpoint.url, endpoint.model, name=name, options=endpoint.options)


def policy_at(spec: str, role: str) -> Policy:
    """The model ``openai:URL#MODEL`` that environments of this process ask in a role (teacher, judge), with the options
    that are registered for it. One policy per process, model and role."""
    url, _, model = spec.removeprefix("openai:").partition("#")
    return _model_at(endpoint_at(url, model), f"{role}:{model}")
