"""What the stand-in sites cost: memory of a copy, seconds to build, start and restore it.

python -m tests.perf.rollout.standin_sites [shop trac ...]: one JSON line for each application, with the median of five
restores, after the site has answered a request each time.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

from envs.webarena.sites.content import SEED
from envs.webarena.sites.golden import golden_of
from envs.webarena.sites.restoring import copy, restore
from envs.webarena.sites.running_site import RunningSite, new_folder
from envs.webarena.sites.software import SOFTWARE, Software

RESTORES = 5


def main() -> None:
    for name in sys.argv[1:] or SOFTWARE:
        print(json.dumps(measured(SOFTWARE[name])), flush=True)


def measured(software: Software) -> dict[str, object]:
    began = time.monotonic()
    golden = golden_of(software, SEED)
    built, began = time.monotonic() - began, time.monotonic()
    folder = new_folder()
    copy(golden.folder, folder)
    site = RunningSite(software, folder)
    started, seconds = time.monotonic() - began, []
    try:
        for _ in range(RESTORES):
            assert site.is_alive()
            began = time.monotonic()
            restore(golden.folder, folder, software.database)
            seconds.append(time.monotonic() - began)
        memory = sum(resident_mb(pid) for pid in family(site.pid))
    finally:
        site.close()
    return {
        "application": software.title,
        "golden_copy_s": round(built, 2),
        "start_s": round(started, 2),
        "restore_s": round(statistics.median(seconds), 4),
        "memory_mb": round(memory),
    }


def family(pid: int) -> list[int]:
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in family(int(child)))]


def resident_mb(pid: int) -> float:
    said = Path(f"/proc/{pid}/status").read_text().split("VmRSS:")[1]
    return int(said.split()[0]) / 1024


if __name__ == "__main__":
    main()
