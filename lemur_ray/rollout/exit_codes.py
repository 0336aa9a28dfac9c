"""How a job that plays episodes ends: what it warns of on stderr, its last line, its exit code.

Knows no benchmark and no pool.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

from lemur_ray.agents.messages import PolicyUnreachable
from lemur_ray.agents.trajectory import Episode, Outcome
from lemur_ray.host.full_disk import is_full_disk
from lemur_ray.rollout.episode import TRUNCATED_PROMPT
from lemur_ray.rollout.evaluation_folder import EvaluationError
from lemur_ray.rollout.ledger import LedgerError
from lemur_ray.rollout.threads import PoolBroken


def warn_of_anomalies(episodes: Sequence[Episode]) -> None:
    """Say on stderr what a reader of the rate must know of its episodes."""
    warn_of_missing(episodes)
    warn_of_overflow(episodes)
    if cut := sum(TRUNCATED_PROMPT in episode.detail for episode in episodes):
        print(f"{cut} of {len(episodes)} episodes: {TRUNCATED_PROMPT}", file=sys.stderr, flush=True)


def warn_of_missing(episodes: Sequence[Episode]) -> None:
    """Say why episodes have no score, each reason once, the most frequent first."""
    reasons = Counter(
        episode.detail.strip().splitlines()[-1][:500]
        for episode in episodes
        if episode.detail.strip() and not episode.outcome.scored
    )
    for reason, count in reasons.most_common(3):
        print(f"{count} without a score: {reason}", file=sys.stderr, flush=True)


def warn_of_overflow(episodes: Sequence[Episode]) -> None:
    """Warn on stderr where episodes ended because the conversation did not fit the model before it really began."""
    early = [e for e in episodes if e.outcome is Outcome.CONTEXT_OVERFLOW and len(e.trajectory.steps) <= 1]
    if early:
        print(
            f"{len(early)} of {len(episodes)} episodes did not fit the model's context after at most one turn, so "
            "their 0 says nothing of its skill: give it a shorter prompt (--prompt brief) or replies (--max-tokens)",
            file=sys.stderr,
            flush=True,
        )


@dataclass
class JobExit:
    """How a job ended, as an exit code."""

    code: int = 0

    def say(self, headline: Mapping[str, Any]) -> None:
        """Print the JSON line that ends a job. An evaluation in which nothing was scored measured nothing: code 1."""
        print(json.dumps(headline, allow_nan=False), flush=True)
        if headline["scored"] == 0:
            self.code = 1
            why = ", ".join(f"{count} by {blame}" for blame, count in headline["missing_by_blame"].items())
            print(
                f"nothing was scored ({why}), so there is no rate; episodes.jsonl says what went wrong, and the same "
                "command plays them again",
                file=sys.stderr,
                flush=True,
            )


@contextlib.contextmanager
def job_exit(job: str) -> Iterator[JobExit]:
    """What may go wrong becomes one line on stderr and an exit code: 1, or 130 where the run was stopped.

    SIGTERM (``ray job stop``) stops a run as Ctrl-C does: resumable, and with everything given back.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    end = JobExit()
    try:
        yield end
    except (EvaluationError, LedgerError, PoolBroken, PolicyUnreachable, ValueError, OSError) as error:
        print(f"{job}: {_full_disk(error) or error}", file=sys.stderr, flush=True)
        end.code = 1
    except KeyboardInterrupt:
        print(f"{job}: stopped; the same command goes on where it left off", file=sys.stderr, flush=True)
        end.code = 130
    finally:
        signal.signal(signal.SIGTERM, before)


def _full_disk(error: Exception) -> str:
    """What to do about a disk without space; empty where it is something else."""
    if not isinstance(error, OSError) or not is_full_disk(error):
        return ""
    where = f"{error.filename}: " if error.filename else ""
    return (
        f"{where}{error.strerror}: make room where --out lies (and LEMUR_HOME, TMPDIR), then the same command goes on; "
        "what was finished is kept"
    )
