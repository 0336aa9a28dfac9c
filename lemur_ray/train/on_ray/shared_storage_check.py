"""Whether the hosts that may train see what a run reads and where it writes: asked before anything begins.

What lies in a bucket every host sees. Knows nothing of what is in the folders.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from lemur_ray.config import MeshConfig
from lemur_ray.corpus.manifest import MANIFEST
from lemur_ray.corpus.on_ray import hosts_without_access
from lemur_ray.storage.file_system import is_bucket
from lemur_ray.train.run.folder import Run

_NAMES = ("recipe.json", "config.json", "plan/metadata")
"""One of these is in every folder that a run may start from."""


def takes_work(mesh: MeshConfig) -> Callable[[Mapping[str, float]], bool]:
    """By the resources of a host, whether a worker of such a run may be placed there."""

    def takes(resources: Mapping[str, float]) -> bool:
        if mesh.use_tpu:
            return resources.get("TPU", 0) > 0
        return resources.get("GPU", 0) >= 1 if mesh.use_gpu else resources.get("CPU", 0) >= mesh.cpus_per_worker

    return takes


def who_does_not_see_run(run: Run) -> list[str]:
    """Hosts that take work and do not see the corpus, the folder of the run or the model that it starts from."""
    files = [] if is_bucket(run.corpus) else [Path(run.corpus) / MANIFEST]
    if run.init_from and not is_bucket(run.init_from):
        files += [path for name in _NAMES if (path := Path(run.init_from) / name).is_file()]
    folders = [] if is_bucket(run.out) else [Path(run.out)]
    if not files and not folders:
        return []
    return hosts_without_access(files, folders, takes_work(run.recipe.mesh), silent_sees=True)


def unseen(run: Run, blind: list[str]) -> str:
    """The sentence about a run that some hosts would not see."""
    here = [path for path in (run.corpus, run.out, run.init_from) if path and not is_bucket(path)]
    return (
        f"{', '.join(blind)} would train and cannot see {', '.join(here)} of this host: put what is read and what is "
        "written into a bucket (jobs/build_corpus.py --out gs://..., --corpus, --out and --init-from gs://...) or a "
        "folder that every host mounts"
    )
