"""Manifests broken in many ways, each with the message that catches it, and harmless changes of users."""

from __future__ import annotations

from typing import Any

import pytest

from cluster.checking.documents import Document, parsed
from cluster.checking.rules import RULES
from tests.cluster.changes import (
    BOX,
    CPU,
    EVAL,
    GPUS,
    HEAD,
    INSTRUCT,
    POD,
    PRETRAIN,
    SERVE,
    SERVED,
    V4,
    Change,
    all_of,
    changed,
    documents,
    edited,
    found,
    of_env,
    put,
    replaced,
    text_of,
)  # fmt: skip

JOB_HEAD = "spec/rayClusterSpec/headGroupSpec/template/spec"
JOB_POD = "spec/rayClusterSpec/workerGroupSpecs/0/template/spec"
JOB_LABELS = "spec/rayClusterSpec/workerGroupSpecs/0/template/metadata/labels"
SERVE_HEAD = "spec/rayClusterConfig/headGroupSpec/template/spec"
SERVE_POD = f"{SERVED}/template/spec"
ROOT_OF_NODE = [{"name": "node", "hostPath": {"path": "/"}}]
NETPOL, BUDGET, MONITOR = "around/netpol", "around/serving", "around/podmonitor"
PREFLIGHT = "job-preflight"
ACCOUNTS, SECCOMP = "around/serviceaccount", "around/seccomp"


def mounted(name: str) -> list[dict[str, str]]:
    return [{"name": name, "mountPath": "/mnt/data"}]


def env_from(secret: str) -> dict[str, Any]:
    return {"name": "KEY", "valueFrom": {"secretKeyRef": {"name": secret, "key": "key"}}}


def appended(path: str, value: Any) -> Change:
    """Append to a list, which is made where it is absent."""
    *way, last = [int(step) if step.isdigit() else step for step in path.split("/")]

    def change(document: dict[str, Any]) -> None:
        at: Any = document
        for step in way:
            at = at[step]
        at[last] = [*at.get(last, []), value]

    return change


