"""All checks of a cluster's hosts, in the order in which they are printed."""

from collections.abc import Mapping, Sequence

from lemur_ray.doctor.hosts import bucket, consistency, headroom, slices
from lemur_ray.doctor.hosts.grouped_findings import by_reason, few
from lemur_ray.doctor.hosts.host_facts import HostFacts
from lemur_ray.doctor.machine import Check
from lemur_ray.storage.bucket_access import AccessFailure


def checks(
    hosts: Sequence[HostFacts],
    silent: Mapping[str, str],
    free_cpus: float,
    lock: Mapping[str, str],
    store: str = "",
    tried: Mapping[str, Mapping[str, AccessFailure | None]] | None = None,
    most_cpus: float = 0.0,
) -> list[Check]:
    """All checks of a cluster, in the order to print them, from the facts of its hosts; only the one whether hosts
    answer if none did. ``silent``: host -> why it did not answer. ``free_cpus``: of the cluster now; ``most_cpus``:
    upper limit of an autoscaling cluster, else 0. ``lock``: package -> version; empty to compare with most hosts.
    ``store``: URL of a bucket that the hosts tried, or empty; ``tried``: results, see ``bucket.access``."""
    answered = _hosts(hosts, silent)
    if not hosts:
        return [answered]
    return [
        answered,
        consistency.python(hosts),
        consistency.project(hosts),
        consistency.packages(hosts, lock),
        consistency.clocks(hosts),
        *slices.slices(hosts),
        headroom.disks(hosts),
        headroom.object_stores(hosts),
        headroom.cores_for_data(hosts, free_cpus, most_cpus),
        *([bucket.access(store, tried or {})] if store else []),
    ]


def _hosts(hosts: Sequence[HostFacts], silent: Mapping[str, str]) -> Check:
    detail = f"{len(hosts)}: {few([host.name + (' (head)' if host.is_head else '') for host in hosts], 8)}"
    if not silent:
        return Check("hosts", "ok", detail, required=True)
    fix = "ray list nodes   # then read raylet.out in the logs of that host, or take it out of the cluster"
    return Check(
        "hosts", "missing", f"{len(silent)} of {len(hosts) + len(silent)} do not answer: {by_reason(silent)}", fix, True
    )
