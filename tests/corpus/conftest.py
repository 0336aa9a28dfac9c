"""Two small real sources: Python's asyncio package as code, its language reference as text."""

from __future__ import annotations

import asyncio
import importlib
import json
import shutil
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def small_sources(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """``--source`` values of a folder of 30 modules and of a .jsonl file of 70 articles."""
    folder = tmp_path_factory.mktemp("sources")
    (folder / "code").mkdir()
    for module in sorted(Path(asyncio.__file__).parent.glob("*.py")):
        shutil.copy(module, folder / "code")
    topics = importlib.import_module("pydoc_data.topics").topics
    with open(folder / "text.jsonl", "w") as f:
        f.writelines(json.dumps({"text": text}) + "\n" for _, text in sorted(topics.items()))
    return f"code:code:{folder / 'code'}", f"text:text:{folder / 'text.jsonl'}"
