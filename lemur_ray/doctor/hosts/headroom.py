"""Checks of the hosts' free disk, object stores, and cores for Ray Data, without which training waits for ever."""

from collections.abc import Sequence

from lemur_ray.config.mesh import FEED_CPUS
from lemur_ray.doctor.hosts.host_facts import HostFacts
from lemur_ray.doctor.machine import Check
from lemur_ray.doctor.resources import GIB

DISK_WANTED, DISK_NEEDED = 20 * GIB, 2 * GIB
STORE_WANTED = GIB
_BUILD_CPUS = 1.0
"""CPUs of a Ray Data task that builds a corpus; one that reads for a worker takes FEED_CPUS."""

_ADD = "ray start --address=HEAD:6379 --num-cpus=2 ...   # add a host that takes work"


def disks(hosts: Sequence[HostFacts]) -> Check:
    """Check the least free disk space of any host, in LEMUR_HOME and in Ray's temporary folder: "missing" below
    DISK_NEEDED bytes, "warn" below DISK_WANTED."""
    free, host, folder = min((free, host.name, folder) for host in hosts for folder, free in host.disk_free.items())
    detail = f"least on {host}: {free / GIB:.1f} GiB free at {folder}"
    fix = "export LEMUR_HOME=...   # a larger disk; --temp-dir of ray start for Ray's own folder"
    if free < DISK_NEEDED:
        return Check("disks", "missing", f"{detail}, at least {DISK_NEEDED // GIB} needed", fix, True)
    if free < DISK_WANTED:
        wanted = f"{detail}, {DISK_WANTED // GIB} wanted for bundles, shards and spilled objects"
        return Check("disks", "warn", wanted, fix)
    return Check("disks", "ok", detail, required=True)


def object_stores(hosts: Sequence[HostFacts]) -> Check:
    """Check the sizes of Ray's object stores; "warn" if one is below STORE_WANTED bytes, so that objects spill to disk,
    or larger than /dev/shm, so that it is a slow file on disk."""
    if slow := [host for host in hosts if 0 < host.shm_bytes < host.store_bytes]:
        one = slow[0]
        detail = (
            f"{', '.join(host.name for host in slow)}: object store of {one.store_bytes / GIB:.1f} GiB, but /dev/shm "
            f"has {one.shm_bytes / GIB:.1f}: it lies on the disk, slowly"
        )
        return Check("object stores", "warn", detail, "a volume of type emptyDir, medium: Memory, at /dev/shm")
    least = min(hosts, key=lambda host: host.store_bytes)
    detail = f"least on {least.name}: {least.store_bytes / GIB:.2f} GiB"
    if least.store_bytes < STORE_WANTED:
        fix = "ray start --object-store-memory=2000000000   # and as much memory in the pod"
        return Check("object stores", "warn", f"{detail}, {STORE_WANTED // GIB} wanted", fix)
    return Check("object stores", "ok", detail)


def cores_for_data(hosts: Sequence[HostFacts], free_cpus: float, most_cpus: float = 0.0) -> Check:
    """Check that Ray Data has cores left while each training worker holds one: "missing" if none is free, "warn" if the
    workers leave none. ``free_cpus``: of the cluster now. ``most_cpus``: upper limit of an autoscaling one, else 0."""
    all_cpus = sum(host.cpus for host in hosts)
    if free_cpus < _BUILD_CPUS and most_cpus - all_cpus < _BUILD_CPUS:
        detail = f"{free_cpus:g} of {all_cpus:g} CPUs are free: a run waits until Ray Data finds one"
        fix = "ray job list   # end one, or add a host" if all_cpus >= _BUILD_CPUS else _ADD
        return Check("cores for data", "missing", detail, fix, True)
    if all_cpus < _BUILD_CPUS:
        detail = f"none of the hosts has any now, the cluster may grow to {most_cpus:g} CPUs"
        return Check("cores for data", "ok", detail)
    workers = [host for host in hosts if not host.is_head] or list(hosts)
    if all_cpus - len(workers) < FEED_CPUS:
        detail = (
            f"{all_cpus:g} CPUs on {len(hosts)} hosts: a worker with one core on each of {len(workers)} leaves none "
            "for Ray Data, and the run is refused"
        )
        fix = "ray start --num-cpus=2 ...   # on one host at least, or --mesh.cpus-per-worker 0.5"
        return Check("cores for data", "warn", detail, fix)
    grows = f", may grow to {most_cpus:g}" if most_cpus > all_cpus else ""
    detail = f"{free_cpus:g} of {all_cpus:g} CPUs free{grows}, {len(workers)} hosts for workers"
    return Check("cores for data", "ok", detail)
