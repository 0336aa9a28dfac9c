"""Tasks of InterCode-CTF: 100 challenges of picoCTF, of which 76 can be solved without a network.

The data is under picoCTF's own terms and not part of this project: ``DATA/intercode/ctf``. All flags are public: models
may have seen them in training, and reports must say so."""

import hashlib
from pathlib import Path
from typing import Any

from envs.outside_data import required
from lemur_ray.agents.trajectory import Task
from lemur_ray.host.home import lemur_home
from lemur_ray.host.json_files import read_json
from lemur_ray.outside_data.making import unpacked
from lemur_ray.storage.bundles.host_path import HostPath

BENCHMARK = "intercode/ctf"
ENV_ID = "envs:lemur/InterCodeCTF-v0"
MAX_TURNS = 10

NEEDS_HOST = frozenset({1, 9, 16, 20, 28, 29, 35, 39, 41, 42, 43, 54, 57, 62, 66, 73, 87, 88, 89, 95})
"""Tasks that need a live host of picoCTF."""
NEEDS_ASSET = frozenset({1, 7, 65, 66, 70})
"""Tasks with a file that the assets lack (disk images, a link)."""
NEEDS_LOOKUP = frozenset({59})
"""Tasks that need a whois query."""
NOT_OFFLINE = NEEDS_HOST | NEEDS_ASSET | NEEDS_LOOKUP

CORRECTED_GOLDS = {15: ("1|/|_4", r"1|\/|_4")}
"""Task number -> (wrong part of its published flag, correct part). The published flag lacks a backslash."""


def load_ctf_tasks(data: Path, *, scratch: Path | None = None, compat: bool = False, files: bool = True) -> list[Task]:
    """The tasks that can be solved offline, with corrected golds; with ``compat`` all 100 with the published golds.
    ``files``: unpack the assets, without solutions, under ``scratch`` (default: LEMUR_HOME). The category is the first
    tag. Raises FileNotFoundError with the command that fetches the data, ValueError naming the malformed entry."""
    path = required(data, "intercode/ctf/ic_ctf.json.gz")
    entries = _entries(path)
    assets = None
    if files:
        packed = required(data, "intercode/ctf/task_assets.tar.gz")
        assets = unpacked(packed, scratch or lemur_home() / "intercode" / "ctf", "solution") / "task_assets"
    content = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    tasks = []
    for entry in entries:
        number = entry["task_id"]
        if number in NOT_OFFLINE and not compat:
            continue
        gold = entry["gold"] if compat else corrected(number, entry["gold"])
        options: dict[str, Any] = {"question": entry["query"], "gold": gold, "max_steps": MAX_TURNS}
        options |= {"offline": number not in NOT_OFFLINE, "compat": compat, "database_id": content}
        folder = assets / str(number) if assets else None
        there = HostPath(folder, assets, dated=True) if folder is not None and folder.is_dir() else ""
        options |= {"assets": there, "number": number}
        tasks.append(Task(BENCHMARK, f"ctf-{number}", ENV_ID, entry["tags"][0], options, MAX_TURNS))
    return tasks


def corrected(number: int, gold: str) -> str:
    """Return ``gold``, the published flag of task ``number``, corrected if ``CORRECTED_GOLDS`` has the task."""
    wrong, right = CORRECTED_GOLDS.get(number, ("", ""))
    return gold.replace(wrong, right) if wrong else gold


def _entries(path: Path) -> list[dict[str, Any]]:
    entries = read_json(path)
    for number, entry in enumerate(entries if isinstance(entries, list) else [None]):
        right = isinstance(entry, dict) and isinstance(entry.get("task_id"), int) and bool(entry.get("tags"))
        if not right or not all(isinstance(entry.get(key), str) and entry[key] for key in ("query", "gold")):
            raise ValueError(f"{path}, task {number}: expected an object with task_id, query, gold and tags")
    return entries
