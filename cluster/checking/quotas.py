"""Checks that the quotas of a Kueue queue could admit a cluster as a whole.

Other jobs in the queue are ignored: a job that fits alone may still wait.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cluster.checking import groups
from cluster.checking.documents import Document
from cluster.checking.groups import Group, quantity
from cluster.checking.rules import Breach


def breaches(cluster: Mapping[str, Any], queue: Document, flavors: Mapping[str, Document]) -> Iterator[Breach]:
    """Yield a Breach for each group in a cluster's spec that the queue's quotas cannot admit. flavors: by name."""
    taken: Counter[tuple[str, str]] = Counter()
    parts = queue.value["spec"].get("resourceGroups") or ()
    labels_of = {name: (one.value.get("spec") or {}).get("nodeLabels") or {} for name, one in flavors.items()}
    for group in groups.groups(cluster):
        requested = {resource: group.num_hosts * group.amount(resource) for resource in group.limits}
        failures = [_of(part, requested, group, labels_of, taken) for part in parts]
        covered = {name for part in parts for name in part["coveredResources"]}
        if missing := sorted(requested.keys() - covered):
            yield Breach("quota", f"{group.name}: {', '.join(missing)} not in coveredResources of {queue.name}")
        for short in filter(None, failures):
            yield Breach("quota", f"{group.name}: {short} of {queue.name} has so much for it")


def _of(
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


def named(documents: Sequence[Document], kind: str) -> dict[str, Document]:
    """Name -> document, for all documents of a kind."""
    return {document.name: document for document in documents if document.kind == kind}
