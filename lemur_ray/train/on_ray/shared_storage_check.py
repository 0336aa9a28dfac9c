"""Checks, before anything starts, that every host that may train can reach the folders of a run."""

from collections.abc import Callable, Mapping
from pathlib import Path

from lemur_ray.config import MeshConfig
from lemur_ray.corpus.manifest import MANIFEST
from lemur_ray.corpus.on_ray import hosts_without_access
from lemur_ray.storage.file_system import is_bucket
from lemur_ray.train.run.folder import Run

_NAMES = ("recipe.json", "config.json", "plan/metadata")
"""Every folder that a run may start from contains one of these files."""


def can_host_worker(mesh: MeshConfig) -> Callable[[Mapping[str, float]], bool]:
    """A function from a host's Ray resources to whether a worker of the run may be placed there."""

    def can_host(resources: Mapping[str, float]) -> bool:
        if mesh.use_tpu:
            return resources.get("TPU", 0) > 0
        return resources.get("GPU", 0) >= 1 if mesh.use_gpu else resources.get("CPU", 0) >= mesh.cpus_per_worker

    return can_host


def hosts_without_storage(run: Run) -> list[str]:
    """Names of hosts that may run a worker and cannot see the corpus, the run folder or the model that the run starts
    from; [] if all can, or if everything is in a bucket. Runs a Ray task on each host."""
    files = [] if is_bucket(run.corpus) else [Path(run.corpus) / MANIFEST]
    if run.init_from and not is_bucket(run.init_from):
        files += [path for name in _NAMES if (path := Path(run.init_from) / name).is_file()]
    folders = [] if is_bucket(run.out) else [Path(run.out)]
    if not files and not folders:
        return []
    return hosts_without_access(files, folders, can_host_worker(run.recipe.mesh), silent_sees=True)


def unshared_storage_message(run: Run, blind: list[str]) -> str:
    """The error message for a run whose folders the hosts ``blind`` cannot see."""
    here = [path for path in (run.corpus, run.out, run.init_from) if path and not is_bucket(path)]
    return (
        f"{', '.join(blind)} would train and cannot see {', '.join(here)} of this host: put what is read and what is "
        "written into a bucket (jobs/build_corpus.py --out gs://..., --corpus, --out and --init-from gs://...) or a "
        "folder that every host mounts"
    )
