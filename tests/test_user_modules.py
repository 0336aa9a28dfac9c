"""The digest of a user's module: code alone, and the same in every version of Python."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import ModuleType

import pytest

from lemur_ray.host.user_modules import imported_code

NUMBERS = itertools.count()
CODE = '''\
"""A module."""
NAMES = [f"{one!r:>{5}} of {f'{2}' + 'x'}" for one in (1, 2)]  # a comment


def spoken(value: int = 0x10, *rest: str) -> str:
    """What is # no comment."""
    text = f"""
    {value + 1:05d} # no comment either
    {{}} """ "é" rb"\\x00".decode()
    if value and \\
            rest:
        return text

    return rf"\\d{value}"
'''
LAID_OUT = CODE.replace("  # a comment", "").replace("\n\n    return", "\n    # another\n\n\n    return")


def digest(folder: Path, source: str) -> str:
    module = ModuleType(f"module_{next(NUMBERS)}")
    file = folder / f"{module.__name__}.py"
    file.write_text(source, encoding="utf-8")
    module.__file__ = str(file)
    return imported_code(module)


def test_a_digest_is_that_of_every_other_version_of_python_and_of_another_layout(tmp_path: Path) -> None:
    expected = "bacbe4ab69a3"  # of 3.10, 3.11, 3.12 and 3.13
    assert digest(tmp_path, CODE) == digest(tmp_path, LAID_OUT) == digest(tmp_path, f"\ufeff{CODE}") == expected
    assert LAID_OUT != CODE


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{value + 1:05d}", "{value + 2:05d}"),
        ("# no comment either", "# no comment"),
        ("        return text", "    return text"),
        ("0x10", "0x11"),
        ("'x'", "'y'"),
    ],
)
def test_every_edit_of_code_is_another_digest(tmp_path: Path, old: str, new: str) -> None:
    edited = CODE.replace(old, new)
    assert edited != CODE
    assert digest(tmp_path, edited) != digest(tmp_path, CODE)


@pytest.mark.parametrize("source", ["def f(:\n", "'''", "  x\n y\n", "f'{'\n"])
def test_a_file_that_is_no_program_has_a_digest_or_none_and_raises_nothing(tmp_path: Path, source: str) -> None:
    assert isinstance(digest(tmp_path, source), str)
