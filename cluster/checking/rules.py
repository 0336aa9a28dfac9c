"""Names and reasons of all rules. Each rule caught an error in a document that a schema accepted."""

from __future__ import annotations

from dataclasses import dataclass

RULES = {
    "name": "operators add to names, and other pods cannot reach a pod whose name is cut",
    "ray-version": "head and workers of another Ray than the image's do not join",
    "token": "anyone who reaches the dashboard can run code",
    "head-takes-work": "a task on the head takes memory from the cluster's control processes",
    "head-size": "the driver of a job runs on the head",
    "head-spot": "a lost head ends the job",
    "replicas": "replicas outside of their bounds are changed silently",
    "tpu-scaling": "a partial or additional slice is of no use to a run and is paid for",
    "restart-policy": "autoscaler v2 counts pods; a container that restarts in one is a node it does not know",
    "quantity": "GB is no unit of Kubernetes",
    "requests": "requests and limits must be equal, or hosts are shared by accident",
    "image": "an image without a version may change at any time",
    "grace": "a worker that ends before its notice is over saves no checkpoint",
    "notice": "a pod on spot capacity needs the notice",
    "toleration": "spot nodes refuse pods without the toleration",
    "topology": "chips, hosts and topology of a slice must agree",
    "worker-ids": "hosts of a slice with one number wait for each other for ever",
    "room": "a pod that asks for more than any host has waits for ever",
    "jax-platforms": "without it a worker that finds no TPU trains on its CPU",
    "root": "code that models write runs here",
    "service-account": "the default account reaches no bucket, or every one",
    "key-file": "a key in a file can be copied and never expires",
    "health": "the defaults notice a lost host after a minute",
    "submission-mode": "any word is accepted and means the default",
    "held": "a slice is paid for until it is released",
    "no-end": "a job without bounds of its own runs, or waits, for ever",
    "submitted-again": "a failed job is submitted once more under a name that is taken",
    "entrypoint": "a command that its job refuses is noticed when the slice is there",
    "packages": "a package missing from an image is noticed only when the slice is there, on every new cluster",
    "out": "files written to a pod are lost with it",
    "run-and-cluster": "a run that needs other hosts than the cluster has waits for ever",
    "cpu-for-data": "without a free CPU on the hosts Ray Data waits silently",
    "serve-application": "an application that cannot be imported is noticed when the slice is there",
    "serve-environment": "Serve's controller reads its settings when it starts",
    "upgrade": "an upgrade by a second cluster needs every chip twice",
    "queue": "an unknown queue never admits a job",
    "quota": "a request above the queue's total quota is never admitted",
    "flavor": "an unknown flavor has no quota",
    "policy-dns": "a pod without egress to DNS cannot resolve names",
    "reference": "a pod that names what is not there never starts, and the slice beside it is paid for",
    "duplicate": "the last one of a name wins silently",
    "selector": "a policy, service or budget that selects no pod protects and reaches nothing",
    "placeholder": "the bucket of this name is somebody else's, or nobody's",
    "host-access": "a pod with the network, processes or files of its node can take over every pod there",
    "mount": "the API server refuses such a pod; a volume that is mounted nowhere is looked for in vain",
    "port": "a probe of a port that is not there never succeeds",
    "image-role": "jax without the libraries of its accelerator finds no device",
    "image-build": "head and workers of different code refuse each other when the slice is there",
    "store": "what one host stores the other does not find",
    "bucket-access": "the first request to the bucket is refused when the slice is there",
    "network": "whoever reaches a pod's ports can use the model, or the cluster",
    "isolation": "code that a model writes runs here: what it can read, reach or use is given away",
    "open-model": "without a key the model answers everyone who reaches its port",
    "availability": "one lost head or node, or one drain, takes the model away",
    "budget": "a budget of everything blocks every upgrade of a node; one of nothing protects nothing",
    "retries": "KubeRay retries whatever failed: a job that needs a person must stop instead",
    "same-out": "two runs in one folder: the second is refused when its slice is there",
    "key-variable": "a job without the key of its endpoint ends when its hosts are there",
    "endpoint": "a name that no service has is noticed when the hosts are there",
    "metric": "a panel of a metric that is not exported stays empty, and its alert never fires",
}
"""Rule -> reason."""


@dataclass(frozen=True)
class Breach:
    """A rule that a document breaks."""

    rule: str
    sentence: str
    """What is wrong, with the actual and the expected value."""

    def __post_init__(self) -> None:
        if self.rule not in RULES:
            raise KeyError(self.rule)

    def __str__(self) -> str:
        return f"{self.sentence} [{self.rule}: {RULES[self.rule]}]"
