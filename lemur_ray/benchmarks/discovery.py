"""Discovery of benchmarks by name: ``family/variant``, ``module:object`` or ``gym:module:Id``.

A family is one or several benchmarks (variants) of a module. Built-in families are packages under ``HOMES`` with a
module ``benchmark``; installed packages declare theirs in the entry-point group ``lemur_ray.benchmarks``."""

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
from lemur_ray.host.user_modules import imported_code, look_here_for, was_edited

GROUP = "lemur_ray.benchmarks"
HOMES = ("envs", "envs.language", "envs.programs")
SCHEMES = "envs.foreign.benchmark"
"""Module whose table ``SCHEMES`` has the name prefixes (``gym``) that are no module, with a function for each"""
TABLE = "BENCHMARKS"
MODULE_CODE = "module_code"
"""Setting of an evaluation: digest of the code of a user's benchmark."""


def find(name: str) -> Benchmark[Any]:
    """Import the benchmark ``name`` (a value of --benchmark). Raises ValueError with similar names for an unknown one,
    or with the reason of a failed import."""
    module, colon, attribute = name.partition(":")
    if colon and module in (schemes := import_module(SCHEMES).SCHEMES):
        return _checked(name, schemes[module](attribute))
    if colon:
        plugin = _imported(name, module)
        imported_code(plugin)  # now: an edit after the import is none of what this process runs
        return _checked(name, getattr(plugin, attribute, None))
    family, _, variant = name.partition("/")
    table = table_of(family, name)
    if variant not in table:
        known = [_name(family, one) for one in table]
        raise ValueError(f"--benchmark {name}: unknown benchmark{did_you_mean(name, known)}")
    return _checked(name, table[variant])


def own_code(name: str) -> dict[str, str]:
    """Part of the recipe hash for a benchmark in a user's module (``module:object``, ``gym:module:Id``): a digest of
    the module's code, so that edited code is played anew. Empty for any other benchmark. Prints to stderr if this
    process runs code from before an edit."""
    module = _users_module(name)
    if not module:
        return {}
    plugin = _imported(name, module)
    if was_edited(plugin):
        print(f"{name}: {module} was edited after this process had imported it: this is the code from before; start "
              "Python anew for the edited one", file=sys.stderr, flush=True)  # fmt: skip
    code = imported_code(plugin)
    return {MODULE_CODE: code} if code else {}


def _users_module(name: str) -> str:
    """The module in the name of a benchmark that is not built in; empty if its name has none."""
    module, colon, rest = name.partition(":")
    if module == "gym":
        return rest.rpartition(":")[0]
    return "" if not colon or is_ours(name) or module.startswith(f"{HOMES[0]}.") else module


def is_ours(name: str) -> bool:
    """Whether a benchmark is built in, by its name; False for ``module:object``."""
    module, colon, _ = name.partition(":")
    if colon:
        return module in import_module(SCHEMES).SCHEMES
    modules = _modules(name.partition("/")[0])
    return bool(modules) and modules[0].startswith(HOMES[0] + ".")


def belongs_to_another(stated: str, name: str, benchmark: Benchmark[Any]) -> bool:
    """Whether ``stated``, the benchmark name in the tasks of ``benchmark`` (found as ``name``), is the name of another
    benchmark, so that report pages would describe the wrong one."""
    if stated == name or ":" in stated or not _modules(stated.partition("/")[0]):
        return False
    try:
        return find(stated).load is not benchmark.load
    except ValueError:
        return False


def describe_run(name: str, run: EvaluationRun) -> RunDescription:
    """The benchmark's description of a run for report pages; the default one if ``name`` cannot be loaded."""
    try:
        benchmark = find(name)
    except ValueError:
        return default_description(run)
    return call_about(name, benchmark, run)


def episode_views(episode: Episode, played: str = "") -> Sequence[View]:
    """Screenshots and texts that an episode's environment stored; empty if there are none or the benchmark cannot be
    loaded. ``played``: value of --benchmark, if known, which may differ from the tasks' (``module:object``)."""
    name = played or episode.key.benchmark
    try:
        benchmark = find(name)
    except ValueError:
        return ()
    return call_views(name, benchmark, episode)


@dataclass(frozen=True)
class Offer:
    """A benchmark that a package declares. ``why``: reason why it cannot be played by this name, or empty.
    ``benchmark``: None if it cannot be loaded; ``name`` is then that of its family if the module failed to load."""

    name: str
    benchmark: Benchmark[Any] | None
    why: str = ""


def offers() -> Iterator[Offer]:
    """All declared benchmarks, built-in ones first; those that cannot be loaded have a reason (``why``)."""
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
    """Names of all benchmarks that can be loaded, as ``find`` takes them: ``family/variant``. Imports each of them."""
    return (one.name for one in offers() if not one.why)


def table_of(family: str, name: str = "") -> Mapping[str, Any]:
    """A family's benchmarks by variant. ``name``: the full name, for error messages. Raises ValueError unless exactly
    one package declares the family, and if its module cannot be imported or has no such table."""
    modules, flag = _modules(family), f"--benchmark {name or family}"
    if not modules:
        raise ValueError(f"{flag}: no package offers {family!r}{did_you_mean(name or family, list(names()))}")
    if why := _doubled(name or family, modules, family):
        raise ValueError(why)
    return _table(name or family, modules[0])


def families() -> list[str]:
    """Names of all declared families, built-in ones first."""
    ours = [
        package.name
        for home in HOMES
        if (spec := find_spec(home)) is not None
        for package in pkgutil.iter_modules(spec.submodule_search_locations)
        if package.ispkg and find_spec(f"{home}.{package.name}.benchmark") is not None
    ]
    return list(dict.fromkeys([*ours, *(name for name, _ in _offered(tuple(sys.path)))]))


def _modules(family: str) -> Sequence[str]:
    """Names of the modules that declare the family's benchmarks, built-in ones first."""
    ours = [f"{home}.{family}" for home in HOMES if family.isidentifier() and find_spec(f"{home}.{family}") is not None]
    ours = [f"{package}.benchmark" for package in ours if find_spec(f"{package}.benchmark") is not None]
    theirs = [module for name, module in _offered(tuple(sys.path)) if name == family]
    return list(dict.fromkeys([*ours, *theirs]))


def _doubled(name: str, modules: Sequence[str], family: str = "") -> str:
    """An error message if several packages declare the family; empty if one does."""
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
    """(family, module) of every entry point of installed packages. ``path``: ``sys.path``, the cache key."""
    return tuple((entry.name, entry.value) for entry in entry_points(group=GROUP))


def _table(name: str, module: str) -> Mapping[str, Any]:
    table = getattr(_imported(name, module), TABLE, None)
    if not isinstance(table, Mapping) or not all(isinstance(variant, str) for variant in table):
        raise ValueError(f"--benchmark {name}: {module} has no table {TABLE} of benchmarks by variant")
    return table


def _imported(name: str, module: str) -> Any:
    look_here_for(module)
    try:
        return import_module(module)
    except (Exception, SystemExit) as error:  # an installed package may raise anything on import
        raise ValueError(f"--benchmark {name}: {module} cannot be imported: {type(error).__name__}: {error}") from error


def _checked(name: str, value: Any) -> Benchmark[Any]:
    if value is None:
        raise ValueError(f"--benchmark {name}: there is no such benchmark; the module has nothing of that name")
    if not isinstance(value, Benchmark):
        raise ValueError(f"--benchmark {name}: expected a lemur_ray Benchmark, got a {type(value).__name__}")
    check_options(name, value.options)
    return value
