"""Command-line parsing of frozen dataclasses, every field a flag. Knows nothing of their meaning."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from lemur_ray.config.data import SourceConfig, format_source, parse_source
from lemur_ray.host.commands import as_typed, program

T = TypeVar("T")


def parse(
    config: type[T],
    argv: Sequence[str] | None = None,
    *,
    default: T | None = None,
    prog: str | None = None,
    bare_flags: bool = False,
    flat: bool = False,
) -> T:
    """Parse a frozen dataclass from the command line.

    An unknown flag exits with code 2 and names the nearest one; a ValueError of the dataclass exits with code 2 and its
    message in one line.

    bare_flags: a bool is ``--handicap`` or ``--no-handicap`` instead of ``--handicap True``. flat: flags of nested
    dataclasses have no prefix.
    """
    import tyro  # late: workers and the server import this module but parse no command line

    script, _, rest = (prog or Path(sys.argv[0]).name).partition(" ")
    prog = f"{program(script)} {rest}".rstrip()
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

    try:
        parsed: T = tyro.cli(  # type: ignore[assignment]
            config,
            args=argv,
            default=default,
            prog=prog,
            config=(
                *(() if bare_flags else (tyro.conf.FlagConversionOff,)),
                *((tyro.conf.OmitArgPrefixes,) if flat else ()),
            ),
            registry=registry,
        )
    except ValueError as error:
        print(as_typed(f"{prog}: {error}"), file=sys.stderr)
        raise SystemExit(2) from error
    return parsed
