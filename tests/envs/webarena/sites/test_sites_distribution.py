"""The programs of the stand-in sites are a distribution of their own, and a run without a checkout uses that one."""

from __future__ import annotations

import runpy
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from envs.webarena.sites import software as declared
from envs.webarena.sites.software import APPS, DISTRIBUTION, INSTALLED_AS, SOFTWARE, missing, programs
from tests.source_tree import ROOT


@pytest.fixture
def no_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """A process without the checkout's programs. Gives the package folder of its sites' environment, which is empty."""
    packages = tmp_path / "env-sites" / "lib" / "python3.11" / "site-packages"
    packages.mkdir(parents=True)
    python = tmp_path / "env-sites" / "bin" / "python"
    python.parent.mkdir()
    python.touch()
    monkeypatch.setattr(declared, "interpreter", lambda: python)
    monkeypatch.setattr(declared, "APPS", tmp_path / "nothing")
    declared._site_packages.cache_clear()
    yield packages
    declared._site_packages.cache_clear()


def _project(folder: Path) -> dict[str, Any]:
    return tomllib.loads((folder / "pyproject.toml").read_text())


def test_the_core_wheel_holds_no_program_of_a_site_and_the_distribution_holds_all(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    setuptools = pytest.importorskip("setuptools")
    built: dict[str, Any] = {}
    monkeypatch.setattr(setuptools, "setup", built.update)
    monkeypatch.chdir(ROOT)
    runpy.run_path("setup.py")
    core = built["packages"]
    assert built["package_dir"] == {"lemur_ray.commands": "jobs", "lemur_ray.images": "cluster/images"}
    assert "envs.webarena.sites" in core
    assert not [name for name in core if name.startswith("envs.webarena.sites.apps")]
    own = _project(APPS)
    folders = {path.parent.relative_to(APPS).as_posix() for path in APPS.rglob("*.py") if "build" not in path.parts}
    names = {".".join([INSTALLED_AS, *folder.split("/")]).removesuffix("..") for folder in folders}
    assert set(own["tool"]["setuptools"]["packages"]) == names
    assert own["project"]["name"] == DISTRIBUTION


def test_the_former_extra_requires_what_the_distribution_does() -> None:
    extra = _project(ROOT)["project"]["optional-dependencies"]["webarena-sites"]
    assert extra == _project(APPS)["project"]["dependencies"]


def test_without_a_checkout_the_installed_distribution_is_used(no_checkout: Path) -> None:
    (no_checkout / INSTALLED_AS).mkdir()
    (no_checkout / INSTALLED_AS / "run_django.py").touch()
    (no_checkout / "trac").mkdir()
    assert programs() == no_checkout / INSTALLED_AS
    assert missing(SOFTWARE["trac"]) == ""


def test_without_either_the_command_that_installs_it_is_named(no_checkout: Path) -> None:
    (no_checkout / "trac").mkdir()
    environment = no_checkout.parents[2]
    assert programs() is None
    assert missing(SOFTWARE["trac"]) == (
        "Trac: the distribution lemur-ray-webarena-sites, in an environment of its own: "
        f"python3 -m venv {environment} && {environment}/bin/pip install lemur-ray-webarena-sites"
    )
