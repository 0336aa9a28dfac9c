"""Devices, memory and cores that a training asks of a cluster before it begins."""

from __future__ import annotations

import dataclasses

import pytest

from lemur_ray.config import Recipe
from lemur_ray.doctor.devices import Devices, cluster_devices
from lemur_ray.recipes import get_recipe
from lemur_ray.train.job_arguments import TrainingJob, parse_job
from lemur_ray.train.pod.chips import GIB
from lemur_ray.train.pod.memory import state_bytes
from lemur_ray.train.run import needs

LAPTOP = Devices(cpus=2, memory_bytes=16 * GIB)
EIGHT_GPUS = Devices(cpus=64, gpus=8, gpu_bytes=8 * 80 * GIB, memory_bytes=512 * GIB)


def of_mesh(name: str, **mesh: object) -> Recipe:
    recipe = get_recipe(name)
    plain = {"use_tpu": False, "topology": "", "accelerator_type": "", "num_workers": 1, "fsdp": -1, "tp": 1}
    return dataclasses.replace(recipe, mesh=dataclasses.replace(recipe.mesh, **{**plain, **mesh}))


def test_what_does_not_fit_is_said_with_numbers_and_flags() -> None:
    with pytest.raises(ValueError, match=r"100\.4 GiB, this machine has 16\.0 GiB to give: .*--lora\.rank"):
        needs.check_memory(of_mesh("llama2-7b"), LAPTOP)
    with pytest.raises(ValueError, match=r"100\.4 GiB on each of 1 GPUs with 73\.6 GiB for jax: take at least 2 "):
        needs.check_memory(of_mesh("llama2-7b", use_gpu=True), EIGHT_GPUS)
    needs.check_memory(of_mesh("llama2-7b", use_gpu=True, num_workers=8), EIGHT_GPUS)
    on_tpu = {"use_tpu": True, "accelerator_type": "TPU-V4"}
    with pytest.raises(ValueError, match=r"257\.0 GiB on each of 4 chips with 32\.0 GiB: take at least 33 chips"):
        needs.check_memory(of_mesh("llama2-70b", **on_tpu, topology="2x2x1"), LAPTOP)


def test_flags_that_are_told_are_flags_that_pass() -> None:
    with pytest.raises(ValueError, match="or use the GPUs: --mesh") as refused:
        needs.check_devices(get_recipe("llama2-7b"), EIGHT_GPUS)
    flags = str(refused.value).partition("or use the GPUs: ")[2].split()
    job = parse_job(TrainingJob, ["llama2-7b", *flags], prog="pretrain.py")
    needs.check_recipe(job.recipe)
    needs.check_devices(job.recipe, EIGHT_GPUS)
    needs.check_memory(job.recipe, EIGHT_GPUS)


def test_adapters_need_the_frozen_base_alone() -> None:
    recipe = get_recipe("lemur-7b-chat")
    tuned = dataclasses.replace(recipe, lora=dataclasses.replace(recipe.lora, rank=8))
    assert state_bytes(tuned) == 2 * recipe.model.num_params
    assert state_bytes(recipe) == 16 * recipe.model.num_params


def test_a_cluster_that_grows_counts_as_it_may_become() -> None:
    assert cluster_devices({"CPU": 8.0}, None).tpus == 0
    grown = cluster_devices({"CPU": 8.0}, {"CPU": 512, "TPU": 256})
    assert (grown.cpus, grown.tpus) == (512, 256)
    needs.check_devices(get_recipe("lemur-70b"), grown)


@pytest.mark.parametrize(
    ("labels", "most", "fits"),
    [
        (["4x4x4"] * 16, None, True),
        (["4x4x4"] * 12, {"TPU": 64}, True),
        (["4x4x4"] * 12 + ["2x2x4"] * 4, None, False),
        (["2x4x4"] * 16, None, False),
        ([], None, True),
    ],
)
def test_slices_of_another_topology_are_refused_before_ray_waits_for_the_right_ones_for_ever(
    labels: list[str], most: dict[str, float] | None, fits: bool
) -> None:
    nodes = [{"Alive": True, "Labels": {"ray.io/tpu-topology": label}} for label in labels]
    nodes += [{"Alive": True, "Labels": {}}, {"Alive": False}]
    found = cluster_devices({"CPU": 99.0, "TPU": 4.0 * len(labels) if most else 64.0}, most, nodes)
    if fits:
        needs.check_devices(get_recipe("llama2-7b"), found)
        return
    there = r"12 of topology 4x4x4" if "4x4x4" in labels else "16 of topology 2x4x4"
    with pytest.raises(
        ValueError, match=rf"it takes 16 hosts of topology 4x4x4 .* has .*{there}.*: give --mesh.topology"
    ):
        needs.check_devices(get_recipe("llama2-7b"), found)


def test_an_elastic_run_begins_with_the_least_that_it_goes_on_with() -> None:
    recipe = get_recipe("lemur-7b-chat")
    elastic = dataclasses.replace(recipe, mesh=dataclasses.replace(recipe.mesh, num_workers=8, dcn=2, min_workers=4))
    needs.check_devices(elastic, Devices(cpus=8, tpus=16))
    with pytest.raises(ValueError, match="it takes 16 TPU chips"):
        needs.check_devices(elastic, Devices(cpus=8, tpus=12))


def test_a_run_that_would_leave_no_core_for_ray_data_is_refused_with_what_would_do() -> None:
    nano = get_recipe("nano")
    with pytest.raises(ValueError, match=r"waits for ever without 0\.1; .* 1 CPU .*--mesh\.cpus-per-worker 0\.9$"):
        needs.check_devices(nano, Devices(cpus=1))
    needs.check_devices(of_mesh("nano", cpus_per_worker=0.9), Devices(cpus=1))
    two_of_one_core = of_mesh("nano", num_workers=2)
    with pytest.raises(ValueError, match=r"2 worker\(s\) with 1 each leave 0 CPU .*--mesh\.cpus-per-worker 0\.95$"):
        needs.check_devices(two_of_one_core, Devices(cpus=2, in_cluster=True))
    needs.check_devices(two_of_one_core, Devices(cpus=3, in_cluster=True))
    with pytest.raises(ValueError, match=r"2 worker\(s\) with 1 each"):  # an elastic run takes as many as there are
        needs.check_devices(of_mesh("nano", num_workers=4, min_workers=1), Devices(cpus=2, in_cluster=True))
    with pytest.raises(ValueError, match="hosts with two cores each"):
        needs.check_devices(get_recipe("lemur-7b-chat"), Devices(cpus=4, tpus=16, in_cluster=True))
