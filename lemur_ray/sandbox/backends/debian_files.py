"""Which files of this machine make up a list of Debian packages with everything they depend on.

Reads what dpkg-query and dpkg said, as text; knows nothing of images.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

FORMAT = "${Package}\t${db:Status-Status}\t${Essential}\t${Provides}\t${Pre-Depends}, ${Depends}\n"
ALWAYS = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/alternatives", "/usr/bin", "/usr/sbin")
ALTERNATIVES = "/etc/alternatives/"


def closure(wanted: Iterable[str], listing: str) -> set[str]:
    """Installed packages among ``wanted``, the essential ones, and all that they need. ``listing``: by ``FORMAT``."""
    needs: dict[str, list[str]] = {}
    provided: dict[str, str] = {}
    pending = list(wanted)
    for line in listing.splitlines():
        name, status, essential, provides, depends = line.split("\t")
        if status != "installed":
            continue
        needs[name] = _alternatives(depends)
        provided |= dict.fromkeys(_alternatives(provides), name)
        if essential == "yes":
            pending.append(name)
    found: set[str] = set()
    while pending:
        name = pending.pop()
        name = name if name in needs else provided.get(name, "")
        if name and name not in found:
            found.add(name)
            pending += needs[name]
    return found


def _alternatives(text: str) -> list[str]:
    """Names in a field of dependencies; of alternatives every one, since only what is installed counts."""
    bare = (re.sub(r"\(.*?\)|\[.*?\]|:\w+", "", part).strip() for part in re.split(r"[,|]", text))
    return [name for name in bare if name]


def files(listing: str, dropped: Iterable[str]) -> list[str]:
    """Paths as they really lie here (folders that are links are resolved), parents first.

    ``listing``: lines of ``dpkg -L``. Links that dpkg does not know (alternatives, merged folders) are added.
    """
    out = tuple(f"/{folder}/" for folder in dropped)
    real: set[str] = set()
    for line in listing.splitlines():
        if not line.startswith("/") or line == "/.":
            continue
        folder, _, name = line.rpartition("/")
        path = f"{os.path.realpath(folder or '/').rstrip('/')}/{name}"
        if os.path.lexists(path) and not path.startswith(out):
            real.add(path)
    for name in os.listdir("/"):
        if os.path.islink(f"/{name}") and os.readlink(f"/{name}").startswith("usr/"):
            real.add(f"/{name}")
    real |= {path for path in ALWAYS if os.path.lexists(path)} | _links_to(real)
    parents = {parent for path in real for parent in _parents(path)}
    return sorted(real | parents)


def _links_to(real: set[str]) -> set[str]:
    """Links through /etc/alternatives whose end is among ``real``."""
    found = set()
    for folder in ("/usr/bin", "/usr/sbin"):
        for entry in os.scandir(folder):
            step = os.readlink(entry.path) if entry.is_symlink() else ""
            if step.startswith(ALTERNATIVES) and os.path.realpath(entry.path) in real and os.path.lexists(step):
                found |= {entry.path, step}
    return found


def _parents(path: str) -> list[str]:
    parts = path.split("/")[1:-1]
    return ["/" + "/".join(parts[: number + 1]) for number in range(len(parts))]
