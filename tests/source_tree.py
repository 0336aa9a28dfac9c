"""The project's own files as tests of its structure see them: what git tracks, and what a file imports."""

from __future__ import annotations

import ast
import os
import subprocess
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


@cache
def tracked() -> tuple[Path, ...]:
    """Every file git tracks; where there is no git, every file that is not plainly a by-product."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode == 0:
        names = [name for name in listed.stdout.split("\0") if name]
        return tuple(ROOT / name for name in names if (ROOT / name).is_file())
    hidden = {".git", "__pycache__", ".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis"}
    found: list[Path] = []
    for folder, folders, files in os.walk(ROOT):
        folders[:] = [one for one in folders if one not in hidden and not one.startswith(".venv")]
        found += [Path(folder, file) for file in files if file not in hidden]
    return tuple(found)


def python_files(*folders: str) -> list[Path]:
    return [p for p in tracked() if p.suffix == ".py" and name(p).startswith(folders)]


def name(path: Path) -> str:
    """The path inside the project, for people."""
    return path.relative_to(ROOT).as_posix()


@cache
def _nodes(path: Path) -> tuple[ast.AST, ...]:
    """The imports and calls of a file."""
    kinds = (ast.Import, ast.ImportFrom, ast.Call)
    return tuple(
        node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))) if isinstance(node, kinds)
    )


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Absolute dotted names that a file imports, wherever and however; imports for type checkers alone count too."""
    found: list[str] = []
    for node in _nodes(path):
        if isinstance(node, ast.Import):
            found += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import; write the whole name"
            found += [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and _called(node) in ("import_module", "__import__"):
            found += [str(first.value) for first in node.args[:1] if isinstance(first, ast.Constant)]
    return tuple(found)


def imports_by_value(path: Path) -> bool:
    """Whether a file imports what only its run can say."""
    return any(
        isinstance(node, ast.Call)
        and _called(node) in ("import_module", "__import__")
        and not (node.args and isinstance(node.args[0], ast.Constant))
        for node in _nodes(path)
    )


def _called(node: ast.Call) -> str:
    function = node.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


@cache
def _ours() -> frozenset[str]:
    files = python_files("lemur_ray/", "envs/", "jobs/")
    return frozenset(name(p).removesuffix(".py").removesuffix("/__init__") for p in files)


@cache
def files_imported(path: Path) -> tuple[str, ...]:
    """The files of ours behind those imports, as paths without ``.py``; a package is the path of its folder."""
    ours, found = _ours(), set()
    for module in imports(path):
        parts = module.split(".")
        for length in range(len(parts), 0, -1):
            if (file := "/".join(parts[:length])) in ours:
                found.add(file)
                break
    return tuple(sorted(found))
