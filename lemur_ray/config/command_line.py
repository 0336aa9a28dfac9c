"""Command-line parsing of frozen dataclasses, every field a flag. Knows nothing of their meaning."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from lemur_ray.config.data import SourceConfig, format_source, parse_source
from lemur_ray.host.commands import as_typed, program

if TYPE_CHECKING:
    from lemur_ray.config.config_file import ConfigFile

T = TypeVar("T")


def parse(
    config: type[T],
    argv: Sequence[str] | None = None,
    *,
    default: T | None = None,
    prog: str | None = None,
    flat: bool = False,
    file: ConfigFile | None = None,
) -> T:
    """Parse a frozen dataclass from the command line, and from the YAML file of ``--config``; the command line wins.
    An unknown flag exits with code 2 and names the nearest one; a ValueError of the dataclass exits with code 2 and its
    message in one line. A dataclass with topics in ``HELP`` (``help_page``) shows only their flags with ``--help``. A
    bool is ``--x`` or ``--no-x``; the earlier ``--x True`` is read as well. flat: flags of nested dataclasses have no
    prefix. file: the file that ``take_config`` returned, if it has been called; ``argv`` is then the words that it
    returned. prog: name of the job's file, for messages; by default that of this process."""
    import tyro  # late: workers and the server import this module but parse no command line

    from lemur_ray.config.config_file import bare_flags, config_words, take_config

    script, _, rest = (prog or Path(sys.argv[0]).name).partition(" ")
    prog = f"{program(script)} {rest}".rstrip()
    words = list(sys.argv[1:] if argv is None else argv)
    if file is None:
        words, file = take_config(words)
    start = config if default is None else default
    words = bare_flags(words, config, start, flat)
    markers = (tyro.conf.OmitArgPrefixes,) if flat else ()
    cli = partial(tyro.cli, config, default=default, prog=prog, config=markers, registry=_registry())
    more: Mapping[str, str] = getattr(config, "HELP_MORE", {})
    if {"-h", "--help"} & set(words) and (topics := getattr(config, "HELP", None)):
        _print_help_page(cli, topics, more, default)
    if file.path:
        words = [*words, *config_words(file, words, config, start, flat)]
    try:
        parsed: T = cli(args=["--help" if word == "--help-all" else word for word in words])
    except ValueError as error:
        print(as_typed(f"{prog}: {error}"), file=sys.stderr)
        raise SystemExit(2) from error
    except SystemExit as end:
        if end.code or {"-h", "--help", "--help-all"} & set(words):  # a completion script must stay unchanged
            _explain(end, more, file)
        raise
    return parsed


def _registry() -> Any:
    """Tyro's registry with a parser of SourceConfig (``NAME:KIND:WEIGHT[:EPOCHS]``)."""
    import tyro

    registry = tyro.constructors.ConstructorRegistry()

    @registry.primitive_rule
    def source_rule(info: tyro.constructors.PrimitiveTypeInfo) -> tyro.constructors.PrimitiveConstructorSpec | None:
        if info.type is not SourceConfig:
            return None
        return tyro.constructors.PrimitiveConstructorSpec(
            nargs=1,
            metavar="NAME:KIND:WEIGHT[:EPOCHS]",
            instance_from_str=lambda args: parse_source(args[0]),
            is_instance=lambda value: isinstance(value, SourceConfig),
            str_from_instance=lambda value: [format_source(value)],
        )

    return registry


def _print_help_page(cli: Any, topics: Any, more: Mapping[str, str], default: Any) -> NoReturn:
    from lemur_ray.config.help_page import help_page, plain_terminal

    with plain_terminal() as whole, contextlib.suppress(SystemExit):
        cli(args=["--help"])
    print(help_page(whole.getvalue(), topics, more, default))
    raise SystemExit(0)


def _explain(end: SystemExit, more: Mapping[str, str], file: ConfigFile) -> None:
    """After tyro's help text, print the flags that are not fields; after its error, name the file of other flags."""
    from lemur_ray.config.help_page import more_lines

    if not end.code:
        print("\n".join(["more:", *more_lines(more)]))
    elif file.path:
        print(f"flags that are not on the command line are those of {file.path}", file=sys.stderr)
