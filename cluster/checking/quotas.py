"""Whether a queue of Kueue could ever admit a cluster whole: the quotas of its flavors against what the groups ask for.

What else stands in the queue is left out: a job that fits alone may still wait.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cluster.checking import groups
from cluster.checking.documents import Document
from cluster.checking.groups import Group, quantity
from cluster.checking.rules import Breach


def breaches(cluster: Mapping[str, Any], queue: Document, flavors: Mapping[str, Document]) -> Iterator[Breach]:
    """queue: a ClusterQueue. flavors: those of the documents, by name; of others nobody here knows the labels."""
    taken: Counter[tuple[str, str]] = Counter()
    parts = queue.value["spec"].get("resourceGroups") or ()
    labels_of = {name: (one.value.get("spec") or {}).get("nodeLabels") or {} for name, one in flavors.items()}
    for group in groups.groups(cluster):
        asked = {resource: group.num_hosts * group.amount(resource) for resource in group.limits}
        open_to = [_of(part, asked, group, labels_of, taken) for part in parts]
        covered = {name for part in parts for name in part["coveredResources"]}
        if missing := sorted(asked.keys() - covered):
            yield Breach("quota", f"{group.name}: {', '.join(missing)} not in coveredResources of {queue.name}")
        for short in filter(None, open_to):
            yield Breach("quota", f"{group.name}: {short} of {queue.name} has so much for it")


def _of(
    part: Mapping[str, Any],
    asked: Mapping[str, float],
    group: Group,
    labels_of: Mapping[str, Mapping[str, str]],
    taken: Counter[tuple[str, str]],
) -> str:
    """Takes what a group asks of the first flavor that has it; a part of a sentence where none has."""
    wanted = {name: asked[name] for name in part["coveredResources"] if asked.get(name)}
    for flavor in part["flavors"] if wanted else ():
        labels = labels_of.get(flavor["name"], {})
        if any(group.selector.get(key, value) != value for key, value in labels.items()):
            continue
        quota = {one["name"]: quantity(str(one["nominalQuota"])) or 0.0 for one in flavor["resources"]}
        if all(taken[flavor["name"], name] + size <= quota.get(name, 0.0) for name, size in wanted.items()):
            taken.update({(flavor["name"], name): size for name, size in wanted.items()})
            return ""
    return f"{', '.join(f'{name} {_said(size)}' for name, size in wanted.items())}: no flavor" if wanted else ""


def _said(size: float) -> str:
    return f"{size / 2**30:g}Gi" if size >= 2**30 else f"{size:g}"


def named(documents: Sequence[Document], kind: str) -> dict[str, Document]:
    """Documents of a kind by their names."""
    return {document.name: document for document in documents if document.kind == kind}
