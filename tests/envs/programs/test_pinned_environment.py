"""What DS-1000's programs import is pinned to versions that are known to install together."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from envs.programs.ds1000 import environment
from envs.programs.ds1000.environment import LIBRARIES, folder_of, pinned, plain_name, requirements_file
from envs.programs.ds1000.make_environment import main
from tests.conftest import ROOT


def test_the_libraries_are_pinned_as_those_that_install_together_on_python_3_11(data_dir: Path) -> None:
    lines = (data_dir / "bench/ds1000_format/requirements-py311.txt").read_text().splitlines()
    known = {plain_name(one.name): str(one.specifier) for one in map(Requirement, lines)}
    ours = {plain_name(name): f"=={version}" for name, version, _ in pinned()}
    assert {name: known.get(name) for name in ours} == ours
    assert {name for distributions in LIBRARIES.values() for name in distributions} <= ours.keys()
    assert len(LIBRARIES) == 7


def test_every_line_of_the_list_is_a_pin_or_a_remark() -> None:
    lines = [line for line in requirements_file().read_text().splitlines() if line and not line.startswith("#")]
    assert [str(Requirement(line).specifier)[:2] for line in lines] == ["=="] * len(lines)
    assert {group for *_, group in pinned()} == {"", "tensorflow", "pytorch"}


def test_what_they_bring_is_held_to_versions_too_and_none_of_it_is_for_cuda() -> None:
    lines = requirements_file().with_name("constraints.txt").read_text().splitlines()
    held = [Requirement(line) for line in lines if not line.startswith("#")]
    assert all(str(one.specifier).startswith("==") for one in held)
    names = {plain_name(one.name) for one in held}
    assert {"keras", "h5py", "protobuf", "python-dateutil", "pillow", "joblib"} <= names
    assert not names & {plain_name(name) for name, _, _ in pinned()}
    assert not [name for name in names if name.startswith(("nvidia", "triton"))], "torch +cpu brings none"


def test_torch_for_processors_alone_is_the_pinned_one_and_is_not_installed_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, version, group in pinned():
        about = tmp_path / f"{name}-{version}.dist-info/METADATA"
        about.parent.mkdir()
        about.write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}{'+cpu' * (group == 'pytorch')}\n")
    assert list(environment.other_versions(str(tmp_path))) == []
    assert main([str(tmp_path)]) == 0
    assert capsys.readouterr().out.split() == [str(tmp_path)]
    assert any(tmp_path.iterdir())


def test_an_image_of_its_own_brings_them_where_nobody_made_a_folder(
    lemur_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = lemur_home / "environments/ds1000"
    monkeypatch.setattr(environment, "IN_IMAGE", tmp_path / "image")
    assert folder_of("") == own
    (tmp_path / "image").mkdir()
    assert folder_of("") == tmp_path / "image"
    own.mkdir(parents=True)
    assert folder_of("") == own
    assert folder_of(str(tmp_path)) == tmp_path


def test_every_image_has_its_lists_and_the_script_can_be_read() -> None:
    images = ROOT / "cluster/images"
    kinds = {path.parent.name for path in images.glob("*/python.txt")}
    assert "ds1000" in kinds
    for kind in kinds:
        assert (images / kind / "debian.txt").is_file(), kind
        named = re.findall(r"^-r (\S+)$", (images / kind / "python.txt").read_text(), re.MULTILINE)
        assert all((images / kind / name).resolve().is_file() for name in named), kind
    assert subprocess.run(["bash", "-n", str(images / "build.sh")]).returncode == 0
    refused = subprocess.run(["bash", str(images / "build.sh"), "none"], capture_output=True, text=True)
    assert all(kind in refused.stderr for kind in kinds)