BROKEN: list[tuple[str, str, Change, str]] = [
    # The issue's own: names that nobody makes
    ("reference", SERVE, appended(f"{SERVE_POD}/containers/0/env", env_from("lemur-key")), "no Secret lemur-key"),
    ("reference", V4, put(f"{POD}/serviceAccountName", "lemurs"), "no ServiceAccount lemurs (there: lemur, lemur-envs"),
    ("reference", PRETRAIN, put("metadata/namespace", "lemurs"), "no Namespace lemurs"),
    ("open-model", SERVE, of_env(f"{SERVE_HEAD}/containers/0/env", "LEMUR_API_KEY", None), "head: LEMUR_API_KEY is no"),
    ("open-model", SERVE, of_env(f"{SERVE_POD}/containers/0/env", "LEMUR_API_KEY", None), "steady: LEMUR_API_KEY"),
    ("image-role", V4, put(f"{BOX}/image", "lemur-ray-cpu:0.1.0"), "lemur-ray-cpu in a pod with tpu: take lemur-ray-t"),
    ("ray-version", CPU, put(f"{BOX}/image", "acme/lemur-ray-cpu:0.1.0-ray2.59.0"), "image with Ray 2.59."),
    ("image-build", PRETRAIN, put(f"{JOB_POD}/containers/0/image", "lemur-ray-tpu:0.2.0"), "head has 0.1.0, slices ha"),
    ("isolation", EVAL, put(f"{JOB_LABELS}/lemur~group", "env"), "lets it reach 169.254.169.254"),
    ("host-access", CPU, all_of(put(f"{POD}/hostNetwork", True), put(f"{POD}/volumes", ROOT_OF_NODE)), "hostNetwork i"),
    ("host-access", CPU, put(f"{POD}/volumes", ROOT_OF_NODE), "volumes.0.hostPath.path is /"),
    ("mount", CPU, put(f"{BOX}/volumeMounts", mounted("data")), "volumeMounts names data: the volumes are none"),
    ("bucket-access", ACCOUNTS, put("1/metadata/annotations", {}), "ServiceAccount lemur has no annotation"),
    ("placeholder", PRETRAIN, replaced("entrypoint", "gs://your-bucket/runs", "gs://acme/runs"), "your-bucket is left"),
    # References
    ("reference", EVAL, put(f"{JOB_HEAD}/volumes/0", {"name": "data", "persistentVolumeClaim": {"claimName": "d"}}),
     "no PersistentVolumeClaim d"),
    ("reference", CPU, appended(f"{BOX}/envFrom", {"configMapRef": {"name": "settings"}}), "no ConfigMap settings"),
    ("reference", CPU, put(f"{POD}/imagePullSecrets", [{"name": "registry"}]), "no Secret registry"),
    ("reference", SERVE, put(f"{SERVE_POD}/priorityClassName", "high"), "no PriorityClass high (there: lemur-serve)"),
    ("reference", MONITOR, put("0/spec/podMetricsEndpoints/1/authorization/credentials", {"name": "k", "key": "k"}),
     "no Secret k"),
    ("reference", SECCOMP, put("1/spec/template/spec/volumes/0/configMap/name", "profile"), "no ConfigMap profile"),
    ("reference", ACCOUNTS, put("2/metadata/name", "lemur-env"), "no ServiceAccount lemur-envs"),
    ("reference", SERVE, put("metadata/namespace", "-"), "metadata.namespace is not set"),
    ("reference", SERVE, put("spec/rayClusterConfig/gcsFaultToleranceOptions", {"redisAddress": "redis:6379",
        "redisPassword": {"valueFrom": {"secretKeyRef": {"name": "redis", "key": "p"}}}}), "no Secret redis"),
    ("duplicate", ACCOUNTS, put("2/metadata/name", "lemur"), "there are 2 of this kind and name"),
    ("duplicate", CPU, appended(f"{BOX}/env", {"name": "LEMUR_STORE", "value": "gs://your-bucket/other"}),
     "variable LEMUR_STORE is set 2 times"),
    # Labels, policies, budgets
    ("selector", BUDGET, put("1/spec/selector/matchLabels/lemur~group", "served"), "selects no pod in namespace lemur"),
    ("selector", NETPOL, put("1/spec/podSelector/matchLabels/lemur~group", "environments"), "selects no pod"),
    ("selector", MONITOR, put("0/spec/selector/matchExpressions/0/key", "ray.io/clusters"), "selects no pod"),
    ("network", NETPOL, put("0/spec/podSelector/matchExpressions/0/operator", "DoesNotExist"),
     "no NetworkPolicy of the namespace selects its labels"),
    ("network", NETPOL, put("0/spec/ingress/1/from", []), "lets everything in"),
    ("budget", BUDGET, put("1/spec/minAvailable", 2), "minAvailable 2, maxUnavailable None of 2 pods: no node can"),
    ("budget", BUDGET, all_of(put("1/spec/minAvailable", "-"), put("1/spec/maxUnavailable", 2)), "all may go at once"),
    ("budget", BUDGET, all_of(put("1/spec/minAvailable", "-"), put("1/spec/maxUnavailable", 0)), "no node can be drai"),
    # Environments
    ("isolation", NETPOL, appended("1/spec/egress", {"to": [{"ipBlock": {"cidr": "169.254.0.0/16"}}]}), "169.254.169."),
    ("isolation", NETPOL, appended("1/spec/egress", {}), "lets it reach 169.254.169.254"),
    ("isolation", NETPOL, put("1/spec/egress/0/ports", []), "every port of other pods"),
    ("isolation", NETPOL, put("1/spec/policyTypes", ["Ingress"]), "limits its egress"),
    ("isolation", EVAL, appended(f"{JOB_POD}/containers/0/env", env_from("lemur-api-key")), "a key that the code coul"),
    ("isolation", EVAL, put(f"{JOB_POD}/serviceAccountName", "lemur"), "serviceAccountName is that of the head"),
    ("isolation", EVAL, put(f"{JOB_POD}/automountServiceAccountToken", "-"), "automountServiceAccountToken is not set"),
    ("isolation", EVAL, put(f"{JOB_POD}/securityContext/seccompProfile", {"type": "Unconfined"}), "set Localhost or"),
    ("isolation", EVAL, put(f"{JOB_POD}/containers/0/securityContext/allowPrivilegeEscalation", True), "is True: set"),
    ("isolation", EVAL, put(f"{JOB_POD}/containers/0/securityContext/capabilities", {"drop": []}), "set ['ALL']"),
    ("host-access", EVAL, put(f"{JOB_POD}/containers/0/securityContext/capabilities/add", ["SYS_ADMIN"]), "SYS_ADMIN"),
    ("host-access", V4, put(f"{POD}/hostPID", True), "hostPID is True"),
    ("host-access", V4, put(f"{BOX}/ports", [{"containerPort": 8265, "hostPort": 8265}]), "hostPort is 8265"),
    # Images, volumes, variables, probes
    ("image-role", GPUS, put(f"{BOX}/image", "lemur-ray-tpu:0.1.0"), "lemur-ray-tpu in a pod with gpu: take lemur-ray"),
    ("image-role", CPU, put(f"{HEAD}/containers/0/image", "lemur-ray-tpu:0.1.0"), "head: image lemur-ray-tpu in a pod"),
    ("mount", EVAL, put(f"{JOB_HEAD}/containers/0/volumeMounts", []), "volume data is mounted in no container"),
    ("port", SERVE, put(f"{SERVE_POD}/containers/0/readinessProbe/httpGet/port", "serving"), "serving: no port of the"),
    ("store", PRETRAIN, of_env(f"{JOB_POD}/containers/0/env", "LEMUR_STORE", "gs://your-bucket/shop"), "not the same"),
    ("token", CPU, appended(f"{BOX}/env", {"name": "RAY_AUTH_MODE", "value": "disabled"}), "RAY_AUTH_MODE"),
    # Jobs
    ("retries", PRETRAIN, of_env(f"{JOB_HEAD}/containers/0/env", "LEMUR_RETRIED_BY", None), "starts 50 more clusters"),
    ("retries", PREFLIGHT, put("spec/podFailurePolicy", "-"), "FailJob on exit codes []: expected [1, 2, 79]"),
    ("retries", PREFLIGHT, put("spec/podFailurePolicy/rules/0/onExitCodes/values", [1]), "FailJob on exit codes [1]"),
    ("entrypoint", PREFLIGHT, put("spec/template/spec/containers/0/command/2", "lemur-71b"), "lemur-71b"),
    ("no-end", PRETRAIN, put("spec/activeDeadlineSeconds", 3600), "is over before preRunningDeadlineSeconds"),
    ("held", CPU, lambda d: d.update(documents_with_suspended_job()), "suspend is true"),
    ("key-variable", EVAL, replaced("entrypoint", "LEMUR_API_KEY", "LEMUR_KEY"), "--policy-key-env LEMUR_KEY"),
    ("endpoint", EVAL, replaced("entrypoint", "lemur-serve-svc", "lemur-service"), "there is no service lemur-service"),
    # Serving
    ("availability", SERVE, put("spec/rayClusterConfig/gcsFaultToleranceOptions", "-"), "gcsFaultToleranceOptions is"),
    ("availability", SERVE, put(f"{SERVE_POD}/priorityClassName", "-"), "steady: priorityClassName is not set"),
    ("availability", SERVE, put(f"{SERVE_POD}/nodeSelector/cloud.google.com~gke-spot", "true"), "every group of"),
    ("availability", SERVE, all_of(put(f"{SERVED}/template/metadata/labels", {}),
        put("spec/rayClusterConfig/workerGroupSpecs/1/template/metadata/labels", {})), "no PodDisruptionBudget select"),
]  # fmt: skip


