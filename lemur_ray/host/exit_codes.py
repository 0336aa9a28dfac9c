"""Exit codes of every job: whether the same command helps, a person must act, or there is nothing to do.

docs/guides/pods.md has the table for users. Knows nothing of Ray, of buckets and of what jobs do: an error that knows
its own code has it in a field ``exit_code``.
"""

from __future__ import annotations

import enum
import errno

_PASSING = frozenset(
    getattr(errno, name)
    for name in ("EAGAIN", "EINTR", "ENETDOWN", "ENETUNREACH", "EHOSTDOWN", "EHOSTUNREACH", "ETIMEDOUT", "ESTALE")
)
"""Error numbers of networks and network file systems that pass by themselves."""


class ExitCode(enum.IntEnum):
    """What a job's end asks for. A process ended by a signal (128 + its number) is retried, as TRY_AGAIN."""

    FINISHED = 0
    """Done; nothing to do."""
    NEEDS_PERSON = 1
    """The same command would fail in the same way: an input, a right, a disk or the code must be changed first."""
    USAGE = 2
    """The command line is wrong."""
    TRY_AGAIN = 75
    """A host, a service or the cluster was away: the same command helps (EX_TEMPFAIL of sysexits.h)."""
    OVERTAKEN = 79
    """A newer run of the same command has taken over: nothing to do. No code of sysexits.h, which end at 78."""
    INTERRUPTED = 130
    """Stopped by Ctrl-C or SIGTERM: the same command resumes."""

    @property
    def is_final(self) -> bool:
        """Whether running the same command again is useless."""
        return self not in (ExitCode.TRY_AGAIN, ExitCode.INTERRUPTED)


def exit_code_of(error: BaseException) -> ExitCode:
    """Exit code for an error that ends a job: that of the first error in its chain of causes that knows one.

    An error knows its code by a field ``exit_code``, as a failure of the network, or as one of Ray, whose errors are of
    its own processes and hosts unless they have a ``cause`` in the code that it ran.
    """
    seen: set[int] = set()
    link: BaseException | None = error
    while link is not None and id(link) not in seen:
        seen.add(id(link))
        if isinstance(link, KeyboardInterrupt):
            return ExitCode.INTERRUPTED
        inner = getattr(link, "cause", None)
        if isinstance(inner, BaseException):  # a RayTaskError, which is an instance of its cause's class too
            link = inner
            continue
        if isinstance(code := getattr(link, "exit_code", None), ExitCode):
            return code
        if isinstance(link, ConnectionError | TimeoutError) or (isinstance(link, OSError) and link.errno in _PASSING):
            return ExitCode.TRY_AGAIN
        if type(link).__module__.startswith("ray."):
            return ExitCode.TRY_AGAIN
        link = link.__cause__
    return ExitCode.NEEDS_PERSON
