"""The question set of the guide is played as it stands there, and is short."""

from __future__ import annotations

import ast
import importlib
import json
import re
from pathlib import Path

import pytest

from lemur_ray.rollout.ledger import read_episodes
from tests.conftest import ROOT

GUIDE = ROOT / "docs/guides/language.md"


def test_the_guides_plug_in_is_played_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    assert len(code.splitlines()) <= 60
    (tmp_path / "my_questions.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(ROOT / "jobs"))
    monkeypatch.setenv("LEMUR_HOME", str(tmp_path / "home"))
    job = importlib.import_module("agent_eval")
    command = ["--benchmark", "my_questions:CAPITALS", "--actors", "0"]
    assert job.main([*command, "--policy", "expert", "--out", str(tmp_path / "gold")]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["solved"] == 3
    replies = tmp_path / "r.jsonl"
    said = {"capitals/Japan": " Tokyo.\nCapital of Peru: Cusco", "capitals/Peru": "Cusco"}
    replies.write_text("".join(json.dumps({"task": task, "reply": reply}) + "\n" for task, reply in said.items()))
    assert job.main([*command, "--policy", f"replies:{replies}", "--out", str(tmp_path / "out")]) == 0
    scores = {e.key.task: e.score for e in read_episodes(tmp_path / "out/episodes.jsonl")}
    assert scores == {"capitals/Japan": 1.0, "capitals/Peru": 0.0}


def test_the_guides_smallest_benchmark_is_played_and_needs_eight_names_at_most(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    section = (ROOT / "docs/guides/agents.md").read_text().partition("## Write your own benchmark")[2]
    code = re.findall(r"```python\n(.*?)```", section, re.DOTALL)[0]
    tree = ast.parse(code)
    imported = [one.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for one in node.names]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    given = {word.arg for call in calls if getattr(call.func, "id", "") in imported for word in call.keywords}
    assert len(set(imported) - {"dataclass"} | given - {"frozen"}) <= 8
    (tmp_path / "my_module.py").write_text(code)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(ROOT / "jobs"))
    monkeypatch.setenv("LEMUR_HOME", str(tmp_path / "home"))
    job = importlib.import_module("agent_eval")
    command = ["--benchmark", "my_module:DOUBLES", "--policy", "expert", "--actors", "0", "--largest", "2"]
    assert job.main([*command, "--out", str(tmp_path / "out")]) == 0
    assert json.loads(capsys.readouterr().out.splitlines()[-1])["solved"] == 2
