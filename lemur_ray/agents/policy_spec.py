"""What ``--policy`` says, as a value: parsed on the driver, carried to every actor, built into a policy there.

Knows nothing of serving: ``checkpoint`` must have been turned into an endpoint before a policy can be built.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lemur_ray.agents.messages import Policy
from lemur_ray.agents.openai_policy import OpenAIPolicy
from lemur_ray.agents.scripted import ExpertPolicy, RandomPolicy

KNOWN = {
    "openai:URL": "an OpenAI-compatible endpoint, for example openai:http://127.0.0.1:8000/v1",
    "checkpoint[:RUN]": "a local checkpoint, served here: a run folder or its name, by default the newest",
    "random": "a random admissible action",
    "expert": "the environment's own expert",
}


@dataclass(frozen=True)
class PolicySpec:
    """A policy that can be built anywhere. Calling it builds it."""

    kind: str
    target: str = ""
    """URL of an endpoint, or run of a checkpoint (empty: the newest)."""
    model: str = ""
    """Model name at the endpoint."""
    label: str = ""
    """Name of the policy in keys and reports."""
    our_server: bool = False
    """Whether an endpoint is a server of ours: it tells which version of the weights it serves."""
    patience_s: float = 240.0
    """Seconds an endpoint may fail to answer one request before its episode is given up."""

    @classmethod
    def parse(cls, text: str, model: str = "") -> PolicySpec:
        """Raises ValueError that lists what is known."""
        kind, _, target = text.partition(":")
        if kind == "openai" and target.startswith(("http://", "https://")):
            return cls(kind, target.rstrip("/"), model, f"openai:{model}" if model else "")
        if kind == "checkpoint":
            return cls(kind, target, model)
        if text in ("random", "expert"):
            return cls(kind, label=kind)
        known = "; ".join(f"{name} ({what})" for name, what in KNOWN.items())
        raise ValueError(f"--policy {text!r}: expected one of {known}")

    @property
    def knows_our_words(self) -> bool:
        """Whether it is served by us, here or elsewhere: such models were tuned on the brief prompts."""
        return self.kind == "checkpoint" or self.our_server

    def at_endpoint(self, url: str, model: str, label: str) -> PolicySpec:
        """The same policy once it is served at ``url``."""
        return replace(self, kind="openai", target=url, model=model, label=label)

    def __call__(self) -> Policy:
        if self.kind == "openai":
            return OpenAIPolicy(self.target, self.model, name=self.label, patience_s=self.patience_s)
        if self.kind in ("random", "expert"):
            return RandomPolicy() if self.kind == "random" else ExpertPolicy()
        raise ValueError(f"policy {self.kind!r} must be served before it can be asked")
