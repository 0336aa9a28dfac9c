"""Flags in a YAML file: ``--config FILE`` reads any flags from one, and a run writes all of its flags into one.

Keys are names of flags with underscores or hyphens, nested (``train: {steps: 100}``) or dotted (``train.steps: 100``).
"""

import dataclasses
import difflib
import enum
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NoReturn, get_origin, get_type_hints

import yaml

from lemur_ray import __version__
from lemur_ray.config.data import SourceConfig, format_source
from lemur_ray.host.home import resolve_out

FLAG = "--config"
CONFIG_FILE = "config.yaml"
"""Name of the file in which a run writes its configuration."""
VERSION = "lemur_ray"
"""Key in a file whose value is the version of lemur-ray that wrote the file."""
_MAX_NAMES = 8
"""Maximum number of flags that a message names."""


@dataclass(frozen=True)
class ConfigFile:
    """Content of a file with flags: values by dotted key (``train.steps``), not yet checked against the flags.
    ``path``: "" if no file was given."""

    path: str = ""
    values: dict[str, Any] = field(default_factory=dict)

    def pop(self, key: str, default: str) -> str:
        """Remove the value of ``key`` and return it as text; ``default`` if the file does not have the key."""
        return str(self.values.pop(key, default))


def take_config(argv: Sequence[str]) -> tuple[list[str], ConfigFile]:
    """Split a command line: (words without ``--config FILE``, content of the file). A relative path is looked up in the
    working directory, then in $LEMUR_HOME. Exits with code 2 if the file cannot be read or two are given."""
    words, paths = [], []
    waiting = False
    for word in argv:
        if waiting or word.startswith(f"{FLAG}="):
            paths.append(word if waiting else word.partition("=")[2])
            waiting = False
        elif not (waiting := word == FLAG):
            words.append(word)
    if waiting or len(paths) > 1:
        _refuse(f"{FLAG}: expected one YAML file with flags")
    if not paths:
        return words, ConfigFile()
    try:
        value = yaml.load(_read(paths[0]), _Texts)
    except (OSError, ValueError, ImportError, yaml.YAMLError) as error:
        _refuse(f"{FLAG} {paths[0]}: {error}; expected a YAML file with flags, for example a run's {CONFIG_FILE}")
    if not isinstance(value or {}, Mapping):
        _refuse(f"{FLAG} {paths[0]}: a {type(value).__name__}; expected flags and their values, such as limit: 5")
    return words, ConfigFile(paths[0], dict(_flattened(value or {})))


def bare_flags(words: Sequence[str], config: Any, default: Any, flat: bool) -> list[str]:
    """Words of a command line, with the earlier forms of bool flags rewritten: ``--x True`` as ``--x``, ``--x=False``
    as ``--no-x``. config: class of the configuration; default: its default value; flat: nested flags have no prefix."""
    bools = {key: leaf for key, leaf in _leaves(config, default, flat) if isinstance(leaf.value, bool)}
    bare: list[str] = []
    for word in words:
        flag, equals, value = word.rpartition("=") if "=" in word else (bare[-1] if bare else "", "", word)
        key = flag.removeprefix("--").replace("-", "_")
        if value in ("True", "False") and flag.startswith("--") and key in bools:
            bare[len(bare) if equals else -1 :] = _words(key, value, bools[key])
        else:
            bare.append(word)
    return bare


def config_words(file: ConfigFile, argv: Sequence[str], config: Any, default: Any, flat: bool) -> list[str]:
    """Those flags of a file that are not in ``argv``, as words of a command line. config: class of the configuration.
    default: its default value, or the class if there is none. flat: flags of nested dataclasses have no prefix. Notes
    on stderr which flags a file of another version lacks. Exits with code 2 for a key that is no flag."""
    known = dict(_leaves(config, default, flat))
    written_by = file.values.pop(VERSION, __version__)
    given = {word.partition("=")[0].removeprefix("--").replace("-", "_") for word in argv if word.startswith("--")}
    words: list[str] = []
    for key, value in file.values.items():
        if key not in known:
            old = "" if written_by == __version__ else f" (lemur-ray {written_by} wrote it, this is {__version__})"
            _refuse(f"{file.path}{old}: {_unknown(key, known)}")
        if not {key, _negated(key)} & given:
            is_text = value is None and isinstance(known[key].value, str)
            words += _words(key, "" if is_text else value, known[key])
    new = [f"--{key.replace('_', '-')}" for key in known if key not in file.values]
    if written_by != __version__ and new:
        more = f" and {len(new) - _MAX_NAMES} more" if len(new) > _MAX_NAMES else ""
        print(
            f"{file.path} was written by lemur-ray {written_by}, this is {__version__}: it lacks "
            f"{', '.join(new[:_MAX_NAMES])}{more}, at {'its default' if len(new) == 1 else 'their defaults'}",
            file=sys.stderr,
        )
    return words


