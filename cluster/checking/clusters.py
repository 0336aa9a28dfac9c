"""Rules for RayCluster, RayJob and RayService manifests, and for the Ray cluster that each describes."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from cluster.checking import entrypoints, groups
from cluster.checking.documents import Document
from cluster.checking.groups import TPU, Group
from cluster.checking.rules import Breach

ROOT = Path(__file__).resolve().parents[2]
CLUSTER_OF = {"RayCluster": "", "RayJob": "rayClusterSpec", "RayService": "rayClusterConfig"}
"""Kind -> field of its spec with the spec of the Ray cluster."""
MAX_NAME = {"RayCluster": 53, "RayJob": 47, "RayService": 47}
MAX_NAME_WITH_SLICES = 24
"""Limit of the name of the headless service through which hosts of a slice find each other."""
MODES = ("K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode")
_HEALTH_S = 40.0
"""Maximum seconds until a silent host is noticed."""
_HEAD = {"cpu": 4.0, "memory": 8 * 2.0**30}


def breaches(document: Document) -> Iterator[Breach]:
    """Yield a Breach for each rule that a RayCluster, RayJob or RayService breaks; nothing for any other kind."""
    if document.kind not in CLUSTER_OF or not document.api.startswith("ray.io/"):
        return
    spec, cluster = document.value.get("spec") or {}, cluster_of(document)
    yield from _of_name(document, cluster)
    if document.kind == "RayJob":
        yield from _of_job(spec, cluster)
    if document.kind == "RayService":
        yield from _of_service(spec, cluster or {})
    if cluster:
        yield from _of_cluster(cluster)


def cluster_of(document: Document) -> Any:
    """The spec of a document's Ray cluster; None without one."""
    if document.kind not in CLUSTER_OF:
        return None
    spec, field = document.value.get("spec") or {}, CLUSTER_OF[document.kind]
    return spec.get(field) if field else spec


def _of_name(document: Document, cluster: Mapping[str, Any] | None) -> Iterator[Breach]:
    has_slices = cluster and any(TPU in group.limits for group in groups.groups(cluster))
    most = MAX_NAME_WITH_SLICES if has_slices else MAX_NAME[document.kind]
    if len(document.name) > most or not re.fullmatch(r"[a-z]([-a-z0-9]*[a-z0-9])?", document.name):
        yield Breach("name", f"name {document.name!r}: at most {most} characters of a-z, 0-9 and -, a letter first")


def _of_cluster(cluster: Mapping[str, Any]) -> Iterator[Breach]:
    if cluster.get("rayVersion") != (pinned := pinned_ray()):
        yield Breach("ray-version", f"rayVersion {cluster.get('rayVersion')}: requirements.lock has {pinned}")
    if (cluster.get("authOptions") or {}).get("mode") != "token":
        yield Breach("token", "authOptions.mode is not token")
    head, *workers = groups.groups(cluster)
    given = str((head.spec.get("rayStartParams") or {}).get("num-cpus"))
    if given != "0":
        yield Breach("head-takes-work", f'rayStartParams num-cpus of the head is {given}: set "0"')
    for resource, least in _HEAD.items():
        if head.amount(resource) < least:
            yield Breach("head-size", f"head: {resource} {head.limits.get(resource)}: give it 4 CPUs and 8Gi or more")
    yield from _of_health(head)
    scales = bool(cluster.get("enableInTreeAutoscaling"))
    v2 = scales and (cluster.get("autoscalerOptions") or {}).get("version") == "v2"
    for group in (head, *workers):
        yield from groups.breaches(group, autoscaler_v2=v2, scales=scales)


def _of_health(head: Group) -> Iterator[Breach]:
    defaults = {"period_ms": "3000", "timeout_ms": "10000", "failure_threshold": "5"}
    given = {what: head.env.get(f"RAY_health_check_{what}", value) for what, value in defaults.items()}
    if words := [f"RAY_health_check_{what} {value!r}" for what, value in given.items() if not value.isdecimal()]:
        yield Breach("health", f"{', '.join(words)}: expected whole numbers, which Ray takes no other word for")
        return
    period, timeout, failures = (float(value) for value in given.values())
    noticed_s = failures * (period + timeout) / 1000
    if noticed_s > _HEALTH_S:
        wanted = "RAY_health_check_period_ms, _timeout_ms and _failure_threshold of the head to 1000, 4000 and 6"
        yield Breach("health", f"a silent host is noticed after {noticed_s:g} s: set {wanted}")


def _of_job(spec: Mapping[str, Any], cluster: Mapping[str, Any] | None) -> Iterator[Breach]:
    if (mode := spec.get("submissionMode", MODES[0])) not in MODES:
        yield Breach("submission-mode", f"submissionMode {mode}: expected one of {', '.join(MODES)}")
    if cluster and not spec.get("shutdownAfterJobFinishes"):
        yield Breach("held", "shutdownAfterJobFinishes is not set: the hosts are kept when the job has ended")
    if cluster and "ttlSecondsAfterFinished" not in spec:
        yield Breach("held", "ttlSecondsAfterFinished is not set: say how long logs can be read before the hosts go")
    ends = ("activeDeadlineSeconds", "backoffLimit", "preRunningDeadlineSeconds")
    if missing := [field for field in ends if field not in spec]:
        yield Breach("no-end", f"{', '.join(missing)} not set: say how long it may run, wait, and how often")
    if (spec.get("submitterConfig") or {}).get("backoffLimit") != 0:
        yield Breach("submitted-again", "submitterConfig.backoffLimit is not 0: the default of 2 submits again")
    yield from entrypoints.breaches(str(spec.get("entrypoint", "")), cluster)


def _of_service(spec: Mapping[str, Any], cluster: Mapping[str, Any]) -> Iterator[Breach]:
    from lemur_ray.serve.on_ray.serve_settings import SERVE_ENV

    try:
        config = yaml.safe_load(spec.get("serveConfigV2") or "") or {}
    except yaml.YAMLError as error:
        yield Breach("serve-application", f"serveConfigV2 is no YAML: {' '.join(str(error).split())}")
        return
    for application in config.get("applications") or ():
        yield from entrypoints.breaches_of_application(application, cluster)
    if not config.get("applications"):
        yield Breach("serve-application", "serveConfigV2 names no applications")
    for group in groups.groups(cluster):
        if lacking := [name for name, value in SERVE_ENV.items() if group.env.get(name) != value]:
            yield group.breach("serve-environment", f"{', '.join(lacking)} not as lemur_ray/serve/on_ray sets it")
    has_slices = any(TPU in group.limits for group in groups.groups(cluster))
    kind = (spec.get("upgradeStrategy") or {}).get("type", "NewCluster")
    if has_slices and kind == "NewCluster":
        yield Breach("upgrade", f"upgradeStrategy.type is {kind}: set None, or NewClusterWithIncrementalUpgrade")


@cache
def pinned_ray() -> str:
    """Version of Ray in requirements.lock, installed in the images."""
    pin = re.search(r"^ray==(.+)$", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    if pin is None:
        raise ValueError("requirements.lock pins no ray")
    return pin[1]
