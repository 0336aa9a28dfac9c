"""How a job that plays episodes ends: warnings on stderr, a JSON line on stdout, the exit code."""

import contextlib
import json
import signal
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from lemur_ray.agents.messages import PolicyUnreachable
from lemur_ray.agents.trajectory import Blame, Episode, Outcome
from lemur_ray.host.commands import as_typed, program
from lemur_ray.host.exit_codes import ExitCode, exit_code_of
from lemur_ray.host.full_disk import is_full_disk
from lemur_ray.rollout.episode_record import TRUNCATED_PROMPT
from lemur_ray.rollout.evaluation_folder import EvaluationError
from lemur_ray.rollout.ledger import LedgerError
from lemur_ray.rollout.progress import CutReplies
from lemur_ray.rollout.threads import PoolBroken


def warn_of_anomalies(episodes: Sequence[Episode]) -> None:
    """Print warnings on stderr about episodes that distort the success rate: the three commonest reasons for missing
    scores, too long or truncated prompts, and cut replies."""
    unscored = (e.detail.strip().splitlines() for e in episodes if e.detail.strip() and not e.outcome.scored)
    for reason, count in Counter(lines[-1][:500] for lines in unscored).most_common(3):
        print(f"{count} without a score: {reason}", file=sys.stderr, flush=True)
    early = [e for e in episodes if e.outcome is Outcome.CONTEXT_OVERFLOW and len(e.trajectory.steps) <= 1]
    if early:
        print(
            f"{len(early)} of {len(episodes)} episodes did not fit the model's context after at most one turn, so "
            "their 0 says nothing of its skill: give it a shorter prompt (--prompt brief) or replies (--max-tokens)",
            file=sys.stderr,
            flush=True,
        )
    if truncated := sum(episode.truncated_prompts > 0 for episode in episodes):
        print(f"{truncated} of {len(episodes)} episodes: {TRUNCATED_PROMPT}", file=sys.stderr, flush=True)
    for warning in CutReplies(episodes).warnings():
        print(warning, file=sys.stderr, flush=True)


@dataclass
class JobExit:
    """The exit code of a job, which the job or ``print_headline`` sets."""

    code: int = ExitCode.FINISHED

    def print_headline(self, headline: Mapping[str, Any]) -> None:
        """Print ``headline``, which needs "scored" and "missing_by_blame", as a job's last JSON line; its page to
        stderr. If nothing was scored, ``code`` becomes TRY_AGAIN if hosts or services lost all, else NEEDS_PERSON."""
        if (page := Path(str(headline.get("out") or ""), "index.html")).is_file():
            print(f"the page: {page}", file=sys.stderr, flush=True)
        print(json.dumps(headline, allow_nan=False), flush=True)
        if headline["scored"] == 0:
            of_infra = headline["missing_by_blame"].keys() == {Blame.INFRA}
            self.code = ExitCode.TRY_AGAIN if of_infra else ExitCode.NEEDS_PERSON
            blames = ", ".join(f"{count} by {blame}" for blame, count in headline["missing_by_blame"].items())
            print(
                f"nothing was scored ({blames}), so there is no rate; episodes.jsonl says what went wrong, and the "
                "same command plays them again",
                file=sys.stderr,
                flush=True,
            )


@contextlib.contextmanager
def job_exit(job: str) -> Iterator[JobExit]:
    """Context manager that turns expected errors into one line on stderr, prefixed with the name of ``job``, and an
    exit code. SIGTERM (``ray job stop``) stops a run as Ctrl-C does: it can be resumed, and all resources are freed."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    exit_code = JobExit()
    try:
        yield exit_code
    except (EvaluationError, LedgerError, PoolBroken, PolicyUnreachable, ValueError, OSError) as error:
        print(as_typed(f"{program(job)}: {_full_disk_advice(error) or error}"), file=sys.stderr, flush=True)
        exit_code.code = exit_code_of(error)
    except KeyboardInterrupt as stop:
        print(f"{program(job)}: stopped; the same command goes on where it left off", file=sys.stderr, flush=True)
        exit_code.code = exit_code_of(stop)
    finally:
        signal.signal(signal.SIGTERM, before)


def _full_disk_advice(error: Exception) -> str:
    """Message about a full disk, with the remedy; empty for any other error."""
    if not isinstance(error, OSError) or not is_full_disk(error):
        return ""
    where = f"{error.filename}: " if error.filename else ""
    return (
        f"{where}{error.strerror}: make room where --out lies (and LEMUR_HOME, TMPDIR), then the same command goes on; "
        "what was finished is kept"
    )
