"""Lists the files of installed Debian packages with all their dependencies.

Parses the output of dpkg-query and dpkg; knows nothing of images."""

import os
import re
from collections.abc import Iterable
from pathlib import PurePosixPath

FORMAT = "${Package}\t${db:Status-Status}\t${Essential}\t${Provides}\t${Pre-Depends}, ${Depends}\n"
ALWAYS = ("/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/alternatives", "/usr/bin", "/usr/sbin")
ALTERNATIVES = "/etc/alternatives/"


def closure(wanted: Iterable[str], listing: str) -> set[str]:
    """Names of installed packages: those of ``wanted``, all essential ones, and their dependencies, transitively. A
    virtual package becomes the one that provides it; names that are not installed are left out. ``listing``: output of
    ``dpkg-query --show`` with ``FORMAT``."""
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
    needed: set[str] = set()
    while pending:
        name = pending.pop()
        name = name if name in needs else provided.get(name, "")
        if name and name not in needed:
            needed.add(name)
            pending += needs[name]
    return needed


def _alternatives(text: str) -> list[str]:
    """Names in a dependency field; all alternatives, since only installed packages count."""
    bare = (re.sub(r"\(.*?\)|\[.*?\]|:\w+", "", part).strip() for part in re.split(r"[,|]", text))
    return [name for name in bare if name]


def files(listing: str, dropped: Iterable[str]) -> list[str]:
    """Sorted absolute paths (files, links, folders and their parents) that exist on this machine of packages.
    ``listing``: output of ``dpkg -L``. Links unknown to dpkg (alternatives, merged folders such as /bin) are added.
    ``dropped``: folders, without leading slash, whose content is left out."""
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
    parents = {str(parent) for path in real for parent in PurePosixPath(path).parents} - {"/"}
    return sorted(real | parents)


def _links_to(real: set[str]) -> set[str]:
    """Links through /etc/alternatives that lead to a path in ``real``."""
    links = set()
    for folder in ("/usr/bin", "/usr/sbin"):
        for entry in os.scandir(folder):
            step = os.readlink(entry.path) if entry.is_symlink() else ""
            if step.startswith(ALTERNATIVES) and os.path.realpath(entry.path) in real and os.path.lexists(step):
                links |= {entry.path, step}
    return links
