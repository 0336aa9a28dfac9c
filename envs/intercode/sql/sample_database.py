"""A small SQLite database of real data that every Debian or Ubuntu machine has: its packages and its Python.

| table | from |
|---|---|
| packages, maintainers, dependencies | /var/lib/dpkg/status |
| modules, functions | the source of the standard library of the running Python |
| distributions, requirements | metadata of the installed Python packages |

The same machine gives the same bytes."""

import ast
import contextlib
import os
import re
import sqlite3
import sysconfig
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from lemur_ray.host.json_files import toml_beside
from lemur_ray.host.python_source import parsed

_SCHEMA: str = toml_beside(__file__)["schema"]

DPKG_STATUS = Path("/var/lib/dpkg/status")
_MAINTAINER = re.compile(r"\s*(?P<name>[^<]*?)\s*(?:<[^@>]*@(?P<domain>[^>]*)>)?\s*$")
_KINDS = {"Pre-Depends": "pre-depends", "Depends": "depends", "Recommends": "recommends", "Suggests": "suggests"}


def build_sample(path: Path, dpkg_status: Path = DPKG_STATUS, stdlib: Path | None = None) -> Path:
    """Write the sample database to ``path``, atomically, unless that file exists. Returns ``path``. ``dpkg_status``:
    dpkg's list of installed packages, without which it raises FileNotFoundError. ``stdlib``: folder of a standard
    library (default: the running Python's)."""
    if path.exists():
        return path
    if not dpkg_status.is_file():
        raise FileNotFoundError(
            f"{dpkg_status}: not there; the sample database is made of a Debian or Ubuntu machine's packages"
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    half = path.with_name(f".{path.name}.{os.getpid()}")
    half.unlink(missing_ok=True)
    try:
        with contextlib.closing(sqlite3.connect(half)) as connection, connection:
            # Unused parts of pages are zeroed: SQLite would fill them with what its memory held before.
            connection.execute("pragma secure_delete = on")
            connection.executescript(_SCHEMA)
            _insert_packages(connection, list(_installed_packages(dpkg_status)))
            _insert_modules(connection, stdlib or Path(sysconfig.get_path("stdlib")))
            _insert_distributions(connection)
        half.replace(path)
    finally:
        half.unlink(missing_ok=True)
    return path


def _installed_packages(status: Path) -> Iterator[dict[str, str]]:
    """Fields of every installed package, sorted by name; the first entry if several architectures are installed."""
    seen: dict[str, dict[str, str]] = {}
    for paragraph in status.read_text(encoding="utf-8", errors="replace").split("\n\n"):
        fields: dict[str, str] = {}
        for line in paragraph.splitlines():
            if line[:1] not in (" ", "\t") and ":" in line:
                name, _, value = line.partition(":")
                fields[name] = value.strip()
        if fields.get("Status") == "install ok installed":
            seen.setdefault(fields["Package"], fields)
    return iter(seen[name] for name in sorted(seen))


def _insert_packages(connection: sqlite3.Connection, packages: list[dict[str, str]]) -> None:
    maintainers = {p.get("Maintainer", ""): _MAINTAINER.match(p.get("Maintainer", "")) for p in packages}
    ids = {text: number for number, text in enumerate(sorted(maintainers), 1)}
    rows = [
        (ids[text], match["name"] if match else text, match["domain"] if match else None)
        for text, match in maintainers.items()
    ]
    _insert(connection, "maintainers", sorted(rows))
    for p in packages:
        size = int(p["Installed-Size"]) if p.get("Installed-Size", "").isdigit() else None
        section = p.get("Section", "").split("/")[-1] or None
        described = (section, p.get("Priority"), size, ids[p.get("Maintainer", "")])
        named = (p["Package"], p["Version"], *described, p.get("Homepage"), p.get("Description"))
        _insert(connection, "packages", [named])
        links = {
            (p["Package"], kind, target) for field, kind in _KINDS.items() for target in _targets(p.get(field, ""))
        }
        _insert(connection, "dependencies", sorted(links))


def _targets(field: str) -> Iterator[str]:
    """Yield the package names in a dependency field: of alternatives the first, without version and architecture."""
    for entry in field.split(","):
        if name := entry.split("|")[0].split("(")[0].split(":")[0].strip():
            yield name


def _insert_modules(connection: sqlite3.Connection, stdlib: Path) -> None:
    """Insert the public modules of the standard library, with packages as their ``__init__``, and their functions."""
    files = {file.stem: file for file in stdlib.glob("*.py")}
    files |= {file.parent.name: file for file in stdlib.glob("*/__init__.py")}
    for name in sorted(name for name in files if not name.startswith("_") and name != "test"):
        source = files[name].read_text(encoding="utf-8", errors="replace")
        try:
            tree = parsed(source)
        except SyntaxError:
            continue  # a distribution may add files for other versions of the language
        functions = [node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
        num_classes = sum(isinstance(node, ast.ClassDef) for node in tree.body)
        summary = (ast.get_docstring(tree) or "").strip().split("\n")[0] or None
        _insert(connection, "modules", [(name, source.count("\n"), len(functions), num_classes, summary)])
        rows = []
        for f in functions:
            num_arguments = len(f.args.posonlyargs + f.args.args + f.args.kwonlyargs)
            rows.append((name, f.name, f.lineno, num_arguments, int(ast.get_docstring(f) is not None)))
        _insert(connection, "functions", sorted(rows, key=lambda row: row[2]))


def _insert_distributions(connection: sqlite3.Connection) -> None:
    packages: dict[str, tuple[metadata.Distribution, metadata.PackageMetadata]] = {}
    for distribution in metadata.distributions():
        fields = distribution.metadata  # read from the disk and parsed at each access
        if fields["Name"]:
            packages.setdefault(fields["Name"].lower(), (distribution, fields))
    for name in sorted(packages):
        distribution, fields = packages[name]
        _insert(connection, "distributions", [(name, fields["Version"], fields["Requires-Python"], fields["Summary"])])
        links = {_requirement(text) for text in distribution.requires or []}
        _insert(connection, "requirements", [(name, target, optional) for target, optional in sorted(links)])


def _requirement(text: str) -> tuple[str, int]:
    """(name of the required package in lower case, 1 if only an extra requires it, else 0)."""
    name = re.match(r"[A-Za-z0-9._-]+", text.strip())
    return (name[0].lower() if name else text.strip(), int("extra" in text.partition(";")[2]))


def _insert(connection: sqlite3.Connection, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
    rows = list(rows)
    if rows:
        connection.executemany(f"insert into {table} values ({', '.join('?' * len(rows[0]))})", rows)
