"""Modules of a user (benchmarks, environments, policies): finds those in the working directory, notices edits."""

import ast
import hashlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

from lemur_ray.host.python_source import parsed

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
    """Digest of a module's code, 8 hex digits, without comments and layout; empty if it has no Python file. It is that
    of the first call after an import or a reload, since later edits of the file are not what this process runs."""
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
        source = Path(module.__file__ or "").read_text(encoding="utf-8")
        return hashlib.sha256(ast.dump(parsed(source)).encode()).hexdigest()[:8]
    except (OSError, ValueError, SyntaxError, AttributeError):
        return ""
