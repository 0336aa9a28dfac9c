"""Every rule of cluster/check.py has a document that was right but for one thing, and is caught by that rule alone."""

from __future__ import annotations

import pytest

from cluster import check
from cluster.checking.documents import Unreadable, parsed
from cluster.checking.rules import RULES
from cluster.checking.schemas import Schemas
from tests.cluster.changes import (
    BOX,
    CPU,
    EVAL,
    GPUS,
    HEAD,
    INSTRUCT,
    JOB_WORKER,
    LIMITS,
    MULTI,
    POD,
    PRETRAIN,
    QUEUE_LABEL,
    SERVE,
    SERVED,
    SIDES,
    V4,
    V5E,
    WORKER,
    Change,
    changed,
    documents,
    found,
    of_env,
    put,
    replaced,
)
from tests.cluster.test_broken_manifests import BROKEN

WRONG: list[tuple[str, str, Change, str]] = [
    ("name", CPU, put("metadata/name", "a" * 54), "at most 53"),
    ("name", V4, put("metadata/name", "a-cluster-of-sixteen-chips"), "at most 24"),
    ("name", PRETRAIN, put("metadata/name", "Pretrain"), "a letter first"),
    ("ray-version", V4, put("spec/rayVersion", "2.59.0"), "requirements.lock has 2."),
    ("token", V4, put("spec/authOptions", "-"), "authOptions"),
    ("head-takes-work", V4, put("spec/headGroupSpec/rayStartParams", {}), 'set "0"'),
    ("head-size", V4, put(f"{HEAD}/containers/0/resources", {
        side: {"cpu": "1", "memory": "8Gi"} for side in ("limits", "requests")}), "cpu 1"),
    ("head-spot", V4, put(f"{HEAD}/nodeSelector", {"cloud.google.com/gke-spot": "true"}), "spot capacity"),
    ("head-spot", V4, put(f"{HEAD}/affinity", "-"), "require nodeAffinity"),
    ("head-spot", V4, put(
        f"{HEAD}/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution/nodeSelectorTerms/0",
        {"matchExpressions": [{"key": "cloud.google.com/gke-spot", "operator": "Exists"}]}), "require nodeAffinity"),
    ("room", V5E, lambda d: [put(f"{BOX}/resources/{side}/cpu", "200")(d) for side in SIDES], "192Gi, of which 110"),
    ("room", V5E, lambda d: [put(f"{BOX}/resources/{side}/memory", "350Gi")(d) for side in SIDES], "memory 350Gi"),
    ("room", V4, lambda d: [put(f"{BOX}/resources/{side}/cpu", "239")(d) for side in SIDES], "407Gi, of which 238"),
    ("room", GPUS, lambda d: [put(f"{BOX}/resources/{side}/cpu", "208")(d) for side in SIDES], "208 and 1872Gi, of"),
    ("replicas", CPU, put(f"{WORKER}/replicas", 17), "replicas 17 is not between minReplicas 0 and maxReplicas 16"),
    ("tpu-scaling", MULTI, lambda d: (put(f"{WORKER}/minReplicas", 0)(d), put("spec/enableInTreeAutoscaling", True)(d)),
     "0 to 2 slices"),
    ("restart-policy", CPU, put(f"{POD}/restartPolicy", "Always"), "restartPolicy is Always"),
    ("quantity", CPU, lambda d: [put(f"{BOX}/resources/{side}/memory", "40GB")(d) for side in SIDES],
     "'40GB'"),
    ("requests", V4, put(f"{BOX}/resources/requests/google.com~tpu", "2"), "2 requested, limit 4"),
    ("requests", CPU, put(f"{LIMITS}/memory", "64Gi"), "memory 32Gi requested, limit 64Gi"),
    ("image", CPU, put(f"{BOX}/image", "host.example:5000/lemur-ray-cpu:latest"), "no version"),
    ("image", CPU, put(f"{BOX}/image", "host.example:5000/lemur-ray-cpu"), "no version"),
    ("grace", CPU, put(f"{POD}/terminationGracePeriodSeconds", 30), "grace must be longer"),
    ("notice", CPU, of_env(f"{BOX}/env", "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S", None), "is 30"),
    ("toleration", CPU, put(f"{POD}/tolerations", []), "without a toleration"),
    ("topology", V4, put(f"{WORKER}/numOfHosts", 3), "numOfHosts 3 with google.com/tpu 4 cannot hold topology 2x2x4"),
    ("topology", MULTI, put(f"{POD}/nodeSelector/cloud.google.com~gke-tpu-topology", "4x5"), "4x5"),
    ("topology", V4, put(f"{POD}/nodeSelector/cloud.google.com~gke-tpu-accelerator", "tpu-v4"), "expected one of"),
    ("topology", V4, put(f"{POD}/nodeSelector/cloud.google.com~gke-tpu-topology", "-"), "topology None"),
    ("worker-ids", V4, of_env(f"{BOX}/env", "TPU_WORKER_ID", "0"), "TPU_WORKER_ID alike on every host"),
    ("jax-platforms", V4, of_env(f"{BOX}/env", "JAX_PLATFORMS", "cpu"), "set tpu,cpu"),
    ("root", CPU, put(f"{POD}/securityContext/runAsNonRoot", False), "as root"),
    ("root", CPU, put(f"{BOX}/securityContext", {"privileged": True}), "as root"),
    ("service-account", CPU, put(f"{POD}/serviceAccountName", "-"), "set lemur"),
    ("key-file", CPU, of_env(f"{BOX}/env", "GOOGLE_APPLICATION_CREDENTIALS", "/key.json"), "names a key"),
    ("health", CPU, of_env(f"{HEAD}/containers/0/env", "RAY_health_check_timeout_ms", None), "after 66 s"),
    ("health", CPU, of_env(f"{HEAD}/containers/0/env", "RAY_health_check_period_ms", "1s"), "expected whole numbers"),
    ("submission-mode", PRETRAIN, put("spec/submissionMode", "K8JobMode"), "K8sJobMode"),
    ("held", PRETRAIN, put("spec/shutdownAfterJobFinishes", False), "hosts are kept"),
    ("held", PRETRAIN, put("spec/ttlSecondsAfterFinished", "-"), "ttlSecondsAfterFinished"),
    ("no-end", PRETRAIN, put("spec/activeDeadlineSeconds", "-"), "activeDeadlineSeconds not set"),
    ("submitted-again", PRETRAIN, put("spec/submitterConfig", "-"), "submits again"),
    ("entrypoint", PRETRAIN, replaced("entrypoint", "lemur-70b ", "lemur-71b "), "lemur-71b"),
    ("entrypoint", PRETRAIN, replaced("entrypoint", "--corpus", "--corups"), "--corups"),
    ("entrypoint", EVAL, replaced("entrypoint", "table5", "table55"), "table55"),
    ("entrypoint", PRETRAIN, replaced("entrypoint", "jobs/pretrain.py", "jobs/train.py"), "there is no jobs/train.py"),
    ("entrypoint", PRETRAIN, put("spec/entrypoint", "bash -c 'pip install x'"), "expected python jobs/NAME.py"),
    ("entrypoint", PRETRAIN, replaced("entrypoint", "--out", "--train.rows-per-step 1000 --out"), "1000 rows does not"),
    ("packages", INSTRUCT, replaced("entrypoint", "--encoder hashing:1024", ""), "no sentence-transformers"),
    ("out", PRETRAIN, replaced("entrypoint", "gs://your-bucket/runs", "/home/ray/runs"), "name a bucket"),
    ("out", PRETRAIN, replaced("entrypoint", "gs://your-bucket/runs", "s3://your-bucket/runs"), "checkpoints are"),
    ("run-and-cluster", PRETRAIN, lambda d: [
        put(f"{JOB_WORKER}/{bound}", 2)(d) for bound in ("minReplicas", "replicas", "maxReplicas")],
     "wants 64 host(s) of 4x8x8, the cluster has 128"),
    ("run-and-cluster", PRETRAIN, replaced("entrypoint", "--out", "--mesh.topology 4x4x16 --out"), "4x4x16"),
    ("run-and-cluster", SERVE, replaced("serveConfigV2", "--replicas 2", "--replicas 3"), "want 3 host(s)"),
    ("run-and-cluster", SERVE, replaced("serveConfigV2", "tensor-parallel 8", "tensor-parallel 4"), "parallel 4"),
    ("cpu-for-data", PRETRAIN, lambda d: [
        put(f"{JOB_WORKER}/template/spec/containers/0/resources/{s}/cpu", "1")(d) for s in ("limits", "requests")],
     "give it 2 or more"),
    ("serve-application", SERVE, replaced("serveConfigV2", "application:build", "application:builder"), "is not there"),
    ("serve-application", SERVE, replaced("serveConfigV2", "--engine.dtype", "--engine.dtyp"), "--engine.dtyp"),
    ("serve-application", SERVE, replaced("serveConfigV2", "gs://your-bucket/runs/", ""), "name one in a bucket"),
    ("serve-application", SERVE, put("spec/serveConfigV2", "applications: []"), "names no applications"),
    ("serve-application", SERVE, put("spec/serveConfigV2", "applications: ["), "serveConfigV2 is no YAML"),
    ("serve-environment", SERVE, of_env(f"{SERVED}/template/spec/containers/0/env", "RAY_SERVE_PROXY_USE_GRPC", None),
     "RAY_SERVE_PROXY_USE_GRPC"),
    ("upgrade", SERVE, put("spec/upgradeStrategy", "-"), "NewCluster"),
    ("queue", PRETRAIN, put(QUEUE_LABEL, "lemurs"), "the queues are lemur"),
    ("quota", PRETRAIN, lambda d: [
        put(f"{JOB_WORKER}/template/spec/containers/0/resources/{s}/cpu", "201")(d) for s in ("limits", "requests")],
     "slices: cpu 12864, memory 22400Gi"),
    ("quota", GPUS, put("metadata/labels", {"kueue.x-k8s.io/queue-name": "lemur"}), "nvidia.com/gpu not in covered"),
    ("flavor", "around/kueue", put("3/spec/resourceGroups/0/flavors/0/name", "cpus"), "flavor cpus"),
    ("queue", "around/kueue", put("4/spec/clusterQueue", "lemurs"), "clusterQueue lemurs"),
    ("policy-dns", "around/netpol", put("0/spec/egress", [{"ports": [{"port": 443}]}]), "port 53"),
    ("metric", "around/podmonitor", put("1/spec/groups/0/rules/0/expr", "lemur_queue > 3"), "lemur_queue in"),
    ("metric", "around/podmonitor", put("1/spec/groups/0/rules/0/expr", "ray_node_cpus < 3"), "ray_node_cpus in"),
]  # fmt: skip


