"""A run that some of its hosts would not see is refused before anything begins; what many hosts see is not asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.config import MeshConfig, Recipe
from lemur_ray.train.on_ray import shared_storage_check
from lemur_ray.train.on_ray.shared_storage_check import can_host_worker, hosts_without_storage, unshared_storage_message
from lemur_ray.train.run.folder import Run


class Asked:
    """Stands in for the cluster."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.folders: list[str] = []

    def __call__(self, files: Sequence[Path], folders: Sequence[Path], works: Any, silent_sees: bool) -> list[str]:
        self.files, self.folders = [str(path) for path in files], [str(path) for path in folders]
        return ["a", "b"]


def test_hosts_are_asked_for_what_lies_on_a_disk_alone(
    small_recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Asked()
    monkeypatch.setattr(shared_storage_check, "hosts_without_access", asked)
    recipe = small_recipe()
    assert hosts_without_storage(Run(recipe, "gs://b/corpus", "gs://b/run", "gs://b/model")) == []
    (tmp_path / "config.json").write_text("{}")
    run = Run(recipe, "/here/corpus", "/here/run", str(tmp_path))
    assert hosts_without_storage(run) == ["a", "b"]
    assert (asked.files, asked.folders) == (["/here/corpus/manifest.json", f"{tmp_path}/config.json"], ["/here/run"])
    assert unshared_storage_message(run, ["a", "b"]).startswith(
        f"a, b would train and cannot see /here/corpus, /here/run, {tmp_path} of"
    )
    mixed = Run(recipe, "/here/corpus", "gs://b/run")
    assert hosts_without_storage(mixed) == ["a", "b"]
    assert "cannot see /here/corpus of this host: put what is read and what is written" in unshared_storage_message(
        mixed, ["a"]
    )


@pytest.mark.parametrize(
    ("mesh", "resources", "takes"),
    [
        (MeshConfig(cpus_per_worker=2), {"CPU": 2.0}, True),
        (MeshConfig(cpus_per_worker=2), {"CPU": 1.0}, False),
        (MeshConfig(), {}, False),
        (MeshConfig(use_gpu=True), {"CPU": 8.0}, False),
        (MeshConfig(use_gpu=True), {"GPU": 1.0}, True),
    ],
)
def test_only_hosts_that_take_work_are_asked(mesh: MeshConfig, resources: Mapping[str, float], takes: bool) -> None:
    assert can_host_worker(mesh)(resources) is takes
