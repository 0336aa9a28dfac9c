"""Commands of the pages, run in this process on small data: what ``command_table`` says of each, page by page."""

from __future__ import annotations

import ast
import gzip
import importlib
import json
import re
import runpy
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest

from lemur_ray.cluster import connection
from lemur_ray.config.config_file import config_text
from lemur_ray.train.job_arguments import RunJob, parse_job
from tests.agents.misbehaving import completion, serving
from tests.docs.command_table import MESSAGES, RULES, By, Needs, Run
from tests.docs.test_commands_of_pages import COMMANDS_SHOWN, flags_in_messages, programs
from tests.golden import present
from tests.source_tree import ROOT

Rule = tuple[str, Any]


def rule_of(page: str, command: str) -> Rule | None:
    text = f"{page}: " + " ".join(re.sub(r"(^|\s)#.*", "", command).split())
    return next((rule for rule in RULES if re.search(rule[0], text)), None)


EVERY = [
    *((path.name, line, command, rule_of(path.name, command)) for path, line, command in COMMANDS_SHOWN),
    *(("message", line, command, rule_of("message", command)) for line, command in enumerate(MESSAGES)),
]
TO_RUN = {
    page: [(line, command, rule[1]) for name, line, command, rule in EVERY if name == page and rule and
           isinstance(rule[1], Run)]
    for page in dict.fromkeys(name for name, *_ in EVERY)
}  # fmt: skip


def test_every_command_is_run_by_a_test_or_marked_with_what_it_needs() -> None:
    unknown = [f"{page}:{line}: {command}" for page, line, command, rule in EVERY if rule is None]
    assert not unknown, "give each a line in tests/docs/command_table.py"
    used = {rule[0] for *_, rule in EVERY if rule}
    assert not [pattern for pattern, _ in RULES if pattern not in used], "rules without a command"


