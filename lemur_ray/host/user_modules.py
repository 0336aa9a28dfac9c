"""Modules of a user (benchmarks, environments, policies): finds those in the working directory, notices edits."""

import hashlib
import importlib.util
import io
import os
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

DIGEST_DIGITS = 12
"""Length of a digest of code. Those of 8 digits, in ledgers of earlier releases, depend on the version of Python."""
_IMPORTED: dict[str, tuple[Any, str]] = {}
"""Module -> (its spec, which a reload replaces; digest of the code that its file had then)."""


def look_here_for(module: str) -> None:
    """If only the working directory has ``module``, append that directory to the import path of this process and of
    those that it starts. An installed ``lemur`` would not look there, unlike ``python -m``."""
    top, here = module.partition(".")[0], Path.cwd()
    try:
        is_known = importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):  # a name that is none, or a module made by hand
        return
    if is_known or not ((here / f"{top}.py").is_file() or (here / top).is_dir()):
        return
    sys.path.append(str(here))
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(here)]))


def imported_code(module: ModuleType) -> str:
    """Digest of a module's code, ``DIGEST_DIGITS`` hex digits, without comments and layout, the same in every version
    of Python; empty if it has no Python file. It is that of the first call after an import or a reload, since later
    edits of the file are not what this process runs."""
    spec, digest = _IMPORTED.get(module.__name__, (None, ""))
    if spec is None or spec is not module.__spec__:
        digest = _code_of(module)
        _IMPORTED[module.__name__] = module.__spec__, digest
    return digest


def was_edited(module: ModuleType) -> bool:
    """Whether the code in a module's file is no longer that of ``imported_code``."""
    return _code_of(module) != imported_code(module)


def _code_of(module: ModuleType) -> str:
    try:
        source = Path(module.__file__ or "").read_text(encoding="utf-8-sig")
        return hashlib.sha256("\0".join(_words(source)).encode()).hexdigest()[:DIGEST_DIGITS]
    except (OSError, ValueError, SyntaxError, AttributeError, tokenize.TokenError):
        return ""


def _words(source: str) -> Iterator[str]:
    """The source text of a program's tokens, without comments; of blocks and lines their ends. A formatted string,
    whose parts are tokens since Python 3.12, is one word. Raises SyntaxError or TokenError for no program."""
    lines, depth, begin = io.StringIO(source).readlines(), 0, (1, 0)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        name = tokenize.tok_name[token.type]
        if name.endswith("STRING_START"):
            begin = begin if depth else token.start
            depth += 1
        elif name.endswith("STRING_END"):
            depth -= 1
            if not depth:
                yield _between(lines, begin, token.end)
        elif not depth and name in ("INDENT", "DEDENT", "NEWLINE"):
            yield name
        elif not depth and name not in ("COMMENT", "NL", "ENDMARKER"):
            yield token.string


def _between(lines: list[str], begin: tuple[int, int], end: tuple[int, int]) -> str:
    """The text from ``begin`` up to ``end``, each a line from 1 and a column from 0."""
    own = lines[begin[0] - 1 : end[0]]
    own[-1] = own[-1][: end[1]]
    own[0] = own[0][begin[1] :]
    return "".join(own)
