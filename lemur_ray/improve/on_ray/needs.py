"""Check before an improvement run starts: devices for learner, server and episodes at the same time."""

from __future__ import annotations

import math

import ray

from lemur_ray.benchmarks.discovery import find
from lemur_ray.cluster.connection import available_devices
from lemur_ray.config import ModelConfig
from lemur_ray.improve.config import BadInput, ImproveConfig
from lemur_ray.rollout.actors.on_ray import actor_request
from lemur_ray.serve.config import ServeJob
from lemur_ray.serve.needs import device_needs
from lemur_ray.serve.planning.cluster_choice import with_devices


def check_devices(config: ImproveConfig, model: ModelConfig) -> None:
    """Raise BadInput if the connected cluster, without other jobs and grown to its limits, has too few devices for all
    replicas of ``model``, the learner and one actor that plays. Refuses only certain failures."""
    devices, use_gpu = available_devices(), config.recipe.mesh.use_gpu
    job = with_devices(ServeJob(replicas=config.replicas), lambda: model, ray.nodes())
    actor = actor_request(math.ceil(config.in_flight / config.actors), find(config.benchmark).resources)
    others = {"CPU cores": actor.cpus, "GPUs": float(use_gpu)}
    for what, (needed, available) in ({"GPUs": (0.0, devices.gpus)} | device_needs(job, devices)).items():
        if (total := needed + others.get(what, 0)) > available:
            on_cpus = ", leave --mesh.use-gpu out" if use_gpu else ", set JAX_PLATFORMS=cpu"
            raise BadInput(
                f"--replicas {config.replicas}: replicas, learner and one actor that plays take {total:.3g} {what}, "
                f"{devices}: ask for fewer replicas{on_cpus * (what == 'GPUs')}, or use a larger cluster (RAY_ADDRESS)"
            )