def test_the_tests_that_are_credited_are_there() -> None:
    credited = {how.test for _, how in RULES if isinstance(how, By)}
    for test in sorted(credited):
        file, _, beginning = test.partition("::")
        tests = [node.name for node in ast.parse((ROOT / "tests" / file).read_text()).body
                 if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")]  # fmt: skip
        assert len([name for name in tests if name.startswith(beginning)]) == 1, test


def test_every_job_that_a_message_names_with_flags_is_in_the_table() -> None:
    named = {job for _, _, command, rule in EVERY if rule and not isinstance(rule[1], Needs)
             for job in re.findall(r"jobs/(\w+)\.py", command)}  # fmt: skip
    assert not set(flags_in_messages()) - named


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with texts of several forms, a corpus of them, and a run of random weights under several names."""
    home: Path = tmp_path_factory.mktemp("world")
    topics = importlib.import_module("pydoc_data.topics").topics
    rows = [{"title": title, "text": text} for title, text in sorted(topics.items())]
    programs_ = [{"text": path.read_text()} for path in sorted((ROOT / "lemur_ray" / "rollout").rglob("*.py"))]
    for name, lines in {"wiki": rows, "python": programs_}.items():
        with gzip.open(home / f"{name}.jsonl.gz", "wt") as file:
            file.writelines(json.dumps(line) + "\n" for line in lines)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), home / "wiki.parquet")
    for folder in ("code", "stack", "scripts"):
        (home / folder).mkdir()
        (home / folder / "a.py").write_text("\n\n".join(program["text"] for program in programs_[:8]))
    (home / "mixture.yaml").write_text(
        "- {name: python, kind: code, uri: python.jsonl.gz}\n- {name: wiki, kind: text, uri: wiki.parquet}\n"
    )
    (home / "takedown.yaml").write_text('origins: ["wiki.parquet"]\n')
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    (home / "chats.jsonl").write_text(json.dumps({"messages": turns}) + "\n")
    (home / "replies.jsonl").write_text(json.dumps({"task": "bbh/boolean_expressions/0", "reply": "True"}) + "\n")
    (home / "my_module.py").write_bytes((ROOT / "examples" / "own_benchmark.py").read_bytes())
    with present.surroundings(home):
        assert present.job("convert", "--model", "random:nano", "--to", "run", "--out", "runs/nano")[0] == 0
        job = parse_job(RunJob, ["nano"], prog="pretrain.py")
        (home / "runs/nano/config.yaml").write_text(config_text(job))
        for name in ("nano-chat", "longer", "stable", "lemur-7b-chat"):
            shutil.copytree(home / "runs" / "nano", home / "runs" / name)
        small = ["--workers", "0", "--vocab-size", "512", "--seq-len", "1024", "--out", "corpus/mine"]
        assert present.job("build_corpus", "--sources", "mixture.yaml", *small)[0] == 0
        play = ["--policy", "expert", "--limit", "1", "--actors", "0", "--out", "episodes/mine"]
        assert present.job("agent_eval", *play)[0] == 0
        assert present.job("agent_eval", "--split", "train", *play[:-1], "episodes/train")[0] == 0
    shutil.copytree(home / "runs/stable/checkpoints/0", home / "runs/stable/checkpoints/600")
    shutil.copytree(home / "episodes/mine", home / "episodes/theirs")
    return home


@pytest.fixture
def home(world: Path, tmp_path: Path, data_dir: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of the world, which is LEMUR_HOME and the working directory. A command that starts Ray fails."""
    folder = tmp_path / "home"
    shutil.copytree(world, folder)
    monkeypatch.setattr(connection, "connect", lambda **options: pytest.fail("it starts Ray: mark it, or add flags"))
    monkeypatch.setenv("ACME_KEY", "sk-1")
    with present.surroundings(folder, LEMUR_DATA=str(data_dir)):
        yield folder


def filled_in(words: list[str], endpoint: str, home: Path, data: Path) -> list[str]:
    """Words of a command with the reader's own places and names."""
    sql = "sql" if "intercode/sql" in words else "bash"
    log = next(iter(sorted((data / "intercode" / "logs" / sql / "gpt-3.5").glob("*.json.gz"))), "")
    places = {
        r"openai:(https?://HOST/v1|http://127\.0\.0\.1:\d+/v1|URL)": f"openai:{endpoint}",
        r"^(replay:)(DIR|\$LEMUR_DATA)/mint/outputs/MODEL": rf"\1{data}/mint/outputs/Llama-2-70b-chat-hf",
        r"LOG\.json\.gz": str(log),
        r"FILE\.jsonl": f"{home}/replies.jsonl",
        r"(^|:)/(data|path/to)/": rf"\1{home}/",
        r"^DUMP$": f"{home}/wiki.jsonl.gz",
        r"^NAME$": "toy",
        r"#MODEL$": "#toy",
        r"^MODEL$|^RUN$": "nano",
        r"^CORPUS$": "corpus/mine",
        r"^ledger:DIR": "ledger:LAST",
    }
    for pattern, place in places.items():
        words = [re.sub(pattern, place, word) for word in words]
    if "DIR" in words:
        words[words.index("DIR")] = str(data) if "--data" in words else "episodes/mine"
    last = [str(path.parent) for path in (home / "episodes").glob("bbh*/episodes.jsonl")]
    return [word.replace("LAST", last[0]) if last else word for word in words]


class CtrlC:
    """What ``jobs/view.py`` waits for."""

    def wait(self) -> None:
        raise KeyboardInterrupt


def run(words: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """(exit code, all output) of a command, in this process."""
    script, *rest = words[1:] if words[1] != "-m" else words[2:]
    capsys.readouterr()
    with pytest.MonkeyPatch.context() as patch:
        if script.startswith("jobs/"):
            if script == "jobs/view.py":
                patch.setattr(importlib.import_module("view"), "threading", SimpleNamespace(Event=CtrlC))
            code, printed = present.job(Path(script).stem, *rest)
            return code, printed + capsys.readouterr().err
        try:
            patch.setattr(sys, "argv", [script, *rest])
            if script.endswith(".py"):
                runpy.run_path(str(ROOT / script), run_name="__main__")
            else:
                patch.delitem(sys.modules, script, raising=False)  # runpy warns of a module that a test has imported
                runpy.run_module(script, run_name="__main__")
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
    output = capsys.readouterr()
    return code, output.out + output.err


@pytest.mark.slow
@pytest.mark.parametrize("page", [page for page, commands in TO_RUN.items() if commands])
def test_the_commands_of_a_page_run_one_after_another(
    page: str, home: Path, data_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = []
    with serving(lambda body: completion("8")) as endpoint:
        for line, command, how in TO_RUN[page]:
            for words in programs(command):
                words = words[words.index("--") + 1 :] if words[:3] == ["ray", "job", "submit"] else words
                filled = filled_in([*words, *how.more.split()], endpoint.url, home, data_dir)
                code, output = run(filled, capsys)
                if code != how.code or how.says not in output:
                    failed.append(f"{page}:{line}: exit code {code} of {' '.join(filled)}\n{output[-800:]}")
    assert not failed, "\n\n".join(failed)
