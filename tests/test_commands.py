"""``lemur``: names of its commands, and messages that name what can be typed in a checkout and in a wheel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterator
from pathlib import Path

import pytest

from lemur_ray import __version__
from lemur_ray.host import commands
from lemur_ray.sandbox.backends import docker_image
from tests.agents.misbehaving import completion, serving

ROOT = Path(__file__).resolve().parents[1]


EVERY_HELP = """
from lemur_ray.host.commands import COMMANDS, main
for name in COMMANDS:
    try:
        main([name, "--help"])
    except SystemExit as end:
        assert not end.code, name
"""


def sources() -> Iterator[tuple[Path, str]]:
    for folder in ("lemur_ray", "envs", "jobs", "cluster"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path, path.read_text()


def test_every_script_is_a_command_of_one_line_of_help() -> None:
    scripts = {path.stem for path in (ROOT / "jobs").glob("[a-z]*.py")}
    assert {script for script, _ in commands.COMMANDS.values()} == scripts
    assert all(len(text) <= 90 for _, text in commands.COMMANDS.values())


def test_every_command_in_a_message_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == __version__
    extras = project["optional-dependencies"]
    named = [(path, script) for path, text in sources() for script in re.findall(r"\bjobs/([a-z_]+)\.py", text)]
    assert not [
        (path, script) for path, script in named if not (ROOT / "jobs" / f"{script}.py").is_file() and script != "x"
    ]
    wanted = [(path, extra) for path, text in sources() for extra in re.findall(r"lemur-ray\[([a-z0-9-]+)\]", text)]
    assert wanted
    assert not [(path, extra) for path, extra in wanted if extra not in extras]


def test_messages_name_what_works_where_this_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    message = "x: run python jobs/build_corpus.py --out x, jobs/fetch_data.py or pip install 'lemur-ray[docker]'"
    monkeypatch.delenv(commands.STARTED_BY, raising=False)
    assert commands.as_typed(message) == message.replace("'lemur-ray[", f"'{ROOT}[")
    assert commands.program("pretrain.py") == "pretrain.py"
    monkeypatch.setenv(commands.STARTED_BY, "lemur")
    assert "run lemur corpus --out x, lemur fetch or pip" in commands.as_typed(message)
    assert commands.program("build_corpus") == "lemur corpus"
    monkeypatch.delenv(commands.STARTED_BY)
    monkeypatch.setattr(commands, "is_checkout", lambda: False)
    expected = "x: run lemur corpus --out x, lemur fetch or pip install 'lemur-ray[docker]'"
    assert commands.as_typed(message) == expected
    assert commands.as_typed("$ pip install -r /x/requirements.lock") == f"$ pip install lemur-ray=={__version__}"


@pytest.mark.parametrize(
    ("words", "code", "printed"),
    [
        ([], 2, "usage: lemur COMMAND"),
        (["--help"], 0, "  eval             play a benchmark"),
        (["--version"], 0, f"lemur-ray {__version__}"),
        (["evl"], 2, "no command 'evl': did you mean lemur eval?"),
        (["_path"], 2, "no command '_path'"),
    ],
)
def test_without_a_command_the_commands_are_named(
    words: list[str], code: int, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        commands.main(words)
    assert ended.value.code == code
    assert printed in "".join(capsys.readouterr())


@pytest.mark.slow
def test_the_wheel_works_in_an_empty_folder(tmp_path: Path) -> None:
    """Beside the packages of this environment, with nothing of the checkout in sight."""
    tree = tmp_path / "tree"
    subprocess.run(["git", "clone", "-q", "--depth", "1", f"file://{ROOT}", tree], check=True)
    dist = tmp_path / "dist"
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", dist, tree]  # the wheel from the sdist
    subprocess.run(build, check=True, capture_output=True)
    (wheel,), (sdist,) = dist.glob("lemur_ray-*.whl"), dist.glob("lemur_ray-*.tar.gz")
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", wheel, sdist], check=True)
    venv.create(tmp_path / "venv", with_pip=True)
    (site,) = (tmp_path / "venv" / "lib").glob("python3*/site-packages")
    (site / "over.pth").write_text("\n".join(path for path in sys.path if path.endswith("site-packages")))
    python = tmp_path / "venv" / "bin" / "python"
    (tmp_path / "empty").mkdir()
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    install = [python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel]
    # Elsewhere, because in a checkout where a wheel was built pip takes the project for installed.
    subprocess.run(install, check=True, cwd=tmp_path, env=environment)
    environment |= {"LEMUR_HOME": str(tmp_path / "home"), "LEMUR_DATA": str(tmp_path)}

    def lemur(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [tmp_path / "venv" / "bin" / "lemur", *words],
            cwd=tmp_path / "empty", env=environment, capture_output=True, text=True, timeout=300,
        )  # fmt: skip

    shown = subprocess.run(
        [python, "-c", EVERY_HELP], cwd=tmp_path / "empty", env=environment, capture_output=True, text=True, timeout=300
    )
    assert shown.returncode == 0, shown.stderr
    for name in commands.COMMANDS:
        assert f"usage: lemur {name} " in shown.stdout
    with serving(lambda body: completion("8")) as endpoint:
        asked = lemur("eval", "--policy", f"openai:{endpoint.url}", "--limit", "2", "--policy-model", "toy")
    assert asked.returncode == 0, asked.stderr
    assert '"scored": 2' in asked.stdout
    shutil.copy(ROOT / "examples" / "own_benchmark.py", tmp_path / "empty" / "mine.py")
    environment["PYTHONPATH"] = "."  # the folder of a benchmark of one's own, as the guide says
    own = lemur("eval", "--benchmark", "mine:DOUBLES", "--policy", "expert", "--limit", "4")
    assert own.returncode == 0, own.stderr
    assert '"solved": 4' in own.stdout
    played = lemur("eval", "--policy", "expert", "--limit", "2", "--actors", "0", "--out", "games")
    assert played.returncode == 0, played.stderr
    assert '"success_rate": 1.0' in played.stdout
    page = lemur("report", "--episodes", "games", "--out", "page")
    assert page.returncode == 0, page.stderr
    assert (tmp_path / "home" / "page" / "index.html").is_file()
    missing = lemur("eval", "--benchmark", "gsm8k", "--policy", "gold", "--actors", "0")
    assert missing.returncode == 1
    assert "lemur fetch gsm8k" in missing.stderr
    assert "jobs/" not in missing.stderr
    site = lemur("docs")
    assert site.returncode == 1
    assert "clone it, pip install -e '.[docs]' there, and run lemur docs" in site.stderr
    lists = [
        python,
        "-c",
        "from lemur_ray.sandbox.backends.docker_image import lists, packages; print(lists(), packages())",
    ]
    listed = subprocess.run(lists, cwd=tmp_path / "empty", env=environment, capture_output=True, text=True, check=True)
    assert listed.stdout == f"{docker_image.lists()} {docker_image.packages()}\n", "the image needs no checkout"
