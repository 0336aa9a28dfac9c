"""Tasks of InterCode-Bash, -CTF and -Python, from the published data below ``DATA/intercode``.

None of the data is part of this project: that of Bash (NL2Bash) is MIT, that of Python (MBPP) CC BY 4.0, and that of
CTF under picoCTF's own terms. All flags are public: models may have seen them in training, and reports must say so."""

import ast
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from envs.intercode.shell.bash_tree import make_tree
from envs.outside_data import required
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.rows import content_digest
from lemur_ray.host.home import lemur_home
from lemur_ray.host.json_files import read_json
from lemur_ray.host.python_source import parsed
from lemur_ray.outside_data.making import unpacked
from lemur_ray.storage.bundles.host_path import HostPath

FILE_SYSTEMS = (1, 2, 3, 4)
MAX_TURNS = {"bash": 10, "ctf": 10, "python": 7}
ENV_IDS = {
    "bash": "envs:lemur/InterCodeBash-v0",
    "ctf": "envs:lemur/InterCodeCTF-v0",
    "python": "envs:lemur/InterCodePython-v0",
}

NEEDS_HOST = frozenset({1, 9, 16, 20, 28, 29, 35, 39, 41, 42, 43, 54, 57, 62, 66, 73, 87, 88, 89, 95})
"""Tasks of CTF that need a live host of picoCTF."""
NEEDS_ASSET = frozenset({1, 7, 65, 66, 70})
"""Tasks of CTF with a file that the assets lack (disk images, a link)."""
NEEDS_LOOKUP = frozenset({59})
"""Tasks of CTF that need a whois query."""
NOT_OFFLINE = NEEDS_HOST | NEEDS_ASSET | NEEDS_LOOKUP

CORRECTED_GOLDS = {15: ("1|/|_4", r"1|\/|_4")}
"""Number of a CTF task -> (wrong part of its published flag, correct part). The published flag lacks a backslash."""


def load_bash_tasks(data: Path, *, scratch: Path | None = None, compat: bool = False, rootfs: str = "") -> list[Task]:
    """The 200 tasks of all four trees, which are built under ``scratch`` (default: LEMUR_HOME). The category is the
    tree. ``compat``: repeat upstream's quirks; ``rootfs``: root file system of the sandbox, empty: this machine's.
    Raises FileNotFoundError with the command that fetches the data, ValueError that names file and place."""
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
        shared |= {"rootfs": rootfs and HostPath(rootfs), "database_id": content}
        for index, entry in enumerate(read_entries(questions, "the texts query and gold", ("query", "gold"))):
            options = {**shared, "question": entry["query"], "gold": entry["gold"]}
            tasks.append(_task("bash", f"fs{number}-{index}", f"fs_{number}", options))
    return tasks


def load_ctf_tasks(data: Path, *, scratch: Path | None = None, compat: bool = False, files: bool = True) -> list[Task]:
    """The 76 tasks that can be solved offline, with corrected golds; with ``compat`` all 100 with the published golds.
    ``files``: unpack the assets, without solutions, under ``scratch`` (default: LEMUR_HOME). The category is the first
    tag. Raises FileNotFoundError with the command that fetches the data, ValueError naming the malformed entry."""
    path = required(data, "intercode/ctf/ic_ctf.json.gz")
    entries = read_entries(
        path, "task_id, query, gold and tags", ("query", "gold"),
        lambda one: isinstance(one.get("task_id"), int) and all(map(one.get, ("tags", "query", "gold"))),
    )  # fmt: skip
    assets = None
    if files:
        packed = required(data, "intercode/ctf/task_assets.tar.gz")
        assets = unpacked(packed, scratch or lemur_home() / "intercode" / "ctf", "solution") / "task_assets"
    content = content_digest(str(path))
    tasks = []
    for entry in entries:
        number, gold = entry["task_id"], entry["gold"]
        if number in NOT_OFFLINE and not compat:
            continue
        if number in CORRECTED_GOLDS and not compat:
            gold = gold.replace(*CORRECTED_GOLDS[number])
        folder = assets / str(number) if assets else None
        there = HostPath(folder, assets, dated=True) if folder is not None and folder.is_dir() else ""
        options = {"question": entry["query"], "gold": gold, "offline": number not in NOT_OFFLINE, "compat": compat}
        options |= {"database_id": content, "assets": there, "number": number}
        tasks.append(_task("ctf", f"ctf-{number}", entry["tags"][0], options))
    return tasks


def load_python_tasks(data: Path, *, compat: bool = False) -> list[Task]:
    """The 974 questions of MBPP with their tests, in the data's order. ``compat``: repeat upstream's quirks. Raises
    FileNotFoundError with the fetch command, ValueError for a bad entry."""
    path = required(data, "intercode/python/ic_mbpp.json.gz")
    content = content_digest(str(path))
    entries = read_entries(
        path, "the texts query and gold, and tests", ("query", "gold"),
        lambda one: isinstance(one.get("tests"), list) and bool(one["tests"]),
    )  # fmt: skip
    tasks = []
    for index, entry in enumerate(entries):
        options: dict[str, Any] = {"question": entry["query"], "tests": entry["tests"], "gold": entry["gold"]}
        options |= {"setup": entry.get("test_setup_code", ""), "name": name_under_test(entry["gold"], entry["tests"])}
        options |= {"compat": compat, "database_id": content}
        tasks.append(_task("python", f"python-{index}", "mbpp", options))
    return tasks


def name_under_test(gold: str, tests: list[str]) -> str:
    """Name of the last function or class of ``gold`` that ``tests`` use, or else of its last one. Raises ValueError if
    there is none, SyntaxError if a text is not Python."""
    defined = [node.name for node in parsed(gold).body if isinstance(node, ast.FunctionDef | ast.ClassDef)]
    used = {node.id for test in tests for node in ast.walk(parsed(test)) if isinstance(node, ast.Name)}
    called = [name for name in defined if name in used]
    if not defined:
        raise ValueError(f"a gold without a function: {gold[:80]!r}")
    return (called or defined)[-1]


def read_entries(
    path: Path, expected: str, texts: tuple[str, ...], is_right: Callable[[dict[str, Any]], bool] = bool
) -> list[dict[str, Any]]:
    """The objects of a JSON list. Raises ValueError that names the first one, and what was ``expected``, if a field of
    ``texts`` is no text or ``is_right`` rejects it."""
    entries: Any = read_json(path)
    for number, entry in enumerate(entries if isinstance(entries, list) else [None]):
        has_texts = isinstance(entry, dict) and all(isinstance(entry.get(name), str) for name in texts)
        if not has_texts or not is_right(entry):
            raise ValueError(f"{path}, task {number}: expected an object with {expected}")
    return list(entries)


def _task(kind: str, task_id: str, category: str, options: dict[str, Any]) -> Task:
    options = {**options, "max_steps": MAX_TURNS[kind]}
    return Task(f"intercode/{kind}", task_id, ENV_IDS[kind], category, options, MAX_TURNS[kind])
