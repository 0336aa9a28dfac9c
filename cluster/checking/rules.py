"""The rules by name, and how a breach of one is said. Each was wrong in a document that a schema accepted."""

from __future__ import annotations

from dataclasses import dataclass

RULES = {
    "name": "operators add to names, and a pod whose name is cut is not found by the others",
    "ray-version": "head and workers of another Ray than the image's do not join",
    "token": "whoever reaches the dashboard runs code",
    "head-takes-work": "a task on the head takes memory from what keeps the cluster together",
    "head-size": "the driver of a job runs on the head",
    "head-spot": "when the head goes, the job goes",
    "replicas": "a number of replicas outside of its bounds is cut in silence",
    "tpu-scaling": "half a slice, or one more, is of no use to a run and is paid for",
    "restart-policy": "autoscaler v2 counts pods; a container that restarts in one is a node it does not know",
    "quantity": "GB is no unit of Kubernetes",
    "requests": "what is asked for and what is allowed must be one number, or hosts are shared by accident",
    "image": "an image without a version is another one tomorrow",
    "grace": "a worker that is ended before its notice is over saves nothing",
    "notice": "a pod on spot capacity needs the notice",
    "toleration": "spot nodes refuse pods that do not say that they bear them",
    "topology": "chips, hosts and topology of a slice are one fact told three times",
    "worker-ids": "hosts of a slice with one number wait for each other for ever",
    "room": "a pod that asks for more than any host has waits for ever",
    "jax-platforms": "without it a worker that finds no TPU trains on its CPU",
    "root": "code that models write runs here",
    "service-account": "the default account reaches no bucket, or every one",
    "key-file": "a key in a file is copied, and never ends",
    "health": "the defaults notice a lost host after a minute",
    "submission-mode": "any word is accepted and means the default",
    "held": "a slice is paid for until somebody takes it back",
    "no-end": "a job without bounds of its own runs, or waits, for ever",
    "submitted-again": "a failed job is submitted once more under a name that is taken",
    "entrypoint": "a command that its job refuses is noticed when the slice is there",
    "packages": "what an image lacks is missed when the slice is there, and again on every new cluster",
    "out": "what is written to a pod is gone with it",
    "run-and-cluster": "a run that wants other hosts than there are waits for ever",
    "cpu-for-data": "with no CPU left on the hosts Ray Data waits without a word",
    "serve-application": "an application that cannot be imported is noticed when the slice is there",
    "serve-environment": "Serve's controller reads its settings when it starts",
    "upgrade": "an upgrade by a second cluster needs every chip twice",
    "queue": "a queue nobody knows never admits",
    "quota": "what is more than the queue will ever have is never admitted",
    "flavor": "a flavor nobody knows has no quota",
    "policy-dns": "a pod that may speak to nobody finds nobody's name either",
    "metric": "a panel of a metric that nobody exports is empty, and an alert of one never rings",
}
"""Name of a rule -> why."""


@dataclass(frozen=True)
class Breach:
    """A rule that a document breaks."""

    rule: str
    sentence: str
    """What was found, what was expected."""

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise KeyError(self.rule)

    def __str__(self) -> str:
        return f"{self.sentence} [{self.rule}: {RULES[self.rule]}]"
