"""Reads JSON and JSON Lines files, plain or gzip; errors name file and line. Also TOML files beside modules.

Gzip is recognised by its first bytes; a file named ``.gz`` must be gzip."""

import gzip
import io
import json
import tomllib
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

DAMAGED = (EOFError, zlib.error, gzip.BadGzipFile, UnicodeDecodeError)
"""Exceptions from reading a file that is truncated, not gzip despite its name, or not UTF-8."""


class NotJson(ValueError):
    """Raised if a text is not JSON; the message names file and line. ``reason``: not_json or nested_too_deep."""

    def __init__(self, message: str, reason: str = "not_json") -> None:
        super().__init__(message)
        self.reason = reason


def toml_beside(module: str, name: str = "") -> dict[str, Any]:
    """The values of the TOML file ``name`` beside a module, by default of the module's name; tuples in place of lists.
    ``module``: path of its file. Raises OSError, tomllib.TOMLDecodeError."""
    path = Path(module).with_name(name) if name else Path(module).with_suffix(".toml")
    values: dict[str, Any] = _with_tuples(tomllib.loads(path.read_text(encoding="utf-8")))
    return values


def _with_tuples(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _with_tuples(item) for key, item in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value


def is_gzip(path: Path) -> bool:
    """Whether a file begins as gzip does."""
    with path.open("rb") as file:
        return file.read(2) == b"\x1f\x8b"


def open_bytes(path: Path) -> BinaryIO:
    """Open a plain or gzip file for reading its decompressed bytes. Raises OSError; reading raises one of DAMAGED (a
    tuple of exceptions) if the gzip is damaged."""
    packed = is_gzip(path) or path.suffix.lower() == ".gz"
    return cast(BinaryIO, gzip.open(path)) if packed else path.open("rb")


@contextmanager
def open_text(path: Path) -> Iterator[TextIO]:
    """Context manager for a plain or gzip file read as UTF-8 text, without a byte order mark. Raises OSError, or
    ValueError with the file's name if it is damaged."""
    try:
        with open_bytes(path) as data, io.TextIOWrapper(data, encoding="utf-8-sig") as text:
            yield text
    except DAMAGED as error:
        raise ValueError(f"{path}: {error}; expected JSON in UTF-8, plain or gzip") from error


def read_json(path: Path) -> Any:
    """The value of a JSON file. Raises NotJson with file and line, ValueError for a damaged file, OSError."""
    with open_text(path) as text:
        return parse_json(text.read(), path)


def read_json_lines(path: Path, *, bad_lines: bool = False) -> Iterator[tuple[int, Any]]:
    """Yield (line number from 1, value) for every line that is not blank.
    Raises NotJson at the first line that is not JSON; with ``bad_lines`` the error is yielded as the line's value
    instead. Raises ValueError for a damaged file, OSError."""
    with open_text(path) as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                value = parse_json(line.rstrip("\r\n"), path, number)
            except NotJson as error:
                if not bad_lines:
                    raise
                value = error
            yield number, value


def parse_json(text: str | bytes, path: Path, line: int = 1, constant: Callable[[str], Any] | None = None) -> Any:
    """Parse ``text``, which begins at line ``line`` of ``path`` (both for errors), and return its value. ``constant``:
    from "NaN", "Infinity", "-Infinity" (no JSON) to a value; by default a float. Raises NotJson, with file and line,
    for another text."""
    try:
        return json.loads(text, parse_constant=constant)
    except RecursionError as error:
        raise NotJson(f"{path}, line {line}: nested too deeply; expected JSON", "nested_too_deep") from error
    except json.JSONDecodeError as error:
        at = f"line {line + error.lineno - 1}, column {error.colno}"
        raise NotJson(f"{path}, {at}: not JSON ({error.msg}); expected JSON") from error
    except UnicodeDecodeError as error:
        raise NotJson(f"{path}, line {line}: {error}; expected JSON in UTF-8") from error


def strings_in(value: Any) -> Iterator[str]:
    """Yield all strings in a JSON value, depth first and in order; keys of objects are not included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings_in(item)
