"""What a browser holds: its processes, their memory, profile folders. Read from /proc."""

from __future__ import annotations

import tempfile
from pathlib import Path


def family(pid: int) -> list[int]:
    """A process and all beneath it that run."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal():
            try:
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                parents.setdefault(int(fields[1]), []).append(int(folder.name))
    found, open_ = [], [pid]
    while open_:
        at = open_.pop()
        found.append(at)
        open_ += parents.get(at, [])
    return found


def memory_bytes(pids: list[int]) -> int:
    """Memory of processes together, pages that they share counted once (PSS)."""
    total = 0
    for pid in pids:
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    return total


def cpu_s(pids: list[int]) -> float:
    """Processor time of processes so far, together, with that of children that ended and were waited for."""
    return sum(cpu_by_kind(pids).values())


def cpu_by_kind(pids: list[int]) -> dict[str, float]:
    """Processor time of processes so far, with that of children that ended and were waited for, by what they are."""
    found: dict[str, float] = {}
    for pid in pids:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").replace("\0", " ").split()
        except OSError:
            continue
        kind = _kind_of(words)
        found[kind] = found.get(kind, 0.0) + sum(int(ticks) for ticks in fields[11:15]) / 100
    return found


def _kind_of(words: list[str]) -> str:
    """A type of Chromium's processes, a site, Playwright's driver; else the program."""
    program, line = (words or ["?"])[0], " ".join(words)
    if "chrom" in program:
        known = ("--type=", "--utility-sub-type=")
        return " ".join(["chromium", *(word.rpartition("=")[2] for word in words if word.startswith(known))])
    if "webarena/sites/apps/" in line or "routes.php" in line:
        names = ("shop", "forum", "cms", "trac", "wiki")
        return next((f"site {name}" for name in names if name in words or f"run_{name}.py" in line), "site wiki")
    return "driver" if "playwright/driver" in line else "python" if "python" in program else program


def profiles() -> int:
    """Profile folders of browsers that Playwright has begun and not removed."""
    return len(list(Path(tempfile.gettempdir()).glob("playwright_chromiumdev_profile-*")))
