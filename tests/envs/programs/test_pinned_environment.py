"""What DS-1000's programs import is pinned to versions that are known to install together."""

from __future__ import annotations

from pathlib import Path

from packaging.requirements import Requirement

from envs.programs.ds1000.environment import LIBRARIES, pinned, plain_name, requirements_file


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
