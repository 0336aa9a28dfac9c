"""How often an attempt is repeated, and after which delay. Knows nothing of pools or ledgers."""

from __future__ import annotations

from dataclasses import dataclass

from lemur_ray.agents.trajectory import Blame, Outcome

LONGEST_DELAY_S = 60.0


@dataclass(frozen=True)
class RetryPolicy:
    """How often an attempt that says nothing of the policy is repeated, and how long the runner waits before."""

    env: int = 2
    infra: int = 3
    harness: int = 1
    unreachable_delay_s: float = 5.0
    """Before another attempt at an endpoint that did not answer; doubles with each attempt, up to LONGEST_DELAY_S."""
    infra_delay_s: float = 1.0
    """Likewise at an episode that its host lost."""
    silence_s: float = 300.0
    """Of attempts that all found the policy unreachable, more than are in flight: then the run stops."""

    def allowed(self, outcome: Outcome) -> int:
        """Repetitions after the first attempt."""
        return {Blame.POLICY: 0, Blame.ENV: self.env, Blame.INFRA: self.infra, Blame.HARNESS: self.harness}[
            outcome.blame
        ]

    def delay_s(self, outcome: Outcome, attempt: int) -> float:
        """Seconds to wait after attempt number ``attempt`` (1-based)."""
        first_s = {Outcome.POLICY_UNREACHABLE: self.unreachable_delay_s, Outcome.INFRA_LOST: self.infra_delay_s}
        return min(LONGEST_DELAY_S, first_s.get(outcome, 0.0) * 2 ** min(attempt - 1, 10))
