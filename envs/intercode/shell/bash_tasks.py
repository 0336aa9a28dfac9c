"""Tasks of InterCode-Bash: 200 sentences about four file trees.

The data (MIT, from NL2Bash) is not part of this project: ``DATA/intercode/nl2bash``."""

import hashlib
from pathlib import Path
from typing import Any

from envs.intercode.shell.bash_tree import make_tree
from envs.outside_data import required
from lemur_ray.agents.trajectory import Task
from lemur_ray.host.home import lemur_home
from lemur_ray.host.json_files import read_json
from lemur_ray.storage.bundles.host_path import HostPath

BENCHMARK = "intercode/bash"
ENV_ID = "envs:lemur/InterCodeBash-v0"
MAX_TURNS = 10
FILE_SYSTEMS = (1, 2, 3, 4)


def load_bash_tasks(data: Path, *, scratch: Path | None = None, compat: bool = False, rootfs: str = "") -> list[Task]:
    """The tasks of all four trees, which are built under ``scratch`` (default: LEMUR_HOME). The category is the tree.
    ``compat``: repeat upstream's quirks; ``rootfs``: root file system of the sandbox, empty: this machine's. Raises
    FileNotFoundError with the command that fetches the data, ValueError that names file and place."""
    tasks = []
    for number in FILE_SYSTEMS:
        manifest = required(data, f"intercode/nl2bash/fs_{number}.manifest.json.gz")
        questions = required(data, f"intercode/nl2bash/nl2bash_fs_{number}.json.gz")
        content = hashlib.sha256(manifest.read_bytes() + questions.read_bytes()).hexdigest()[:16]
        folder = (scratch or lemur_home() / "intercode" / "bash") / f"{content}{'-compat' if compat else ''}"
        trees = make_tree(manifest, folder, keep_empty_folders=not compat)
        # Questions ask for ages and modes of files, so the whole folder is shipped with its times.
        shipped = {inside: HostPath(source, source.parent, dated=True) for inside, source in trees.items()}
        shared: dict[str, Any] = {"trees": shipped, "compat": compat, "file_system": number}
        shared |= {"rootfs": rootfs and HostPath(rootfs), "database_id": content, "max_steps": MAX_TURNS}
        for index, entry in enumerate(_questions(questions)):
            options = {**shared, "question": entry["query"], "gold": entry["gold"]}
            tasks.append(Task(BENCHMARK, f"fs{number}-{index}", ENV_ID, f"fs_{number}", options, MAX_TURNS))
    return tasks


def _questions(path: Path) -> list[dict[str, str]]:
    entries = read_json(path)
    for number, entry in enumerate(entries if isinstance(entries, list) else [None]):
        if not isinstance(entry, dict) or not all(isinstance(entry.get(key), str) for key in ("query", "gold")):
            raise ValueError(f"{path}, task {number}: expected an object with the texts query and gold")
    return entries
