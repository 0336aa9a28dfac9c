"""What a configuration of Serve names deploys the same as the job, and refuses what only the job can do."""

from __future__ import annotations

import pytest

from lemur_ray.serve.config import ServeJob
from lemur_ray.serve.http.api_key import key_digest
from lemur_ray.serve.on_ray import application, deployments

COMMAND = "--model gs://bucket/runs/chat --name chat --num-cpus 2 --hosts.topology 2x4 --hosts.accelerator-type TPU-V6E"


def test_the_flags_of_the_job_become_the_deployment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployments.ray, "nodes", list)
    monkeypatch.setenv("LEMUR_API_KEY", "secret")
    found = application.build({"command": f"{COMMAND} --engine.tensor-parallel 8 --engine.max-slots 8 --replicas 2"})
    deployment = found._bound_deployment
    spec, served, reserved, record, template, digest = deployment.init_args
    assert (spec, served.name, served.engine.max_slots, template) == ("gs://bucket/runs/chat", "chat", 8, "")
    assert record
    assert digest == key_digest("secret")
    assert reserved.bundles == [{"CPU": 2, "TPU": 8}]
    assert deployment.ray_actor_options["label_selector"] == {"ray.io/tpu-pod-type": "v6e-8"}
    assert (deployment.name, deployment.num_replicas) == (deployments.DRAINED, 2)
    assert deployment.max_ongoing_requests == 8 + 256 + 64


def test_a_cluster_with_gpus_is_asked_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    node = {"Alive": True, "Resources": {"CPU": 8.0, "GPU": 4.0}, "Labels": {}}
    monkeypatch.setattr(deployments.ray, "nodes", lambda: [node])
    for platform, asked in (("", 4), ("cpu", 0)):
        monkeypatch.setenv("JAX_PLATFORMS", platform)
        found = application.build({"command": "--model gs://bucket/runs/chat --engine.tensor-parallel 4"})
        assert found._bound_deployment.ray_actor_options.get("num_gpus", 0) == asked


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ({}, "args are empty: expected command"),
        ({"model": "x", "command": ""}, "args are command, model: expected command"),
        ({"command": ""}, "names no --model"),
        ({"command": "--model gs://b/m --port 80"}, "has port: where it listens is Serve's"),
        ({"command": "--model gs://b/m --no-ray"}, "has no_ray"),
        ({"command": "--modle gs://b/m"}, "refused by jobs/serve.py"),
    ],
)
def test_what_only_the_job_can_do_is_refused_in_a_sentence(args: dict[str, str], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        application.job_of(args)


def test_vllm_gets_the_key_and_the_options_of_a_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployments, "vllm_app", lambda *args: args)
    monkeypatch.setattr(deployments.ray, "nodes", list)
    job = ServeJob(model="random:nano", backend="vllm", replicas=2)
    _, folder, digest, options = deployments.application_of(job, job.model, b"digest")
    assert (folder, digest) == (job.model, b"digest")
    assert (options["name"], options["num_replicas"]) == (deployments.DRAINED, 2)
    assert options["request_router_config"].request_router_class == deployments.ROUTER
