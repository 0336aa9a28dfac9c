"""The pods that documents of any kind describe, as Groups, and values in a document by path."""

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from cluster.checking.clusters import CLUSTER_OF, cluster_of
from cluster.checking.documents import Document
from cluster.checking.groups import Group, groups

_TEMPLATES = {
    "Pod": "", "Job": "spec.template", "Deployment": "spec.template", "DaemonSet": "spec.template",
    "StatefulSet": "spec.template", "CronJob": "spec.jobTemplate.spec.template",
}  # fmt: skip
"""Kind -> path of the pod template."""
_OF_EVALUATION = re.compile(r"\bjobs/agent_eval\.py\b")
_OF_KUBERAY = {"ray.io/is-ray-node": "yes", "ray.io/cluster": "", "ray.io/identifier": "", "ray.io/node-type": ""}


def pods_of(document: Document) -> list[Group]:
    """The kinds of pods that a document describes: of a Ray cluster the head first."""
    if cluster := cluster_of(document):
        added = {**_OF_KUBERAY, "ray.io/cluster": document.name if document.kind == "RayCluster" else ""}
        return [dataclasses.replace(group, added_labels=added) for group in groups(cluster)]
    path = _TEMPLATES.get(document.kind, "-")  # a path that no document has
    return [Group("", {"template": template}) for _, template in select(document.value, path)]


def runs_code_of_models(document: Document, group: Group) -> bool:
    """Whether code of models runs in a group: workers of an evaluation, or with an image of the environments."""
    evaluates = _OF_EVALUATION.search(str((document.value.get("spec") or {}).get("entrypoint", "")))
    is_worker = document.kind in CLUSTER_OF and not group.is_head
    return is_worker and bool(evaluates or group.image[0] in ("env", "ds1000"))


def select(value: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield (place, value) for every value at a path such as ``containers.*.env.*.name``; nothing if it is absent. A
    step ``*`` stands for every item of a list; ``a|b`` for either field."""
    step, _, rest = path.partition(".")
    if not path:
        yield "", value
    elif step == "*":
        for at, item in enumerate(value if isinstance(value, Sequence) and not isinstance(value, str) else ()):
            yield from ((f"{at}.{place}".rstrip("."), inner) for place, inner in select(item, rest))
    elif isinstance(value, Mapping):
        for field in step.split("|"):
            if value.get(field) is not None:
                yield from ((f"{field}.{place}".rstrip("."), inner) for place, inner in select(value[field], rest))


def matches(selector: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    """Whether a label selector, in either of its forms, selects a pod; an empty label value is equal to any."""

    def has(key: str, values: Sequence[str]) -> bool:
        return key in labels and (labels[key] == "" or labels[key] in values)

    plain = selector.get("matchLabels") if "matchLabels" in selector or "matchExpressions" in selector else selector
    test = {
        "In": has, "NotIn": lambda key, values: key not in labels or labels[key] not in values,
        "Exists": lambda key, values: key in labels, "DoesNotExist": lambda key, values: key not in labels,
    }  # fmt: skip
    return all(has(key, [value]) for key, value in (plain or {}).items()) and all(
        test[one["operator"]](one["key"], one.get("values") or ()) for one in selector.get("matchExpressions") or ()
    )
