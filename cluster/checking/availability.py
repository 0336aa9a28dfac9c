"""Rules for served models, which must survive a lost head, node or drain, and for retries and ends of jobs."""

import re
import shlex
from collections.abc import Iterator, Sequence
from urllib.parse import urlsplit

from cluster.checking import entrypoints
from cluster.checking.clusters import cluster_of
from cluster.checking.documents import Document
from cluster.checking.groups import SPOT
from cluster.checking.pods import matches, pods_of, select
from cluster.checking.rules import Breach
from lemur_ray.host.exit_codes import ExitCode

KEY = "LEMUR_API_KEY"
RETRIED_BY, KUBERAY = "LEMUR_RETRIED_BY", "kuberay"
_FLAG = re.compile(r"--(policy-key-env|policy|out)[ =](\S+)")


def breaches(document: Document, documents: Sequence[Document], context: Sequence[Document]) -> Iterator[Breach]:
    """Yield a Breach for each rule of this module that ``document`` breaks; see ``check.ACROSS_DOCUMENTS``."""
    everything = [*documents, *context]
    match document.kind:
        case "RayService":
            yield from _of_service(document, everything)
        case "RayJob":
            yield from _of_job(document, everything)
            out = _flags(document).get("out", "")
            first = next(d.name for d in documents if d.kind == "RayJob" and _flags(d).get("out", "") == out)
            if out and first != document.name:
                yield Breach("same-out", f"--out {out} is also that of RayJob {first}: give each its own")
        case "Job":
            yield from _of_kubernetes_job(document)
        case "PodDisruptionBudget":
            yield from _of_budget(document, everything)


def _flags(document: Document) -> dict[str, str]:
    """Flags of ``_FLAG`` in the entrypoint of a RayJob."""
    return dict(_FLAG.findall(str((document.value.get("spec") or {}).get("entrypoint", ""))))


def _of_service(document: Document, everything: Sequence[Document]) -> Iterator[Breach]:
    cluster, pods = cluster_of(document) or {}, pods_of(document)
    for pod in pods:
        if KEY not in pod.env:
            yield pod.breach("open-model", f"{KEY} is not set: set it from a secret")
        if not pod.pod.get("priorityClassName"):
            yield pod.breach("availability", "priorityClassName is not set: jobs could take its place")
    if not cluster.get("gcsFaultToleranceOptions"):
        yield Breach("availability", "gcsFaultToleranceOptions is not set: a lost head ends every replica")
    if all(pod.selector.get(SPOT) == "true" for pod in pods[1:]):
        yield Breach("availability", "every group of workers is on spot capacity: keep one replica on nodes that stay")
    budgets = [d for d in everything if d.kind == "PodDisruptionBudget" and d.namespace == document.namespace]
    selectors = [selector for budget in budgets for _, selector in select(budget.value, "spec.selector")]
    workers = pods[1:]
    if not any(matches(selector, pod.labels) for selector in selectors for pod in workers):
        yield Breach("availability", "no PodDisruptionBudget selects its workers: a drain takes all replicas at once")


def _of_budget(document: Document, everything: Sequence[Document]) -> Iterator[Breach]:
    spec = document.value.get("spec") or {}
    near = [d for d in everything if d.namespace == document.namespace and cluster_of(d)]
    pods = [pod for one in near for pod in pods_of(one)]
    hosts = sum(pod.num_hosts for pod in pods if matches(spec.get("selector") or {}, pod.labels))
    least, most = spec.get("minAvailable"), spec.get("maxUnavailable")
    if hosts and (most in (0, "0%") or least == "100%" or (isinstance(least, int) and least >= hosts)):
        yield Breach("budget", f"minAvailable {least}, maxUnavailable {most} of {hosts} pods: no node can be drained")
    if not least and (most == "100%" or (isinstance(most, int) and most >= hosts > 0)):
        yield Breach("budget", f"minAvailable {least}, maxUnavailable {most} of {hosts} pods: all may go at once")


def _of_kubernetes_job(document: Document) -> Iterator[Breach]:
    """A Kubernetes Job that runs a job of the project must not retry exit codes that need a person."""
    command = [
        word for pod in pods_of(document) for key in ("command", "args") for word in pod.container.get(key) or ()
    ]
    if not any(word.startswith("jobs/") for word in command):
        return
    yield from entrypoints.breaches(shlex.join(["python", *command[1:]]), None)
    rules = [rule for _, rule in select(document.value, "spec.podFailurePolicy.rules.*") if rule["action"] == "FailJob"]
    codes = {code for rule in rules for _, code in select(rule, "onExitCodes.values.*")}
    if codes != (final := {int(code) for code in ExitCode if code and code.is_final}):
        yield Breach("retries", f"podFailurePolicy: FailJob on exit codes {sorted(codes)}: expected {sorted(final)}")


def _of_job(document: Document, everything: Sequence[Document]) -> Iterator[Breach]:
    spec, pods = document.value.get("spec") or {}, pods_of(document)
    head: dict[str, str] = pods[0].env if pods else {}
    if pods and (limit := spec.get("backoffLimit")) and head.get(RETRIED_BY) != KUBERAY:
        yield Breach("retries", f"head: {RETRIED_BY} is not {KUBERAY}: a typing error starts {limit} more clusters")
    if (most := spec.get("activeDeadlineSeconds")) and most <= spec.get("preRunningDeadlineSeconds", 0):
        yield Breach("no-end", f"activeDeadlineSeconds {most} is over before preRunningDeadlineSeconds")
    if spec.get("suspend") and "kueue.x-k8s.io/queue-name" not in (document.value["metadata"].get("labels") or {}):
        yield Breach("held", "suspend is true and no queue will change it: the job never begins")
    flags = _flags(document)
    if pods and (variable := flags.get("policy-key-env")) and variable not in head:
        yield Breach("key-variable", f"head: --policy-key-env {variable} is not among its variables")
    host = urlsplit(flags.get("policy", "").removeprefix("openai:")).hostname or ""
    services = {f"{d.name}-serve-svc" for d in everything if d.kind == "RayService"}
    services |= {d.name for d in everything if d.kind == "Service"}
    if host and "." not in host and host not in services:
        yield Breach("endpoint", f"--policy: there is no service {host} (there: {', '.join(sorted(services))})")
