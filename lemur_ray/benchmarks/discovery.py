"""A benchmark by its name: ``family/variant`` (ours or an installed package's), ``module:object``, ``gym:module:Id``.

Ours are packages under ``HOMES`` with a module ``benchmark``; others name theirs in the entry-point group
``lemur_ray.benchmarks``. Only what is asked for is imported, and nothing is ever installed.
"""

from __future__ import annotations

import functools
import pkgutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any

from lemur_ray.agents.trajectory import Episode
from lemur_ray.benchmarks.contract import Benchmark, check_options
from lemur_ray.benchmarks.episode_artifacts import View
from lemur_ray.benchmarks.plugin_calls import call_about, call_views
from lemur_ray.benchmarks.run_notes import EvaluationRun, RunDescription, default_description
from lemur_ray.config import did_you_mean

GROUP = "lemur_ray.benchmarks"
HOMES = ("envs", "envs.language", "envs.programs")
SCHEMES = "envs.foreign.benchmark"
"""Has a table ``SCHEMES``: what may stand before the colon of a name besides a module."""
TABLE = "BENCHMARKS"


def find(name: str) -> Benchmark[Any]:
    """Raises ValueError that says what is there instead, or which package could not be imported, and why."""
    module, colon, attribute = name.partition(":")
    if colon and module in (schemes := import_module(SCHEMES).SCHEMES):
        return _checked(name, schemes[module](attribute))
    if colon:
        return _checked(name, getattr(_imported(name, module), attribute, None))
    family, _, variant = name.partition("/")
    table = table_of(family, name)
    if variant not in table:
        known = [_name(family, one) for one in table]
        raise ValueError(f"--benchmark {name}: unknown benchmark{did_you_mean(name, known)}")
    return _checked(name, table[variant])


def is_ours(name: str) -> bool:
    """Whether it is a benchmark of this project, asked for as such."""
    module, colon, _ = name.partition(":")
    if colon:
        return module in import_module(SCHEMES).SCHEMES
    modules = _modules(name.partition("/")[0])
    return bool(modules) and modules[0].startswith(HOMES[0] + ".")


def belongs_to_another(said: str, name: str, benchmark: Benchmark[Any]) -> bool:
    """Whether tasks of the benchmark that was found by ``name`` and that say they are of ``said`` take the name of
    another one, whose words would stand beside their numbers."""
    if said == name or ":" in said or not _modules(said.partition("/")[0]):
        return False
    try:
        return find(said).load is not benchmark.load
    except ValueError:
        return False


def describe_run(name: str, run: EvaluationRun) -> RunDescription:
    """What a benchmark says of a run; the little that holds for all where it cannot be found any more."""
    try:
        benchmark = find(name)
    except ValueError:
        return default_description(run)
    return call_about(name, benchmark, run)


def episode_views(episode: Episode, played: str = "") -> Sequence[View]:
    """What was seen in an episode, where its benchmark is found and kept it. ``played``: the name by which it was
    played, where that is known and may be another one than its tasks say (``module:object``)."""
    name = played or episode.key.benchmark
    try:
        benchmark = find(name)
    except ValueError:
        return ()
    return call_views(name, benchmark, episode)


@dataclass(frozen=True)
class Offer:
    """One benchmark that a package says it has. ``why``: it cannot be played by this name, empty where it can.

    ``benchmark``: None where there is none to be looked at; then ``name`` may be that of the family alone.
    """

    name: str
    benchmark: Benchmark[Any] | None
    why: str = ""


def offers() -> Iterator[Offer]:
    """Everything that is offered, of every package, ours first; what one of them spoils is its own offer alone."""
    for family in families():
        modules = _modules(family)
        why = _unnameable(family) or _doubled(family, modules)
        for module in modules:
            try:
                table = _table(family, module)
            except ValueError as error:
                yield Offer(family, None, str(error))
                continue
            for variant, one in table.items():
                name = _name(family, variant)
                try:
                    yield Offer(name, _checked(name, one), why)
                except ValueError as error:
                    yield Offer(name, None, str(error))


def names() -> Iterator[str]:
    """Every benchmark that can be played, as ``find`` takes it."""
    return (one.name for one in offers() if not one.why)


def table_of(family: str, name: str = "") -> Mapping[str, Any]:
    """The benchmarks of a family by variant. ``name``: what was asked for. Raises ValueError."""
    modules, asked = _modules(family), f"--benchmark {name or family}"
    if not modules:
        raise ValueError(f"{asked}: no package offers {family!r}{did_you_mean(name or family, list(names()))}")
    if why := _doubled(name or family, modules, family):
        raise ValueError(why)
    return _table(name or family, modules[0])


def families() -> list[str]:
    """Every family that is offered, ours first."""
    ours = [
        found.name
        for home in HOMES
        if (package := find_spec(home)) is not None
        for found in pkgutil.iter_modules(package.submodule_search_locations)
        if found.ispkg and find_spec(f"{home}.{found.name}.benchmark") is not None
    ]
    return list(dict.fromkeys([*ours, *(name for name, _ in _offered(tuple(sys.path)))]))


def _modules(family: str) -> Sequence[str]:
    """Where the tables of a family are, ours first."""
    ours = [f"{home}.{family}" for home in HOMES if family.isidentifier() and find_spec(f"{home}.{family}") is not None]
    ours = [f"{package}.benchmark" for package in ours if find_spec(f"{package}.benchmark") is not None]
    theirs = [module for name, module in _offered(tuple(sys.path)) if name == family]
    return list(dict.fromkeys([*ours, *theirs]))


def _doubled(name: str, modules: Sequence[str], family: str = "") -> str:
    """Why nobody knows which is meant; empty where there is one."""
    if len(modules) == 1:
        return ""
    offered = f"{len(modules)} packages offer {family or name!r}: {', '.join(modules)}"
    return f"--benchmark {name}: {offered}; remove one"


def _unnameable(family: str) -> str:
    held = [sign for sign in "/:" if sign in family]
    return f"{family}: its name has a {held[0]!r} in it, so no --benchmark can mean it" if held else ""


def _name(family: str, variant: str) -> str:
    return f"{family}/{variant}".rstrip("/")


@functools.lru_cache(maxsize=4)
def _offered(path: tuple[str, ...]) -> tuple[tuple[str, str], ...]:
    """Family and module of all that installed packages name; a file each is read. ``path``: ``sys.path``."""
    return tuple((entry.name, entry.value) for entry in entry_points(group=GROUP))


def _table(name: str, module: str) -> Mapping[str, Any]:
    found = getattr(_imported(name, module), TABLE, None)
    if not isinstance(found, Mapping) or not all(isinstance(variant, str) for variant in found):
        raise ValueError(f"--benchmark {name}: {module} has no table {TABLE} of benchmarks by variant")
    return found


def _imported(name: str, module: str) -> Any:
    try:
        return import_module(module)
    except (Exception, SystemExit) as error:  # whatever the package of somebody else raises while it is imported
        raise ValueError(f"--benchmark {name}: {module} cannot be imported: {type(error).__name__}: {error}") from error


def _checked(name: str, found: Any) -> Benchmark[Any]:
    if not isinstance(found, Benchmark):
        raise ValueError(f"--benchmark {name}: found a {type(found).__name__}, expected a lemur_ray Benchmark")
    check_options(name, found.options)
    return found
