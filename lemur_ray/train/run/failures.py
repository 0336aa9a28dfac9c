"""Whether starting a run again can help: what passes, what only a person can change, what comes back every time.

A host that is lost, a bucket that does not answer and a collective that another worker has left are over after a
while. What the data, the code or the memory of a host do at a step they do again at the same step: a run that commits
nothing in between will not get any further. Knows nothing of Ray, of jax and of how workers are started.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping

from lemur_ray.train.run.fence import Overhauled
from lemur_ray.train.run.folder import RunFolderError, TrainingStopped

ALIKE = 4
"""Failures of one kind since the newest commit after which it counts as one that always comes back."""
REFUSED = 2
"""The same for what only a person can change: a new process has asked for new credentials once."""
CRASHED = 8
"""The same for processes that end without a word on a host that lives: for want of memory, or because somebody ends
them."""

_FOR_A_PERSON = (
    "No space left", "quota exceeded", "Permission denied", "Read-only file", "PERMISSION_DENIED", "UNAUTHENTICATED",
    "answered 401", "answered 403", "credentials cannot be used", "credentials have expired", "there is no such bucket",
)  # fmt: skip
"""As disks, tensorstore and our own clients of buckets (``storage.patience``) say it."""
_PASSING = re.compile(
    r"did not answer|cannot be reached|is in trouble|broke off|is asked too often|connection|connect to|gloo|broken"
    r" pipe|socket|unavailable|deadline|timed? ?out|barrier|coordination|heartbeat|cancelled|aborted",
    re.IGNORECASE,
)
"""How clients of buckets, collectives and Ray say that something is away just now."""
_LOST_HOST = re.compile(r"node has died|node died")
_CRASH = "worker process has died"
_DIFFERING = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8,}|\d+", re.IGNORECASE)
"""Ids, addresses and counts: two failures of one kind may differ in them."""


def for_a_person(text: str) -> bool:
    """Whether an error says what only a person can change: no room, no permission, credentials that expired."""
    return any(words in text for words in _FOR_A_PERSON)


def passes(text: str) -> bool:
    """Whether an error says that a network, a service or another worker is away just now."""
    return not for_a_person(text) and _CRASH not in text and _PASSING.search(text) is not None


class Failures:
    """The failures of one run, start after start."""

    def __init__(self, alike: int = ALIKE) -> None:
        self._alike = alike
        self._counts: Counter[str] = Counter()
        self._commit = -1

    def last_word(self, errors: Mapping[int, BaseException], newest: Callable[[], int]) -> str | None:
        """Why the run must not be started again after these errors, by rank; None: it may go on.

        newest: the step of the newest commit; asked only where that matters, and may raise OSError.
        """
        for error in errors.values():
            if isinstance(error, TrainingStopped | RunFolderError) and not isinstance(error, Overhauled):
                return str(error)
        if any(_LOST_HOST.search(str(error)) for error in errors.values()):
            return None  # which explains whatever the others say
        said = {rank: short(error) for rank, error in sorted(errors.items())}
        lasting = {rank: text for rank, text in said.items() if not passes(text)}
        if not lasting:
            return None
        rank, why = next(((rank, text) for rank, text in lasting.items() if for_a_person(text)), min(lasting.items()))
        try:
            commit = newest()
        except OSError:
            commit = self._commit  # a bucket that cannot be asked now has no new commit either
        if commit != self._commit:
            self._counts.clear()
            self._commit = commit
        kind = f"{type(errors[rank]).__name__} {_DIFFERING.sub('#', why)}"
        self._counts[kind] += 1
        if self._counts[kind] < (REFUSED if for_a_person(why) else CRASHED if _CRASH in why else self._alike):
            return None
        since = f"checkpoint {commit}" if commit > 0 else "the beginning"
        return (
            f"the workers failed {self._counts[kind]} times in the same way since {since}, the last time with: worker "
            f"{rank}: {why}; starting them again would not help: mend that, then run the same command again to resume"
        )


def short(error: BaseException) -> str:
    """The last line of an error's text: Ray puts the traceback of the worker before it."""
    lines = [line for line in str(error).strip().splitlines() if line.strip()]
    return lines[-1].strip() if lines else type(error).__name__
