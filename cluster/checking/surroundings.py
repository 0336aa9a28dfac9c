"""Rules across documents: queues and their quotas, and metrics of dashboards and alerts."""

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from cluster.checking import groups
from cluster.checking.clusters import cluster_of
from cluster.checking.documents import Document
from cluster.checking.groups import Group, quantity
from cluster.checking.rules import Breach

QUEUE = "kueue.x-k8s.io/queue-name"
OF_RAY = frozenset((
    "ray_actors", "ray_node_cpu_count", "ray_node_cpu_utilization", "ray_node_disk_free", "ray_node_mem_total",
    "ray_node_mem_used", "ray_object_store_memory", "ray_serve_deployment_replica_healthy",
    "ray_serve_deployment_error_counter", "ray_tasks", "ray_train_controller_state",
    "ray_train_report_total_blocked_time_s", "ray_train_worker_group_start_total_time_s",
))  # fmt: skip
"""Ray's metrics that the dashboard and alerts use."""
_METRIC = re.compile(r"\b(?:lemur|ray)_(?!io_)\w+")


def breaches(document: Document, documents: Sequence[Document], context: Sequence[Document]) -> Iterator[Breach]:
    """Yield a Breach for each rule of this module that ``document`` breaks; see ``check.ACROSS_DOCUMENTS``."""
    queues, cluster_queues, flavors = (_named(documents, k) for k in ("LocalQueue", "ClusterQueue", "ResourceFlavor"))
    spec = document.value.get("spec") or {}
    queue = dict((document.value.get("metadata") or {}).get("labels") or {}).get(QUEUE)
    if queues and queue and queue not in queues:
        yield Breach("queue", f"{QUEUE} {queue}: the queues are {', '.join(sorted(queues))}")
    elif queues and queue and (cluster := cluster_of(document)):
        behind = cluster_queues.get((queues[queue].value.get("spec") or {}).get("clusterQueue", ""))
        yield from _of_quotas(cluster, behind, flavors) if behind else ()
    if document.kind == "LocalQueue" and (name := spec.get("clusterQueue")) not in cluster_queues:
        yield Breach("queue", f"clusterQueue {name}: expected {', '.join(sorted(cluster_queues)) or 'one'}")
    if document.kind == "ClusterQueue":
        for name in sorted(_flavors_of(spec) - flavors.keys()):
            yield Breach("flavor", f"flavor {name}: expected one of {', '.join(sorted(flavors)) or 'none'}")
    if document.kind in ("PrometheusRule", "Dashboard"):
        yield from _of_metrics(document.value)


def _named(documents: Sequence[Document], kind: str) -> dict[str, Document]:
    """Name -> document, for all documents of a kind."""
    return {document.name: document for document in documents if document.kind == kind}


def _of_quotas(cluster: Mapping[str, Any], queue: Document, flavors: Mapping[str, Document]) -> Iterator[Breach]:
    """A Breach for each group of a cluster's spec that the queue's quotas could not admit, even with no other job in
    it. flavors: by name."""
    taken: Counter[tuple[str, str]] = Counter()
    parts = queue.value["spec"].get("resourceGroups") or ()
    labels_of = {name: (one.value.get("spec") or {}).get("nodeLabels") or {} for name, one in flavors.items()}
    for group in groups.groups(cluster):
        requested = {resource: group.num_hosts * group.amount(resource) for resource in group.limits}
        failures = [_shortage(part, requested, group, labels_of, taken) for part in parts]
        covered = {name for part in parts for name in part["coveredResources"]}
        if missing := sorted(requested.keys() - covered):
            yield Breach("quota", f"{group.name}: {', '.join(missing)} not in coveredResources of {queue.name}")
        for short in filter(None, failures):
            yield Breach("quota", f"{group.name}: {short} of {queue.name} has so much for it")


def _shortage(
    part: Mapping[str, Any],
    requested: Mapping[str, float],
    group: Group,
    labels_of: Mapping[str, Mapping[str, str]],
    taken: Counter[tuple[str, str]],
) -> str:
    """Add a group's requests to ``taken`` for the first flavor with enough quota; returns an error fragment, or ""."""
    wanted = {name: requested[name] for name in part["coveredResources"] if requested.get(name)}
    for flavor in part["flavors"] if wanted else ():
        labels = labels_of.get(flavor["name"], {})
        if any(group.selector.get(key, value) != value for key, value in labels.items()):
            continue
        quota = {one["name"]: quantity(str(one["nominalQuota"])) or 0.0 for one in flavor["resources"]}
        if all(taken[flavor["name"], name] + size <= quota.get(name, 0.0) for name, size in wanted.items()):
            taken.update({(flavor["name"], name): size for name, size in wanted.items()})
            return ""
    return f"{', '.join(f'{name} {_size_text(size)}' for name, size in wanted.items())}: no flavor" if wanted else ""


def _size_text(size: float) -> str:
    return f"{size / 2**30:g}Gi" if size >= 2**30 else f"{size:g}"


def board(text: str, where: str) -> Document:
    """A Grafana dashboard as a document of kind Dashboard. Raises ValueError if it is not JSON."""
    value = json.loads(text)
    return Document(where, {"kind": "Dashboard", "metadata": {"name": value.get("title", "")}, "spec": value})


def _flavors_of(spec: Mapping[str, Any]) -> set[str]:
    return {str(f["name"]) for group in spec.get("resourceGroups") or () for f in group.get("flavors") or ()}


def _of_metrics(value: Mapping[str, Any]) -> Iterator[Breach]:
    for expression in _expressions(value):
        for name in _METRIC.findall(expression):
            if re.sub(r"_(total|bucket|count|sum)$", "", name) not in exported() | OF_RAY and name not in OF_RAY:
                yield Breach("metric", f"{name} in {expression!r}: neither serving nor Ray exports it")


def _expressions(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        if isinstance(value.get("expr"), str):
            yield value["expr"]
        for inner in value.values():
            yield from _expressions(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _expressions(inner)


class _NoEngine:
    """An engine whose counters are all 0, to list the names of the metrics."""

    num_slots = context = num_devices = warmup_s = padded = 0

    @property
    def stats(self) -> "_NoEngine":
        return self

    @property
    def finished(self) -> dict[str, int]:
        return {"stop": 0}

    def __getattr__(self, name: str) -> int:
        return 0


@cache
def exported() -> frozenset[str]:
    """Names of the metrics that a server exports, without Prometheus' suffixes."""
    from lemur_ray.serve.http.metrics import Metrics

    engine: Any = _NoEngine()
    names = re.findall(r"^# TYPE (\w+)", Metrics(engine).render(), re.MULTILINE)
    return frozenset(name.removesuffix("_total") for name in names)
