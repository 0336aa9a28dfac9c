"""Rules for pods in which environments execute code that a model wrote, and for network policies."""

import ipaddress
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cluster.checking.clusters import CLUSTER_OF
from cluster.checking.documents import Document
from cluster.checking.groups import Group
from cluster.checking.pods import matches, pods_of, runs_code_of_models, select
from cluster.checking.rules import Breach

METADATA_SERVER = ipaddress.ip_address("169.254.169.254")
REQUIRED: tuple[tuple[str, list[Any]], ...] = (
    ("automountServiceAccountToken", [False]),
    ("securityContext.seccompProfile.type", ["Localhost", "RuntimeDefault"]),
    ("containers.*.securityContext.allowPrivilegeEscalation", [False]),
    ("containers.*.securityContext.capabilities.drop", [["ALL"]]),
)
"""(path in the spec of such a pod, permitted values)."""
SECRETS = (
    "containers|initContainers.*.env.*.valueFrom.secretKeyRef", "containers|initContainers.*.envFrom.*.secretRef",
    "volumes.*.secret", "volumes.*.projected.sources.*.secret",
)  # fmt: skip
_DNS = 53


def breaches(document: Document, documents: Sequence[Document], context: Sequence[Document]) -> Iterator[Breach]:
    """Yield a Breach for each rule of this module that ``document`` breaks; see ``check.ACROSS_DOCUMENTS``."""
    if document.kind == "NetworkPolicy":
        yield from _of_policy(document.value.get("spec") or {})
    if document.kind not in CLUSTER_OF:
        return
    policies = (d for d in (*documents, *context) if d.kind == "NetworkPolicy" and d.namespace == document.namespace)
    own, pods = [policy.value.get("spec") or {} for policy in policies], pods_of(document)
    for pod in pods:
        selecting = [policy for policy in own if matches(policy.get("podSelector") or {}, pod.labels)]
        if runs_code_of_models(document, pod):
            yield from _of_environment(pod, pods, selecting)
        elif own and not any("Ingress" in (policy.get("policyTypes") or ["Ingress"]) for policy in selecting):
            yield pod.breach("network", "no NetworkPolicy of the namespace selects its labels: everything reaches it")


def _of_environment(pod: Group, pods: Sequence[Group], selecting: Sequence[Any]) -> Iterator[Breach]:
    for path, permitted in REQUIRED:
        values = [value for _, value in select(pod.pod, path)]
        if not values or any(value not in permitted for value in values):
            wanted = " or ".join(map(str, permitted))
            yield pod.breach("isolation", f"{path} is {values[0] if values else 'not set'}: set {wanted}")
    for path in SECRETS:
        for place, _ in select(pod.pod, path):
            yield pod.breach("isolation", f"{place}: a key that the code could read: take it out")
    if pod.pod.get("serviceAccountName") in [one.pod.get("serviceAccountName") for one in pods if one is not pod]:
        yield pod.breach("isolation", "serviceAccountName is that of the head: set one that reaches no bucket")
    limits = [policy.get("egress") or () for policy in selecting if "Egress" in (policy.get("policyTypes") or ())]
    if not limits:
        yield pod.breach("isolation", "no NetworkPolicy selects its labels and limits its egress")
    for rule in (rule for rules in limits for rule in rules):
        if _reaches_metadata_server(rule):
            yield pod.breach("isolation", f"a NetworkPolicy that selects it lets it reach {METADATA_SERVER}")
        elif any("podSelector" in peer for peer in rule.get("to") or ()) and not rule.get("ports"):
            yield pod.breach("isolation", "a NetworkPolicy that selects it lets it reach every port of other pods")


def _reaches_metadata_server(rule: Mapping[str, Any]) -> bool:
    """Whether an egress rule permits HTTP to the metadata server."""
    if rule.get("ports") and not any(port.get("port") in (None, 80, 988) for port in rule["ports"]):
        return False
    blocks = [block for _, block in select(rule, "to.*.ipBlock")]
    inside = [
        METADATA_SERVER in ipaddress.ip_network(block["cidr"])
        and not any(METADATA_SERVER in ipaddress.ip_network(gap) for gap in block.get("except") or ())
        for block in blocks
    ]
    return not rule.get("to") or any(inside)


def _of_policy(spec: Mapping[str, Any]) -> Iterator[Breach]:
    for rule in spec.get("ingress") or ():
        if not rule.get("from"):
            yield Breach("network", "an ingress rule without `from` lets everything in: name namespaces or pods")
    if "Egress" not in (spec.get("policyTypes") or ()):
        return
    ports = [port.get("port") for rule in spec.get("egress") or () for port in rule.get("ports") or ({"port": _DNS},)]
    if spec.get("egress") and _DNS not in ports:
        yield Breach("policy-dns", "egress is allowed, but not to port 53: allow UDP and TCP 53 to the cluster's DNS")
