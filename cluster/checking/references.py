"""Rules for names in one document that another one must define, and for labels that must select a pod.

Each rule is a row of a table: the path of a name or a selector. An object exists if a document defines it, or a
``kubectl create`` command in the documents or the README makes it.
"""

import re
from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, NamedTuple

from cluster.checking.clusters import cluster_of
from cluster.checking.documents import Document
from cluster.checking.groups import Group
from cluster.checking.pods import matches, pods_of, select
from cluster.checking.rules import Breach

IN_PODS = (
    ("ServiceAccount", "serviceAccountName"), ("PriorityClass", "priorityClassName"),
    ("Secret", "containers|initContainers.*.env.*.valueFrom.secretKeyRef"),
    ("Secret", "containers|initContainers.*.envFrom.*.secretRef"),
    ("Secret", "volumes.*.secret"), ("Secret", "imagePullSecrets.*.name"),
    ("Secret", "volumes.*.projected.sources.*.secret"),
    ("ConfigMap", "containers|initContainers.*.env.*.valueFrom.configMapKeyRef"),
    ("ConfigMap", "containers|initContainers.*.envFrom.*.configMapRef"),
    ("ConfigMap", "volumes.*.configMap"), ("PersistentVolumeClaim", "volumes.*.persistentVolumeClaim"),
)  # fmt: skip
"""(kind, path in the spec of a pod) of names, or of mappings with a name, of objects that must exist."""
IN_DOCUMENTS = (
    ("Secret", "spec.podMetricsEndpoints.*.authorization.credentials"), ("Namespace", "metadata.namespace"),
)  # fmt: skip
"""The same in whole documents."""
IN_CLUSTERS = (
    ("Secret", "gcsFaultToleranceOptions.redisPassword.valueFrom.secretKeyRef"),
    ("PersistentVolumeClaim", "gcsFaultToleranceOptions.storage.claimName"),
)
"""The same in the specs of Ray clusters."""
SELECTORS = (
    ("NetworkPolicy", "spec.podSelector"), ("PodDisruptionBudget", "spec.selector"), ("Service", "spec.selector"),
    ("PodMonitor", "spec.selector"),
)  # fmt: skip
"""(kind, path) of the selectors that must select a pod of their namespace."""
OF_NO_NAMESPACE = ("Namespace", "PriorityClass", "ClusterQueue", "ResourceFlavor", "Dashboard", "ClusterRole")
OF_EVERY_CLUSTER = {("Namespace", name) for name in ("default", "kube-system", "kuberay-system", "monitoring")} | {
    ("PriorityClass", name) for name in ("system-cluster-critical", "system-node-critical")
}
_CREATED = re.compile(
    r"kubectl (?:-n (?P<namespace>\S+) )?create (?P<kind>secret|configmap|serviceaccount|namespace|priorityclass)"
    r"(?: generic| tls| docker-registry)? (?P<name>[a-z0-9][\w.-]*)"
)
_KINDS = {
    "secret": "Secret", "configmap": "ConfigMap", "serviceaccount": "ServiceAccount", "namespace": "Namespace",
    "priorityclass": "PriorityClass",
}  # fmt: skip


class Name(NamedTuple):
    """Identity of an object; objects of no namespace have an empty one."""

    kind: str
    namespace: str
    name: str


def name_of(document: Document) -> Name:
    return Name(document.kind, "" if document.kind in OF_NO_NAMESPACE else document.namespace, document.name)


def created_by_commands(text: str) -> list[Document]:
    """Objects that ``kubectl create`` commands in a text make; only kind, name and namespace are set."""
    return [
        Document("", {"kind": _KINDS[one["kind"]], "metadata": {k: one[k] for k in ("name", "namespace") if one[k]}})
        for one in _CREATED.finditer(text)
    ]


def breaches(document: Document, documents: Sequence[Document], context: Sequence[Document]) -> Iterator[Breach]:
    """Yield a Breach for each rule of this module that ``document`` breaks; see ``check.ACROSS_DOCUMENTS``."""
    everything = [*documents, *context]
    times = [name_of(one) for one in documents if one.name].count(name_of(document))
    if times > 1:
        yield Breach("duplicate", f"there are {times} of this kind and name")
    yield from _of_namespace(document)
    yield from _of_names(document, {name_of(one) for one in everything if one.name})
    near = (pod for one in everything if one.namespace == document.namespace for pod in pods_of(one))
    yield from _of_selectors(document, list(near))


def _of_namespace(document: Document) -> Iterator[Breach]:
    if document.kind not in OF_NO_NAMESPACE and "namespace" not in (document.value.get("metadata") or {}):
        yield Breach("reference", "metadata.namespace is not set: it would be made in default, away from the others")


def _of_names(document: Document, existing: Set[Name]) -> Iterator[Breach]:
    pods = [(f"{pod.name}.", pod.pod, kind, path) for pod in pods_of(document) for kind, path in IN_PODS]
    rest = [("", document.value, kind, path) for kind, path in IN_DOCUMENTS]
    rest += [("", cluster_of(document) or {}, kind, path) for kind, path in IN_CLUSTERS]
    for group, value, kind, path in [*pods, *rest]:
        for place, named in select(value, path):
            wanted = Name(kind, "" if kind in OF_NO_NAMESPACE else document.namespace, _name_in(named))
            if wanted.name and wanted not in existing and (kind, wanted.name) not in OF_EVERY_CLUSTER:
                there = ", ".join(sorted(n.name for n in existing if n[:2] == wanted[:2])) or "none"
                where = f"{group}{place}".lstrip(".")
                yield Breach("reference", f"{where}: there is no {kind} {wanted.name} (there: {there})")


def _name_in(named: Any) -> str:
    """The name in a reference, which is a text or a mapping; empty if the object may be absent."""
    if not isinstance(named, Mapping):
        return str(named)
    fields = (named.get(field) for field in ("name", "secretName", "claimName"))
    return "" if named.get("optional") else next((str(name) for name in fields if name), "")


def _of_selectors(document: Document, pods: Sequence[Group]) -> Iterator[Breach]:
    for kind, path in SELECTORS:
        for place, selector in select(document.value, path) if document.kind == kind else ():
            if selector and not any(matches(selector, pod.labels) for pod in pods):
                yield Breach("selector", f"{place} {dict(selector)} selects no pod in namespace {document.namespace}")