def documents_with_suspended_job() -> dict[str, Any]:
    """The corpus job, suspended and in no queue."""
    job = dict(changed("rayjob-corpus", put("spec/suspend", True))[0].value)
    return {**job, "metadata": {"name": "corpus", "namespace": "lemur"}}


@pytest.mark.parametrize(
    ("rule", "name", "change", "says"), BROKEN, ids=[f"{w[0]}-{at}" for at, w in enumerate(BROKEN)]
)
def test_a_broken_document_is_caught_with_its_harm(rule: str, name: str, change: Change, says: str) -> None:
    beside = [EVAL, SERVE] if name.startswith("around/") else ["around/kueue"]  # what refers to it, or queues it
    breaches = found([*changed(name, change), *(document for other in beside for document in documents(other))])
    caught = [breach for breach in breaches if breach.rule == rule and says in str(breach)]
    assert caught, [str(breach) for breach in breaches]
    assert RULES[rule] in str(caught[0])


def test_two_jobs_of_one_run_folder_are_caught() -> None:
    second = changed(PRETRAIN, put("metadata/name", "pretrain-2"))
    [breach] = [b for b in found([*documents(PRETRAIN), *second]) if b.rule == "same-out"]
    assert "--out gs://your-bucket/runs/lemur-70b is also that of RayJob pretrain" in str(breach)


