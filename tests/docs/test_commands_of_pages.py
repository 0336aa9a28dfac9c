"""Every command line that pages, notebooks, examples and messages show: its program takes its flags and values,
and its files exist.

A job's command line goes through the job's own ``main`` up to the point where its arguments are read, so an option that
is gone or a value that is refused fails here. The commands themselves run in the tests of their jobs (``tests/e2e``,
``tests/serve``, ``tests/train``, ``tests/docs/test_examples.py``); what a page shows for other machines is only read.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import re
import shlex
import shutil
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tyro

from lemur_ray.host.commands import COMMANDS
from tests.source_tree import ROOT

PAGES = (
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "cluster/README.md",
    ROOT / "docs/index.md",
    ROOT / "docs/formats.md",
    *sorted((ROOT / "docs" / "guides").glob("*.md")),
)
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
ELSEWHERE = {
    *("apt-get", "cd", "curl", "docker", "dockerd", "gcloud", "git", "harbor", "inspect", "kubectl", "ln", "lm_eval"),
    *("mkdir", "npx", "ray", "sed", "set", "systemctl", "tensorboard", "touch", "wandb", "xprof"),
}
"""Programs of others, whose flags are theirs; ``command_table`` says what their commands need."""
OURS = re.compile(r"([A-Z_]+=\S*\s+)*(sudo\s+)?(\S*/)?(python3?|lemur|ray job submit|make|pip|\./|bash|cluster/\S+)\s")
"""How a command of this project begins, where prose and output stand beside commands."""
OUR_FOLDERS = ("cluster/", "docs/", "envs/", "examples/", "jobs/", "tests/")

PLAIN_HELP = {"doctor", "index_wikipedia"}
"""Jobs whose help has no second page."""


class Parsed(BaseException):
    """The arguments of a job were accepted."""


def commands(page: Path) -> Iterator[tuple[int, str]]:
    """(line, command) of every line of a block of bash, and of each of our commands in a block without a language,
    which may be output; continued lines are joined."""
    text = page.read_text(encoding="utf-8")
    for block in FENCE.finditer(text):
        first = text.count("\n", 0, block.start(2)) + 1
        lines = block.group(2).split("\n") if block.group(1) in ("", "bash", "sh") else []
        joined = ""
        for number, line in enumerate(lines):
            joined += line.removesuffix("\\")
            if line.endswith("\\"):
                continue
            if block.group(1) or OURS.match(joined.strip()):
                yield first + number, joined.strip()
            joined = ""


def programs(command: str) -> Iterator[list[str]]:
    """Words of each program of a command line, without assignments, redirections and what a comment says. A line that
    only sets a variable to the output of a program has none."""
    if re.fullmatch(r"[A-Z_]+=\$\(.*\)", command):
        return
    words = shlex.split(re.sub(r"(^|\s)#.*", "", command))  # shlex would also end a word at a # inside it
    part: list[str] = []
    for word in [*words, ";"]:
        if word in (";", "&&", "|", "&", "||"):
            while part and re.fullmatch(r"[A-Z_]+=.*", part[0]):
                part = part[1:]
            if part[:1] == ["sudo"]:
                part = part[1:]
            if part and part[0] not in ("export", ".", "#"):
                yield part
            part = []
        else:
            part.append(word)


def in_notebook(path: Path) -> Iterator[tuple[int, str]]:
    """(number of the cell, command) of every line of its cells of bash; continued lines are joined."""
    for number, cell in enumerate(json.loads(path.read_text())["cells"]):
        first, _, text = "".join(cell["source"]).partition("\n")
        if first == "%%bash":
            yield from ((number, line.strip()) for line in text.replace("\\\n", "").split("\n"))


def in_docstring(path: Path) -> Iterator[tuple[int, str]]:
    """(line, command) of each of our commands in the docstring of a script, where it is a line of its own."""
    text = ast.get_docstring(ast.parse(path.read_text())) or ""
    for number, line in enumerate(re.sub(r"\\\n\s*", "", text).split("\n"), 1):
        if OURS.match(line.strip()):
            yield number, re.sub(r"\[.+?\]|\.\.\.|\.$", "", line.strip())


SHOWN = (
    *((page, commands) for page in PAGES),
    *((path, in_notebook) for path in sorted((ROOT / "examples").rglob("*.ipynb"))),
    *((path, in_docstring) for path in sorted((ROOT / "examples").glob("*.py"))),
    *((path, in_docstring) for path in sorted((ROOT / "jobs").glob("[a-z]*.py"))),
)
COMMANDS_SHOWN = [
    (path, line, command) for path, reader in SHOWN for line, command in reader(path) if any(programs(command))
]
CASES = [
    pytest.param(words, id=f"{path.name}:{line}")
    for path, line, command in COMMANDS_SHOWN
    for words in programs(command)
]


@pytest.mark.parametrize("words", CASES)
def test_a_command_of_a_page_is_one_that_its_program_takes(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    if words[:3] == ["ray", "job", "submit"]:
        assert "--" in words, "a submission names its command after --"
        words = words[words.index("--") + 1 :]
    program, *rest = words
    program = re.sub(r"^(?!PREFIX)\S*/(python3?|pip)$", r"\1", program)  # of an environment
    for word in rest:
        assert not word.startswith(OUR_FOLDERS) or (ROOT / word).exists(), f"{word} is not there"
    if program == "lemur" and rest[0] in COMMANDS:
        program, rest = "python", [f"jobs/{COMMANDS[rest[0]][0]}.py", *rest[1:]]
    if program.startswith("python") and rest and rest[0].endswith(".py"):
        assert (ROOT / rest[0]).is_file(), f"{rest[0]} is not there"
        if rest[0].startswith("jobs/"):
            parse_job(Path(rest[0]).stem, rest[1:], monkeypatch)
    elif program.startswith("python") and rest[0] == "-m":
        if rest[1].split(".")[0] in ("lemur_ray", "envs", "tests"):
            assert importlib.util.find_spec(rest[1]), f"no module {rest[1]}"
    elif program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert all("=" in word or word in targets for word in rest), f"Makefile has no target of {rest}"
    elif program == "pip":
        check_pip(rest)
    elif "/" in program and "PREFIX" not in program:
        assert (ROOT / program).exists(), f"{program} is not there"
    else:
        assert program.startswith(("python", "PREFIX")) or program in ELSEWHERE or shutil.which(program), program


def check_pip(words: list[str]) -> None:
    """Extras that a page names are extras of the project, and files of requirements are there."""
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for word in words:
        if match := re.fullmatch(r"lemur-ray\[(.+)\]", word):
            assert not set(match.group(1).split(",")) - set(extras), f"{word}: there are {sorted(extras)}"
        if word.endswith((".lock", ".txt")):
            assert (ROOT / word).is_file(), f"{word} is not there"


def parse_job(name: str, argv: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the job's ``main`` until its command line has been read."""
    real: Any = tyro.cli

    def read(*args: Any, **options: Any) -> Any:
        real(*args, **options)
        raise Parsed

    monkeypatch.setattr(tyro, "cli", read)
    monkeypatch.setattr("argparse.ArgumentParser.parse_args", _read_by_argparse)
    monkeypatch.syspath_prepend(str(ROOT / "jobs"))
    monkeypatch.setattr("lemur_ray.config.config_file._read", lambda path: b"")  # a file of the reader's own run
    monkeypatch.setenv("LEMUR_DATA", "DIR")
    argv = [word if word not in ("...", "…") else "" for word in argv]
    if "--list" in argv or any(word.startswith("my_") for word in argv):
        return  # run by tests/benchmarks: test_preflight.py, test_question_set.py
    try:
        importlib.import_module(name).main([word for word in argv if word])
        pytest.fail(f"jobs/{name}.py read no configuration from {argv}")
    except Parsed:
        pass
    except SystemExit as ended:
        if ended.code:
            pytest.fail(f"jobs/{name}.py refuses {argv}")


