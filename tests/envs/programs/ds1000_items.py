"""Items in DS-1000's form that need no library, and an environment that says it has one."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from envs.programs.ds1000 import environment
from lemur_ray.sandbox.backends import docker_engine
from lemur_ray.sandbox.sandbox import SandboxUnavailable

DOUBLES = '''
import tokenize, io

def generate_test_case(test_case_id):
    return test_case_id, 2 * test_case_id

exec_context = r"""
def f(x):
[insert]
result = f(test_input)
"""

def test_execution(solution: str):
    code = exec_context.replace("[insert]", solution)
    for number in range(2):
        test_input, expected = generate_test_case(number + 1)
        test_env = {"test_input": test_input}
        exec(code, test_env)
        assert test_env["result"] == expected

def test_string(solution: str):
    words = [token.string for token in tokenize.tokenize(io.BytesIO(solution.encode()).readline)]
    assert "while" not in words
'''
PROMPT = "Problem:\nDouble x.\n\nA:\n<code>\nx = load_data()\n</code>\ndef f(x):\nBEGIN SOLUTION\n<code>\n"


METADATA = {
    "problem_id": 7,
    "library_problem_id": 3,
    "library": "Numpy",
    "test_case_cnt": 2,
    "perturbation_type": "Origin",
    "perturbation_origin_id": 0,
}
"""The columns of xlangai/DS-1000."""


def item(number: int = 7, **other: Any) -> dict[str, Any]:
    """A row of the data set."""
    metadata = {**METADATA, "problem_id": number}
    whole = {"prompt": PROMPT, "reference_code": "    return 2 * x", "metadata": metadata, "code_context": DOUBLES}
    return whole | other


def with_numpy(folder: Path) -> Path:
    """An environment that says it has numpy, for items that need nothing of it."""
    (folder / "numpy-1.21.6.dist-info").mkdir(parents=True)
    (folder / "numpy-1.21.6.dist-info/METADATA").write_text("Metadata-Version: 2.1\nName: numpy\nVersion: 1.21.6\n")
    return folder


def brought(folder: Path, *rows: dict[str, Any]) -> Path:
    """Rows as the data set's file beneath ``folder``."""
    (folder / "ds1000").mkdir(exist_ok=True)
    (folder / "ds1000/ds1000.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


def the_image() -> str:
    """The image for workers that has DS-1000's libraries, where this machine's Docker engine has it; else empty."""
    found = _inspected()
    return str(found["Id"]) if found else ""


def libraries_of_image() -> str:
    """Where the engine keeps the libraries of that image; empty where they lie in a place that is looked in anyway, or
    cannot be read from here."""
    found = None if environment.folder_of("").is_dir() else _inspected()
    layer = (found or {}).get("GraphDriver", {}).get("Data") or {}
    folder = Path(f"{layer.get('UpperDir')}{environment.IN_IMAGE}")
    try:
        return str(folder) if folder.is_dir() else ""
    except PermissionError:
        return ""


def _inspected() -> dict[str, Any] | None:
    if not os.environ.get("LEMUR_DOCKER"):
        return None
    try:
        with docker_engine.client("to find the image of DS-1000", 10.0) as api:
            images = api.images("lemur-ray-ds1000")
            return api.inspect_image(images[0]["Id"]) if images else None
    except SandboxUnavailable:
        return None
