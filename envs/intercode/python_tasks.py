"""Tasks of InterCode-Python: the 974 questions of MBPP with their tests.

The data (MBPP, CC BY 4.0) is not part of this project: ``DATA/intercode/python``."""

import ast
import hashlib
from pathlib import Path
from typing import Any

from envs.outside_data import required
from lemur_ray.agents.trajectory import Task
from lemur_ray.host.json_files import read_json
from lemur_ray.host.python_source import parsed

BENCHMARK = "intercode/python"
ENV_ID = "envs:lemur/InterCodePython-v0"
MAX_TURNS = 7


def load_python_tasks(data: Path, *, compat: bool = False) -> list[Task]:
    """All tasks in the data's order. ``compat``: repeat upstream's quirks. Raises FileNotFoundError with the fetch
    command, ValueError for a bad entry."""
    path = required(data, "intercode/python/ic_mbpp.json.gz")
    content = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    tasks = []
    for index, entry in enumerate(_entries(path)):
        options: dict[str, Any] = {"question": entry["query"], "tests": entry["tests"], "gold": entry["gold"]}
        options |= {"setup": entry.get("test_setup_code", ""), "name": name_under_test(entry["gold"], entry["tests"])}
        options |= {"compat": compat, "database_id": content, "max_steps": MAX_TURNS}
        tasks.append(Task(BENCHMARK, f"python-{index}", ENV_ID, "mbpp", options, MAX_TURNS))
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


def _entries(path: Path) -> list[dict[str, Any]]:
    entries = read_json(path)
    for number, entry in enumerate(entries if isinstance(entries, list) else [None]):
        right = isinstance(entry, dict) and all(isinstance(entry.get(key), str) for key in ("query", "gold"))
        if not right or not isinstance(entry.get("tests"), list) or not entry["tests"]:
            raise ValueError(f"{path}, task {number}: expected an object with the texts query and gold, and tests")
    return entries
