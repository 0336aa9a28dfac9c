"""Exit codes of all jobs: whether to run the same command again, to have a person act, or to do nothing.

docs/guides/pods.md has the table for users. An exception class may set its own code in the field ``exit_code``. Knows
nothing of Ray, of buckets and of what jobs do."""

import enum
import errno
from collections.abc import Iterable, Iterator
from typing import Any

_PASSING = frozenset(
    getattr(errno, name)
    for name in ("EAGAIN", "EINTR", "ENETDOWN", "ENETUNREACH", "EHOSTDOWN", "EHOSTUNREACH", "ETIMEDOUT", "ESTALE")
)
"""Error numbers of transient failures of networks and network file systems."""


class ExitCode(enum.IntEnum):
    """Exit code of a job. A process that a signal ended (code 128 + its number) may be retried, as with TRY_AGAIN."""

    FINISHED = 0
    """Done; nothing to do."""
    NEEDS_PERSON = 1
    """The same command would fail in the same way: an input, a right, a disk or the code must be changed first."""
    USAGE = 2
    """The command line is wrong."""
    TRY_AGAIN = 75
    """A host, a service or the cluster was unavailable, or the folder is in use: run it again (EX_TEMPFAIL)."""
    OVERTAKEN = 79
    """A newer run of the same command has taken over: nothing to do. No code of sysexits.h, which end at 78."""
    INTERRUPTED = 130
    """Stopped by Ctrl-C or SIGTERM: the same command resumes."""

    @property
    def is_final(self) -> bool:
        """Whether running the same command again is useless."""
        return self not in (ExitCode.TRY_AGAIN, ExitCode.INTERRUPTED)


class CausedError(Exception):
    """An error that keeps the exit code of its cause when it is pickled, which drops the cause itself."""

    exit_code: ExitCode | None = None

    def __reduce__(self) -> Any:
        reduced: Any = super().__reduce__()  # (class, arguments), and the fields where there are any
        fields = reduced[2] if len(reduced) > 2 else {}
        return *reduced[:2], {**fields, "exit_code": own_exit_code(self)}


class JobFailure(SystemExit):
    """Raised to end a job with a message on stderr. ``exit_code``: exit code of a process that was started as a job;
    any other Python process exits with 1."""

    def __init__(self, message: str, exit_code: ExitCode) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def own_exit_code(error: BaseException) -> ExitCode | None:
    """Field ``exit_code`` of the first error in a chain of causes that has one; None if no error knows its code."""
    codes = (getattr(link, "exit_code", None) for link in _chain(error))
    return next((code for code in codes if isinstance(code, ExitCode)), None)


def exit_code_of(error: BaseException) -> ExitCode:
    """Exit code for an error that ends a job: its own (``own_exit_code``), INTERRUPTED for Ctrl-C, TRY_AGAIN for errors
    of the network and of Ray itself, else NEEDS_PERSON."""
    if isinstance(error, KeyboardInterrupt):
        return ExitCode.INTERRUPTED
    if (code := own_exit_code(error)) is not None:
        return code
    return ExitCode.TRY_AGAIN if any(_is_passing(link) for link in _chain(error)) else ExitCode.NEEDS_PERSON


def common_exit_code(errors: Iterable[BaseException]) -> ExitCode:
    """Exit code for several errors of one job: TRY_AGAIN if that is the code of each, else NEEDS_PERSON."""
    return ExitCode.TRY_AGAIN if {exit_code_of(e) for e in errors} == {ExitCode.TRY_AGAIN} else ExitCode.NEEDS_PERSON


def _chain(error: BaseException) -> Iterator[BaseException]:
    """An error and its causes; for an error that Ray carried from a task, the error of the task instead."""
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        inner = getattr(link, "cause", None)  # of a RayTaskError, an instance of its cause's class without its fields
        if isinstance(inner, BaseException):
            link = inner
            continue
        yield link
        link = link.__cause__


def _is_passing(error: BaseException) -> bool:
    of_network = isinstance(error, ConnectionError | TimeoutError)
    of_files = isinstance(error, OSError) and error.errno in _PASSING
    return of_network or of_files or type(error).__module__.startswith("ray.")