def config_text(config: Any, flat: bool = False) -> str:
    """All flags of a configuration as YAML text that ``--config`` reads. A field with metadata ``stored_as``, such as a
    password, is written as that function returns it. flat: flags of nested dataclasses have no prefix."""
    values: dict[str, Any] = {VERSION: __version__}
    leaves = dict(_leaves(type(config), config, flat))
    for key, leaf in leaves.items():
        *groups, name = key.split(".")
        if groups and groups[0] in leaves:  # a flag has the name of the group: --data beside --data.seq-len
            groups, name = [], key
        part = values
        for group in groups:
            part = part.setdefault(group, {})
        part[name] = _plain(leaf.value)
    text = yaml.safe_dump(values, sort_keys=False, allow_unicode=True, width=1 << 20)
    return f"# The whole configuration of this run: the same command with {FLAG} FILE is the same run.\n{text}"


class _Texts(yaml.SafeLoader):
    """YAML loader that reads every value except null, true and false as text, because YAML 1.1 reads 10:20 as a number
    to base 60 and ``no`` as false. Infinities and NaN become Python's names of them."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}


_Texts.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])
_Texts.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)
_Texts.add_implicit_resolver("!float", re.compile(r"^(?:[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN))$"), list("-+."))
_Texts.add_constructor("!float", lambda loader, node: str(loader.construct_yaml_float(node)))


@dataclass(frozen=True)
class _Leaf:
    """A flag: its default value, and whether the flag is repeated for each value (``--x a --x b``)."""

    value: Any
    appends: bool


def _leaves(config: Any, default: Any, flat: bool, prefix: str = "") -> Iterator[tuple[str, _Leaf]]:
    """Yield (dotted key, flag) of every field of a configuration except positional arguments."""
    import tyro

    try:
        hints = get_type_hints(get_origin(config) or config, include_extras=True)
    except NameError:  # options of a plug-in that are defined inside a function
        hints = {}
    for one in dataclasses.fields(default):
        value, marks = _value_of(default, one), getattr(hints.get(one.name), "__metadata__", ())
        if dataclasses.is_dataclass(value):
            hidden = flat or any(getattr(mark, "name", None) == "" for mark in marks)
            yield from _leaves(type(value), value, flat, prefix if hidden else f"{prefix}{one.name}.")
        elif tyro.conf.Positional not in marks:
            value = one.metadata["stored_as"](value) if "stored_as" in one.metadata else value
            yield f"{prefix}{one.name}", _Leaf(value, tyro.conf.UseAppendAction in marks)


def _value_of(default: Any, one: dataclasses.Field[Any]) -> Any:
    """Value of a field of a configuration, or its default if ``default`` is a class; None for a required one."""
    if not isinstance(default, type):
        return getattr(default, one.name)
    if one.default_factory is not dataclasses.MISSING:
        return one.default_factory()
    return None if one.default is dataclasses.MISSING else one.default


def _flattened(value: Mapping[Any, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, item in value.items():
        key = f"{prefix}{name}".replace("-", "_")
        if isinstance(item, Mapping):
            yield from _flattened(item, f"{key}.")
        else:
            yield key, item


def _words(key: str, value: Any, leaf: _Leaf) -> list[str]:
    flag = f"--{key}".replace("_", "-")
    if isinstance(leaf.value, bool) and str(value) in ("True", "False"):
        return [flag if str(value) == "True" else f"--{_negated(key)}".replace("_", "-")]
    if not isinstance(value, list | tuple):
        return [f"{flag}={value}"]
    items = [str(part) for item in value for part in (item if isinstance(item, list | tuple) else [item])]
    return [f"{flag}={item}" for item in items] if leaf.appends else [flag, *items]


def _plain(value: Any) -> Any:
    if isinstance(value, SourceConfig):
        return format_source(value)
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, enum.Enum):
        return value.name
    return value if type(value) in (str, int, float, bool, type(None)) else str(value)


def _negated(key: str) -> str:
    group, dot, name = key.rpartition(".")
    return f"{group}{dot}no_{name}"


def _unknown(key: str, known: Mapping[str, Any]) -> str:
    if inner := [name for name in known if name.startswith(f"{key}.")]:
        return f"{key} is a group of flags: expected values of {', '.join(inner[:_MAX_NAMES])}"
    last = key.rpartition(".")[2]
    near = difflib.get_close_matches(key, known, 1, 0.6) or [k for k in known if k.rpartition(".")[2] == last][:1]
    return f"there is no flag {key!r}" + (f": did you mean {near[0]!r}?" if near else "; --help-all lists the flags")


def _read(path: str) -> bytes:
    if "://" not in path:
        here = Path(path).expanduser()
        return (here if here.is_file() else Path(resolve_out(path, ""))).read_bytes()
    from lemur_ray.storage.file_system import file_system  # late: most files are local

    files, inner = file_system(path)
    return bytes(files.cat_file(inner))


def _refuse(message: str) -> NoReturn:
    print(message, file=sys.stderr)
    raise SystemExit(2)