MINE = ("your-bucket", "acme-lemur")
SPOT = '              cloud.google.com/gke-spot: "true"\n'
TOLERATION = '              - {key: cloud.google.com/gke-spot, operator: Equal, value: "true", effect: NoSchedule}\n'
OF_HEAD = '- {name: RAY_health_check_failure_threshold, value: "6"}\n'
WANDB = "              - {name: WANDB_API_KEY, valueFrom: {secretKeyRef: {name: wandb, key: key}}}\n"
SECRET = "{{apiVersion: v1, kind: Secret, metadata: {{name: {name}, namespace: {namespace}}}, stringData: {{key: x}}}}"
VARIATIONS: dict[str, list[Document]] = {
    "another bucket": edited(PRETRAIN, MINE),
    "images of a registry": edited(SERVE, MINE, ("image: lemur-ray", "image: images.acme.example/ml/lemur-ray")),
    "images by digest": edited(CPU, MINE, ("lemur-ray-cpu:0.1.0", f"lemur-ray-cpu@sha256:{'ab' * 32}")),
    "own names of images": edited(V4, MINE, ("lemur-ray-cpu:0.1.0", "acme/a:1.2"), ("lemur-ray-tpu:0.1.0", "acme/b:7")),
    "hosts on demand": edited(PRETRAIN, MINE, (SPOT, ""), (TOLERATION, "")),
    "all replicas on demand": edited(SERVE, MINE, (SPOT, ""), (TOLERATION, "")),
    "no retries": edited("rayjob-corpus", MINE, ("backoffLimit: 5 ", "backoffLimit: 0 "), (
        "name: LEMUR_RETRIED_BY", "name: UNUSED")),
    "another name": edited(INSTRUCT, MINE, ("name: instruct", "name: tune-2"), ("runs/lemur-70b-chat", "runs/chat-2")),
    "no queue": edited(PRETRAIN, MINE, ("  labels: {kueue.x-k8s.io/queue-name: lemur}\n", "")),
    "an endpoint of somebody else": edited(EVAL, MINE, ("http://lemur-serve-svc:8000/v1", "https://api.acme.org/v1")),
    "a secret of their own": [
        *edited(CPU, MINE, (OF_HEAD, f"{OF_HEAD}{WANDB}")),
        *parsed(SECRET.format(name="wandb", namespace="lemur"), "mine"),
    ],
    "a namespace of their own": [*parsed(SECRET.format(name="lemur-api-key", namespace="team"), "mine"), *(
        document for name in (CPU, ACCOUNTS, NETPOL, EVAL, SERVE, BUDGET, SECCOMP) for document in edited(
            name, *[pair for pair in (MINE, ("your-project", "acme")) if pair[0] in text_of(name)],
            *([("name: lemur\n---", "name: team\n---")] if name == ACCOUNTS else []), 
            ("namespace: lemur", "namespace: team"))
    )],
    "resources of their own": edited(CPU, MINE, ("maxReplicas: 16", "maxReplicas: 4"), ('cpu: "8"', 'cpu: "12"')),
    "a shorter job": edited(PRETRAIN, MINE, ("2592000", "172800"), ("backoffLimit: 50", "backoffLimit: 3")),
}  # fmt: skip


@pytest.mark.parametrize("variation", VARIATIONS)
def test_a_harmless_change_is_not_refused(variation: str) -> None:
    assert [str(breach) for breach in found(VARIATIONS[variation])] == []