def _read_by_argparse(self: Any, argv: Any = None, namespace: Any = None) -> None:
    _, unknown = self.parse_known_args(argv, namespace)
    assert not unknown, f"unknown: {unknown}"
    raise Parsed


def flags_in_messages() -> dict[str, set[str]]:
    """Job -> flags that follow it in a message or docstring of the code, up to the first mark of a sentence."""
    found: dict[str, set[str]] = {}
    for folder in ("lemur_ray", "envs", "jobs", "cluster"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            text = re.sub(r'"\s*\n\s*f?"', "", path.read_text())  # one literal, written on two lines
            for name, rest in re.findall(r"\bjobs/([a-z_]+)\.py((?: [^\s\"',;()`]+)*)", text):
                found.setdefault(name, set()).update(re.findall(r" (--[a-z][\w.-]*\w)", rest))
    return {name: flags for name, flags in found.items() if flags}


@pytest.mark.parametrize(("name", "flags"), sorted(flags_in_messages().items()))
def test_a_flag_in_a_message_is_one_of_its_command(
    name: str, flags: set[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "jobs"))
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("LEMUR_DATA", "DIR")
    with pytest.raises(SystemExit):
        importlib.import_module(name).main(["--help-all" if name not in PLAIN_HELP else "--help"])
    known = set(re.findall(r"--[a-z][\w.-]*\w", capsys.readouterr().out))
    assert not flags - known
