"""Rules for pods of every kind of document: access to the node, images, volumes, the bucket, placeholders."""

import json
import re
from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any

from cluster.checking.clusters import CLUSTER_OF, pinned_ray
from cluster.checking.documents import Document
from cluster.checking.groups import Group
from cluster.checking.pods import pods_of, runs_code_of_models, select
from cluster.checking.rules import Breach

PLACEHOLDERS = ("your-bucket", "your-project")
IDENTITY = "iam.gke.io/gcp-service-account"
"""Annotation of a ServiceAccount with its Google service account (workload identity)."""
POWERFUL = {"ALL", "SYS_ADMIN", "SYS_PTRACE", "SYS_MODULE", "NET_ADMIN", "DAC_READ_SEARCH"}
IMAGES = {"cpu": ("cpu", "env", "ds1000"), "gpu": ("gpu",), "tpu": ("tpu",)}
"""Accelerator of a worker -> images of the project that it can run."""
NODE_FOLDER = "/var/lib/kubelet/seccomp"
"""The one folder of the node that a pod of this project writes (around/seccomp.yaml)."""
CREDENTIALS = {"AWS_WEB_IDENTITY_TOKEN_FILE", "AWS_ACCESS_KEY_ID", "GOOGLE_APPLICATION_CREDENTIALS"}
"""Variables that give access to a bucket without workload identity."""
ALL = "containers|initContainers.*"
FORBIDDEN: tuple[tuple[str, str, Callable[[Any], bool]], ...] = (
    ("host-access", "hostNetwork", bool), ("host-access", "hostPID", bool), ("host-access", "hostIPC", bool),
    ("host-access", "volumes.*.hostPath.path", lambda path: path != NODE_FOLDER),
    ("host-access", f"{ALL}.ports.*.hostPort", bool),
    ("host-access", f"{ALL}.securityContext.capabilities.add.*", POWERFUL.__contains__),
    ("token", f"{ALL}.env.*", lambda e: e.get("name") == "RAY_AUTH_MODE" and e.get("value") != "token"),
)  # fmt: skip
"""(rule, path in the spec of a pod, predicate that is true for a forbidden value)."""
_BUCKET = re.compile(r"\b(?:gs|s3)://([a-z0-9][\w.-]*)")
_RAY_IN_TAG = re.compile(r"\bray[-:_]?v?(\d+\.\d+\.\d+)")


def breaches(document: Document, documents: Sequence[Document], context: Sequence[Document]) -> Iterator[Breach]:
    """Yield a Breach for each rule of this module that ``document`` breaks; see ``check.ACROSS_DOCUMENTS``."""
    pods = pods_of(document)
    yield from _of_placeholders(document)
    for pod in pods:
        yield from _of_node(pod)
        yield from _of_volumes(pod)
    if document.kind in CLUSTER_OF:
        trusted = [pod for pod in pods if not runs_code_of_models(document, pod)]
        yield from _of_builds(pods, {pod.env.get("LEMUR_STORE", "") for pod in trusted})
        accounts = {(d.namespace, d.name): d for d in (*context, *documents) if d.kind == "ServiceAccount"}
        for pod in trusted:
            account = accounts.get((document.namespace, str(pod.pod.get("serviceAccountName", ""))))
            yield from _of_bucket(pod, account)


def _of_placeholders(document: Document) -> Iterator[Breach]:
    text = json.dumps(document.value).lower()
    left = [word for word in PLACEHOLDERS if word in text]
    if left and (set(_BUCKET.findall(text)) - {"your-bucket"} or not document.is_template):
        yield Breach("placeholder", f"{', '.join(left)} is left in: put your own name there")


def _of_builds(pods: Sequence[Group], stores: Set[str]) -> Iterator[Breach]:
    builds = {pod.image[1]: pod.name for pod in pods if pod.image[0] and ":" not in pod.image[1]}
    if len(builds) > 1:
        each = ", ".join(f"{name} has {build}" for build, name in builds.items())
        yield Breach("image-build", f"images of several builds ({each}): take one for all")
    if len(stores) > 1:
        yield Breach("store", f"LEMUR_STORE is not the same in all pods: {', '.join(map(repr, sorted(stores)))}")
    for pod in pods:
        kind, fitting = pod.image[0], IMAGES[pod.accelerator]
        if kind and kind not in fitting:
            others = " or ".join(f"lemur-ray-{name}" for name in fitting)
            yield pod.breach("image-role", f"image lemur-ray-{kind} in a pod with {pod.accelerator}: take {others}")
        tagged = _RAY_IN_TAG.search(str(pod.container.get("image", "")))
        if tagged and tagged[1] != pinned_ray():
            yield pod.breach("ray-version", f"image with Ray {tagged[1]}: requirements.lock has {pinned_ray()}")


def _of_node(pod: Group) -> Iterator[Breach]:
    for rule, path, is_wrong in FORBIDDEN:
        for place, value in select(pod.pod, path):
            if is_wrong(value):
                yield pod.breach(rule, f"{place} is {value}: take it out")


def _of_volumes(pod: Group) -> Iterator[Breach]:
    volumes = {str(name) for _, name in select(pod.pod, "volumes.*.name")}
    mounts = {str(name) for _, name in select(pod.pod, f"{ALL}.volumeMounts.*.name")}
    for name in sorted(mounts - volumes):
        yield pod.breach("mount", f"volumeMounts names {name}: the volumes are {', '.join(sorted(volumes)) or 'none'}")
    for name in sorted(volumes - mounts):
        yield pod.breach("mount", f"volume {name} is mounted in no container")
    for _, container in select(pod.pod, ALL):
        names = [entry.get("name") for entry in container.get("env") or ()]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield pod.breach("duplicate", f"variable {name} is set {names.count(name)} times")
        ports = {port.get("name") for port in container.get("ports") or ()}
        for place, port in select(container, "readinessProbe|livenessProbe|startupProbe.httpGet.port"):
            if isinstance(port, str) and port not in ports:
                yield pod.breach("port", f"{place} {port}: no port of the container has this name")


def _of_bucket(pod: Group, account: Document | None) -> Iterator[Breach]:
    annotations = (account.value.get("metadata") or {}).get("annotations") or {} if account else {}
    if account and IDENTITY not in annotations and not CREDENTIALS & pod.env.keys():
        yield pod.breach("bucket-access", f"ServiceAccount {account.name} has no annotation {IDENTITY}")
