"""What ``--policy`` says, as a value: parsed on the driver, carried to every actor, built into a policy there.

Knows nothing of serving: ``checkpoint`` must have been turned into an endpoint before a policy can be built, and the
policy of a ``handle`` is built by what serves it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from lemur_ray.agents.baselines.human import HumanPolicy
from lemur_ray.agents.baselines.scripted import ExpertPolicy, RandomPolicy
from lemur_ray.agents.endpoint import EndpointOptions, RequestSlots, checked_url, redact_url
from lemur_ray.agents.messages import Policy
from lemur_ray.agents.openai_policy import OpenAIPolicy
from lemur_ray.agents.recording import Recording, RecordingFormat
from lemur_ray.agents.replay import ReplayPolicy

KNOWN = {
    "openai:URL": "an OpenAI-compatible endpoint, for example openai:http://127.0.0.1:8000/v1",
    "checkpoint[:RUN]": "a local checkpoint, served here: a run folder or its name, by default the newest",
    "handle[:RUN]": "the same, asked for token ids inside the cluster, without HTTP; RUN, a model or an application "
    "that jobs/serve.py serves there already is asked as it is",
    "replay:FILE": "a recorded run of the benchmark, where it knows any (.json or .jsonl, either with .gz)",
    "ledger:DIR": "what a policy said in an evaluation's folder, graded again",
    "replies:FILE": 'JSON lines with "task", "reply" and, for samples, "sample", graded',
    "human": "a person at this terminal",
    "random": "a random admissible action",
    "expert": "the environment's own expert",
}


_WITHOUT_TARGET: dict[str, Callable[[], Policy]] = {
    "human": HumanPolicy,
    "random": RandomPolicy,
    "expert": ExpertPolicy,
}


@dataclass(frozen=True)
class PolicySpec:
    """A policy that can be built anywhere. Calling it builds it."""

    kind: str
    target: str = ""
    """URL of an endpoint, run of a checkpoint or handle (empty: the newest), or file of a recording."""
    model: str = ""
    """Model name at the endpoint."""
    label: str = ""
    """Name of the policy in keys and reports."""
    our_server: bool = False
    """Whether an endpoint is a server of ours: it tells which version of the weights it serves."""
    context: int = 0
    """Tokens that an endpoint's model takes, where it tells; else 0."""
    count: Callable[[str], int | None] | None = None
    """Of an application: how many tokens its model has for a text, where it tells."""
    options: EndpointOptions = EndpointOptions()
    """How an endpoint, or a model that is served here, is asked."""
    application: str = ""
    """Of a handle: what serves its model on the cluster already (``serve.on_ray.attach``). Empty: nothing does."""
    recordings: RecordingFormat | None = None
    """How a file that is replayed is read."""
    stored: Callable[[Path], Recording[Any]] | None = None
    """How stored replies are read, where it says these again (``rollout/stored_replies.py``)."""
    chat_template: str = ""
    """Of a model that is served here: file with its template, or chatml; empty: its own."""

    @classmethod
    def parse(cls, text: str, model: str = "", recordings: RecordingFormat | None = None) -> PolicySpec:
        """``recordings``: of the benchmark that is played. Raises ValueError that lists what is known."""
        kind, _, target = text.partition(":")
        if kind == "openai" and target.startswith(("http://", "https://")):
            url = checked_url(target, "--policy")
            return cls(kind, url, model, f"openai:{model}" if model else "")
        if kind in ("checkpoint", "handle"):
            return cls(kind, target, model)
        if kind == "replay" and target:
            file = Path(target).expanduser().absolute()
            if recordings is None:
                raise ValueError(f"--policy {text!r}: this benchmark knows no recordings to replay")
            return cls(kind, str(file), label=f"replay:{recordings.name(file)}", recordings=recordings)
        if text in _WITHOUT_TARGET:
            return cls(kind, label=kind)
        known = "; ".join(f"{name} ({what})" for name, what in KNOWN.items())
        raise ValueError(f"--policy {redact_url(text)!r}: expected one of {known}")

    @property
    def served_here(self) -> bool:
        """Whether it is a model of ours that must be served before it can be asked."""
        return self.kind in ("checkpoint", "handle")

    @property
    def knows_our_words(self) -> bool:
        """Whether it is served by us, here or elsewhere: such models were tuned on the brief prompts."""
        return self.served_here or self.our_server

    @property
    def recording(self) -> str:
        """File of the recording that is replayed, or empty."""
        return self.target if self.kind == "replay" else ""

    @property
    def replies(self) -> str:
        """File of stored replies that are graded, or empty."""
        return self.target if self.stored is not None else ""

    @property
    def asks_endpoint(self) -> bool:
        """Whether it is asked over HTTP."""
        return self.kind == "openai"

    def within(self, places: RequestSlots) -> PolicySpec:
        """The same policy with places at its endpoint that others share."""
        return replace(self, options=replace(self.options, places=places))

    def at_endpoint(self, url: str, model: str, label: str) -> PolicySpec:
        """The same policy once it is served at ``url``."""
        return replace(self, kind="openai", target=url, model=model, label=label)

    def without_files(self) -> Callable[[], Policy]:
        """A maker of the same policy for other hosts: what is replayed goes along, and no path does.

        Raises as the reader of a recording.
        """
        if self.kind == "replay" or self.stored is not None:
            policy = self()
            assert isinstance(policy, ReplayPolicy)
            return partial(ReplayPolicy, policy.recording, policy.name)
        return replace(self, chat_template="", recordings=None)

    def __call__(self) -> Policy:
        if self.kind == "openai":
            return OpenAIPolicy(self.target, self.model, name=self.label, options=self.options)
        if self.kind == "replay" and self.recordings is not None:
            return ReplayPolicy(self.recordings.read(Path(self.target)), self.label)
        if self.stored is not None:
            return ReplayPolicy(self.stored(Path(self.target)), self.label)
        if self.kind in _WITHOUT_TARGET:
            return _WITHOUT_TARGET[self.kind]()
        raise ValueError(f"policy {self.kind!r} must be served before it can be asked")
