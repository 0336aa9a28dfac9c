"""Classification of worker failures: transient, fixable only by a person, or certain to recur after a restart.

A lost host, an unreachable bucket and a broken collective pass by themselves. Failures of data, code or host memory
recur at the same step: a run that commits nothing in between makes no progress. The project's own errors carry their
exit code; those of Ray, tensorstore and collectives arrive as text, so `classify` is the one place that matches text.
Knows nothing of Ray, of jax and of how workers are started."""

import enum
import re
from collections import Counter
from collections.abc import Callable, Mapping

from lemur_ray.host.exit_codes import ExitCode, own_exit_code
from lemur_ray.train.run.fence import Superseded
from lemur_ray.train.run.folder import RunFolderError, TrainingStopped

ALIKE = 4
"""Number of failures with the same text since the newest commit at which the run stops."""
REFUSED = 2
"""That number for failures that only a person can fix: one restart, since a new process requests new credentials."""
CRASHED = 8
"""That number for processes that end without an error on a live host: out of memory, or killed."""


class FailureKind(enum.Enum):
    """Kind of a worker failure, which decides whether a restart can help."""

    NEEDS_PERSON = enum.auto()
    """No space, no permission, expired credentials: a person must act."""
    CRASH = enum.auto()
    """A process that ended without an error on a live host."""
    TRANSIENT = enum.auto()
    """A network, a service or another worker is away for a while."""
    LASTING = enum.auto()
    """Any other failure, of data, code or memory of a host: it occurs again after a restart."""


_NEEDS_PERSON = (
    "No space left", "quota exceeded", "Permission denied", "Read-only file", "PERMISSION_DENIED", "UNAUTHENTICATED",
)  # fmt: skip
"""Phrases in errors of disks and tensorstore."""
_TRANSIENT = re.compile(
    r"connection|connect to|gloo|broken pipe|socket|unavailable|deadline|timed? ?out|barrier|coordination|heartbeat"
    r"|cancelled|aborted",
    re.IGNORECASE,
)
"""Phrases in errors of tensorstore, collectives and Ray."""
_LOST_HOST = re.compile(r"node has died|node died")
_CRASH = "worker process has died"
_DIFFERING = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8,}|\d+", re.IGNORECASE)
"""Ids, addresses and counts, in which two failures of one kind may differ."""


class WorkersLost(TrainingStopped):
    """Raised when workers were lost more often than tolerated: the same command resumes, on other hosts or later."""

    exit_code = ExitCode.TRY_AGAIN


def classify(error: BaseException) -> FailureKind:
    """Kind of a worker's error: by its exit code if it has one, else by phrases in its text."""
    match own_exit_code(error):
        case ExitCode.NEEDS_PERSON:
            return FailureKind.NEEDS_PERSON
        case ExitCode.TRY_AGAIN:
            return FailureKind.TRANSIENT
    text = short(error)
    if any(phrase in text for phrase in _NEEDS_PERSON):
        return FailureKind.NEEDS_PERSON
    if _CRASH in text:
        return FailureKind.CRASH
    return FailureKind.TRANSIENT if _TRANSIENT.search(text) else FailureKind.LASTING


class Failures:
    """Counts the failures of one run over all its restarts, to decide whether another restart can help.
    alike: number of equal failures of data, code or memory at which the run stops."""

    def __init__(self, alike: int = ALIKE) -> None:
        self._limits = {FailureKind.NEEDS_PERSON: REFUSED, FailureKind.CRASH: CRASHED, FailureKind.LASTING: alike}
        self._counts: Counter[str] = Counter()
        self._commit = -1

    def stop_reason(self, errors: Mapping[int, BaseException], newest: Callable[[], int]) -> str | None:
        """Why the run must not restart after these errors of its workers (rank -> error); None if it may. Counts them.
        newest: returns the step of the newest commit; called only if that matters, and may raise OSError."""
        for error in errors.values():
            if isinstance(error, TrainingStopped | RunFolderError) and not isinstance(error, Superseded):
                return str(error)
        if any(_LOST_HOST.search(str(error)) for error in errors.values()):
            return None  # the lost host explains the other errors too
        messages = {rank: short(error) for rank, error in sorted(errors.items())}
        kinds = {rank: classify(error) for rank, error in sorted(errors.items())}
        lasting = [rank for rank, kind in kinds.items() if kind in self._limits]
        if not lasting:
            return None
        rank = next((rank for rank in lasting if kinds[rank] is FailureKind.NEEDS_PERSON), lasting[0])
        try:
            commit = newest()
        except OSError:
            commit = self._commit  # an unreachable bucket has no new commit either
        if commit != self._commit:
            self._counts.clear()
            self._commit = commit
        key = f"{type(errors[rank]).__name__} {_DIFFERING.sub('#', messages[rank])}"
        self._counts[key] += 1
        if self._counts[key] < self._limits[kinds[rank]]:
            return None
        since = f"checkpoint {commit}" if commit > 0 else "the beginning"
        return (
            f"the workers failed {self._counts[key]} times in the same way since {since}, the last time with: worker "
            f"{rank}: {messages[rank]}; starting them again would not help: mend that, then run the same command again "
            "to resume"
        )


def short(error: BaseException) -> str:
    """The last line of an error's text, as Ray puts the worker's traceback before it; the class name if that is
    empty."""
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__