@pytest.mark.parametrize(("rule", "name", "change", "says"), WRONG, ids=[f"{w[0]}-{at}" for at, w in enumerate(WRONG)])
def test_a_document_that_is_wrong_in_one_thing_is_caught_by_its_rule(
    rule: str, name: str, change: Change, says: str
) -> None:
    queues = [] if name.startswith("around/") else documents("around/kueue")
    breaches = found([*changed(name, change), *queues])
    assert [breach.sentence for breach in breaches if breach.rule == rule and says in breach.sentence], breaches
    others = {
        "head-spot": {"toleration", "notice"}, "run-and-cluster": {"quota"}, "image": {"image-build"},
        "key-file": {"bucket-access"}, "queue": {"held"},
    }  # fmt: skip
    assert {breach.rule for breach in breaches} - {rule} <= others.get(rule, set()), breaches


def test_every_rule_has_a_wrong_document() -> None:
    assert {rule for rule, *_ in [*WRONG, *BROKEN]} == set(RULES) - {"same-out"}, "which needs two documents"


def test_what_is_no_object_of_kubernetes_is_refused_with_its_place() -> None:
    with pytest.raises(Unreadable, match=r"a\.yaml is no YAML: .*line 2"):
        parsed("a: [", "a.yaml")
    with pytest.raises(Unreadable, match=r"a\.yaml holds list .*expected objects"):
        parsed("[1, 2]", "a.yaml")


@pytest.mark.parametrize(
    ("name", "change", "error"),
    [
        (CPU, put(f"{WORKER}/minReplicas", "none"), "'none'"),
        (V4, put(f"{WORKER}/numOfHosts", "4x"), "'4x'"),
        (V4, put(f"{POD}/terminationGracePeriodSeconds", "2m"), "'2m'"),
        (V4, put("spec", ["x"]), "attribute"),
        (V4, put("metadata", "lemur"), "name ''"),
    ],
)
def test_a_field_of_another_type_ends_its_own_document_and_no_other(name: str, change: Change, error: str) -> None:
    wrong, _ = check.check([*changed(name, change), *changed(CPU, put("spec/authOptions", "-"))], Schemas(None))
    assert any(error in sentence and name in sentence for sentence in wrong), wrong
    assert any("authOptions.mode is not token" in sentence for sentence in wrong), wrong
