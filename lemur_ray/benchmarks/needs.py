"""Requirements of benchmarks, checked before the first episode; each reports what is missing and the remedy.

A check takes seconds and starts at most one sandbox."""

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from lemur_ray.host.exit_codes import ExitCode, own_exit_code
from lemur_ray.host.renamed_names import renamed_names
from lemur_ray.outside_data.source import MissingFiles

LOOK_S = 4.0
"""Timeout of a check of an external service, in seconds"""


class NoDataFolder(ValueError):
    """Raised if a benchmark needs the folder of downloaded data sets (``--data``, LEMUR_DATA) and none is set."""

    remedy = "outside data: fetch it (python jobs/fetch_data.py NAME) or say where it lies, --data DIR or LEMUR_DATA"

    def __init__(self, content: str) -> None:
        """content: what the folder would hold."""
        super().__init__(f"{content} is {self.remedy}")


class ProblemKind(Enum):
    """Kinds of unmet requirements, which decide how a list shows them and whether a retry can help."""

    NO_DATA_FOLDER = 0
    """No data folder is set; all benchmarks with data have this problem, so lists show it once"""
    MISSING_FILES = 1
    """Files of the benchmark's data are missing"""
    TEMPORARY = 2
    """A service or host was unreachable, so a retry can help"""
    OTHER = 3


class Problem(str):
    """Text of an unmet requirement and its remedy. files: paths below the data folder that MISSING_FILES is about; for
    OTHER, the whole path of a file that was opened and is not there."""

    kind: ProblemKind
    files: tuple[str, ...]

    def __new__(cls, text: str, kind: ProblemKind = ProblemKind.OTHER, files: Sequence[str] = ()) -> Self:
        self = super().__new__(cls, text)
        self.kind, self.files = kind, tuple(files)
        return self


@dataclass(frozen=True)
class Requirement:
    """A precondition of a benchmark. ``what``: its kind, such as "data". ``missing``: check it; returns None if it is
    met, else the problem and its remedy in one line, or raises ValueError or OSError with them."""

    what: str
    missing: Callable[[], str | None]


def requirement_of(what: str, look: Callable[[], object]) -> Requirement:
    """A requirement of kind ``what``, met unless ``look()`` raises; the error must state problem and remedy."""

    def missing() -> str | None:
        look()
        return None

    return Requirement(what, missing)


def first_task_loads(
    load: Callable[[Any, Any], Iterable[Any]], what: str = "data"
) -> Callable[[Any, Any], Sequence[Requirement]]:
    """A function for ``Benchmark.needs`` whose one requirement is that the first task of ``load`` can be loaded.
    ``what``: its kind."""
    return lambda options, request: (requirement_of(what, lambda: next(iter(load(options, request)), None)),)


def missing_requirements(needs: Sequence[Requirement]) -> list[Problem]:
    """Check requirements in parallel (16 threads). Returns the problems of those not met, in their order, without
    duplicates; empty if all are met."""
    return list(problems_by_requirement(needs))


def problems_by_requirement(needs: Sequence[Requirement]) -> dict[Problem, Requirement]:
    """Check requirements in parallel (16 threads). Returns the problem of each that is not met -> the first requirement
    that has it, in their order; empty if all are met."""
    problems: dict[Problem, Requirement] = {}
    with ThreadPoolExecutor(16) as pool:
        for need, problem in zip(needs, pool.map(_check, needs), strict=True):
            if problem:
                problems.setdefault(problem, need)
    return problems


def _check(need: Requirement) -> Problem | None:
    try:
        problem = need.missing()
        return Problem(problem) if problem else None
    except SystemExit as error:  # raised by an installed package; in a thread it would be lost silently
        return Problem(f"{need.what}: what was looked for asked the process to end ({error.code})")
    except Exception as error:  # any error means that the requirement is not met
        text = " ".join(str(error).split()) or f"{need.what}: {type(error).__name__}"
        if isinstance(error, NoDataFolder):
            return Problem(text, ProblemKind.NO_DATA_FOLDER)
        if isinstance(error, MissingFiles):
            return Problem(text, ProblemKind.MISSING_FILES, error.names)
        if own_exit_code(error) is ExitCode.TRY_AGAIN:
            return Problem(text, ProblemKind.TEMPORARY)
        opened = [str(error.filename)] if isinstance(error, FileNotFoundError) and error.filename else []
        return Problem(text, files=opened)


def exit_code_of_problems(problems: Iterable[str]) -> ExitCode:
    """Exit code of a job that has these problems: TRY_AGAIN if all of them are temporary."""
    passes = all(isinstance(problem, Problem) and problem.kind is ProblemKind.TEMPORARY for problem in problems)
    return ExitCode.TRY_AGAIN if passes else ExitCode.NEEDS_PERSON


def readable_file(what: str, path: Path) -> Requirement:
    """The requirement that the file ``path`` exists and can be read. ``what``: the command-line flag that names it."""

    def look() -> None:
        if not path.is_file():
            raise FileNotFoundError(f"{what}: {path} is not there; give the file's whole path")
        with path.open("rb"):
            pass

    return requirement_of(what, look)


if not TYPE_CHECKING:
    __getattr__ = renamed_names(
        __name__, Need="Requirement", there="requirement_of", begins="first_task_loads",
        lacking="missing_requirements", readable="readable_file",
    )  # fmt: skip
