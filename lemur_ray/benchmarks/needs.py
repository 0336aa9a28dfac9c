"""What must be there before the first episode: each need says what is missing and the command that brings it.

A need is looked at in seconds and starts nothing but, at most, one sandbox. Knows no benchmark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lemur_ray.host.renamed_names import renamed_names

LOOK_S = 4.0
"""How long anybody outside may take to answer a look."""


@dataclass(frozen=True)
class Requirement:
    """One thing. ``missing``: what is not there and what brings it, in one line; None where all is well."""

    what: str
    missing: Callable[[], str | None]


def requirement_of(what: str, look: Callable[[], object]) -> Requirement:
    """A need that is met where ``look`` raises nothing; what it raises says what is missing and what to do."""

    def missing() -> str | None:
        look()
        return None

    return Requirement(what, missing)


def first_task_loads(load: Callable[[Any, Any], Iterable[Any]]) -> Callable[[Any, Any], Sequence[Requirement]]:
    """The ``needs`` of a benchmark that reads files: its first task can be made, so they are there and can be read."""
    return lambda options, asked: (requirement_of("data", lambda: next(iter(load(options, asked)), None)),)


def missing_requirements(needs: Sequence[Requirement]) -> list[str]:
    """What is missing of all of them, looked at side by side, in their order, each thing once."""
    if not needs:
        return []
    with ThreadPoolExecutor(min(16, len(needs))) as pool:
        found = list(pool.map(_looked_at, needs))
    return list(dict.fromkeys(said for said in found if said))


def _looked_at(need: Requirement) -> str | None:
    try:
        return need.missing()
    except SystemExit as error:  # of somebody else's package, and in a thread: the process would end without a word
        return f"{need.what}: what was looked for asked the process to end ({error.code})"
    except Exception as error:  # whatever a look raises: what it looked for cannot be used as it is
        return " ".join(str(error).split()) or f"{need.what}: {type(error).__name__}"


def readable_file(what: str, path: Path) -> Requirement:
    """A file that the command line names."""

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
