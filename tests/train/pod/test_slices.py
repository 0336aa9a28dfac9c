"""Topologies, hosts and meshes: what is right is the same as Ray's and the published tables, what is wrong is said."""

import dataclasses

import pytest

from lemur_ray.config import MeshConfig, TrainConfig
from lemur_ray.config.mesh import axis_sizes
from lemur_ray.recipes import NAMES, get_recipe
from lemur_ray.train.pod.placement import check_recipe
from lemur_ray.train.pod.slices import BatchSplit, Slice, generation, parse_slice, run_shape, split_batch, worker_counts

V6E = {"use_tpu": True, "topology": "4x4", "accelerator_type": "TPU-V6E"}


@pytest.mark.parametrize(
    ("text", "hosts", "chips_per_host", "pod_type"),
    [
        ("v4:4x8x8", 64, 4, "v4-512"),
        ("v4:2x2x1", 1, 4, "v4-8"),
        ("v4:2x2x2", 2, 4, "v4-16"),
        ("v5p:4x4x8", 32, 4, "v5p-256"),
        ("v5e:4x4", 4, 4, "v5litepod-16"),
        ("v5e:2x4", 1, 8, "v5litepod-8"),
        ("v6e:2x2", 1, 4, "v6e-4"),
        ("v6e:1x1", 1, 1, "v6e-1"),
        ("v6e:16x16", 64, 4, "v6e-256"),
    ],
)
def test_a_topology_has_the_hosts_and_chips_of_the_published_tables(
    text: str, hosts: int, chips_per_host: int, pod_type: str
) -> None:
    one = parse_slice(text)
    assert (one.num_hosts, one.chips_per_host, one.pod_type) == (hosts, chips_per_host, pod_type)


def test_ray_counts_the_same_hosts_for_every_topology_it_knows() -> None:
    from ray._private.accelerators.tpu import VALID_TPU_TOPOLOGY
    from ray.util.tpu import get_tpu_worker_resources

    for name in ("v4", "v5p", "v5litepod", "v6e"):
        for topology in VALID_TPU_TOPOLOGY[name]:
            accelerator = generation(name).accelerator_type
            hosts, resources = get_tpu_worker_resources(topology, accelerator)
            one = Slice.of(accelerator, topology)
            assert (one.num_hosts, one.chips_per_host) == (hosts, resources["TPU"]), (name, topology)


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_has_a_mesh_that_its_hosts_hold(name: str) -> None:
    recipe = get_recipe(name)
    where = run_shape(recipe.mesh)
    assert split_batch(recipe.train, where).padding == 0


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        (
            {**V6E, "num_workers": 3},
            r"num_workers 3 cannot hold topology 4x4 of TPU-V6E \(16 chips, 4 per host\): use 4",
        ),
        ({**V6E, "num_workers": 6, "dcn": 2}, r"num_workers 6 cannot hold .*: use 8 \(or another multiple of 4"),
        ({**V6E, "num_workers": 8}, r"num_workers 8 is 2 slice\(s\) of .*dcn is 1: use dcn 2, or num_workers 4"),
        ({**V6E, "num_workers": 8, "dcn": 2, "min_workers": 2}, r"min_workers 2 cannot hold .*: use 4"),
        (
            {**V6E, "num_workers": 4, "fsdp": 8},
            r"does not fill the 16 devices of 4 worker\(s\) with 4 each: use fsdp 16",
        ),
        ({**V6E, "num_workers": 4, "tp": 3}, r"use dcn x tp that divides 16"),
        ({**V6E, "topology": "4x4x4"}, r"topology is '4x4x4': expected AxB chips for TPU-V6E"),
        ({**V6E, "topology": "3x3"}, r"topology is 3x3: TPU-V6E has 1x1, 2x2"),
        ({**V6E, "topology": "2x6x4", "accelerator_type": "TPU-V4"}, r"multiples of 4 along every axis"),
        ({**V6E, "topology": "4xfour"}, r"expected AxB chips"),
        ({**V6E, "accelerator_type": "TPU-V66"}, r"'TPU-V66': did you mean 'TPU-V6E'\?"),
        ({"use_tpu": True}, r"use_tpu needs topology and accelerator_type"),
        ({"use_tpu": True, "use_gpu": True}, r"choose one"),
        ({"num_workers": 6, "use_gpu": True, "tp": 4}, r"dcn x tp that divides 6"),
        ({"num_workers": 2, "min_workers": 3}, r"min_workers 3 is more than num_workers 2"),
    ],
)
def test_workers_topology_and_mesh_that_disagree_are_refused_with_what_to_use(fields: dict, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        run_shape(MeshConfig(**fields))


def test_a_tp_axis_that_cuts_workers_unevenly_is_refused() -> None:
    with pytest.raises(ValueError, match="tp 6 neither divides the 4 devices"):
        run_shape(MeshConfig(num_workers=3, tp=6), cpu_devices=4)


def test_workers_are_numbered_slice_by_slice_and_dcn_follows_the_slices() -> None:
    mesh = MeshConfig(**V6E, num_workers=8, min_workers=4, dcn=2, tp=2)
    assert worker_counts(mesh) == [8, 4]
    whole, half = (run_shape(mesh, num_workers=count) for count in worker_counts(mesh))
    assert (whole.dcn, whole.fsdp, whole.tp, whole.num_devices) == (2, 8, 2, 32)
    assert (half.dcn, half.fsdp, half.tp, half.num_devices) == (1, 8, 2, 16)
    assert [whole.slice_of(rank) for rank in range(8)] == [0, 0, 0, 0, 1, 1, 1, 1]
    assert [whole.share_of(rank) for rank in range(8)] == list(range(8))


def test_workers_that_share_a_tp_axis_read_the_same_rows() -> None:
    where = run_shape(MeshConfig(num_workers=4, use_gpu=True, tp=2))
    assert (where.fsdp, where.num_shares) == (2, 2)
    assert [where.share_of(rank) for rank in range(4)] == [0, 0, 1, 1]


def test_an_elastic_run_on_gpus_or_cpus_may_have_every_number_of_workers_between() -> None:
    mesh = MeshConfig(num_workers=4, min_workers=2)
    assert worker_counts(mesh) == [4, 3, 2]
    assert [run_shape(mesh, num_workers=count).fsdp for count in worker_counts(mesh)] == [4, 3, 2]
    fixed = dataclasses.replace(mesh, fsdp=4)
    with pytest.raises(ValueError, match="fsdp 4 x tp 1 does not fill the 3 devices"):
        run_shape(fixed, num_workers=3)


@pytest.mark.parametrize(
    ("rows", "microbatches", "works"),
    [(3, 1, "4"), (2, 1, "4"), (10, 1, "8 or 12"), (8, 3, "6 or 9 or another multiple of 3")],
)
def test_a_batch_that_does_not_split_is_refused_with_what_works(rows: int, microbatches: int, works: str) -> None:
    train = TrainConfig(rows_per_step=rows, microbatches=microbatches)
    with pytest.raises(
        ValueError, match=f"a batch of {rows} rows does not split over .* --train.rows-per-step to {works}"
    ):
        split_batch(train, run_shape(MeshConfig(num_workers=4)))


@pytest.mark.parametrize("name", ["llama2-70b", "lemur-70b"])
def test_the_batch_of_the_70b_recipes_lies_on_one_to_four_slices(name: str) -> None:
    recipe = get_recipe(name)
    hosts, rows = recipe.mesh.num_workers, {}
    mesh = dataclasses.replace(recipe.mesh, num_workers=4 * hosts, min_workers=hosts, dcn=4)
    for where in check_recipe(dataclasses.replace(recipe, mesh=mesh)):
        rows[where.num_slices] = split_batch(recipe.train, where)
        at_once = rows[where.num_slices].rows // (where.dcn * where.fsdp * rows[where.num_slices].microbatches)
        assert at_once == 1  # of a device, as on one slice: it needs no more memory
    assert rows == {
        1: BatchSplit(1024, 16, 0),
        2: BatchSplit(1024, 8, 0),
        3: BatchSplit(1152, 6, 128),
        4: BatchSplit(1024, 4, 0),
    }
    five = dataclasses.replace(recipe, mesh=dataclasses.replace(recipe.mesh, num_workers=5 * hosts, dcn=5))
    with pytest.raises(ValueError, match=r"over 320 devices .* go from 5 to 1, 2, 3, 4, 6 or 8 slices"):
        check_recipe(five)


def test_more_devices_than_rows_in_a_piece_take_fewer_pieces() -> None:
    where = run_shape(MeshConfig(num_workers=4))
    assert split_batch(TrainConfig(rows_per_step=8, microbatches=4), where) == BatchSplit(8, 2, 0)
    assert split_batch(TrainConfig(rows_per_step=24, microbatches=4), where) == BatchSplit(24, 6, 0)


def test_the_axes_of_a_mesh_multiply_out_or_say_what_would() -> None:
    assert axis_sizes(MeshConfig(dcn=2, tp=4), 32) == (2, 4, 4)
    assert axis_sizes(MeshConfig(fsdp=3), 3) == (1, 3, 1)
    with pytest.raises(ValueError, match="fsdp 3 x tp 1 does not fill 4 devices: use fsdp 4, or -1 for what is left"):
        axis_sizes(MeshConfig(fsdp=3), 4)
    with pytest.raises(ValueError, match=r"does not fill the chips: use dcn x tp that divides 4$"):
        axis_sizes(MeshConfig(tp=3), 4, "the chips")


def test_28_heads_do_not_divide_over_8_and_the_divisors_are_named() -> None:
    """The shape of Qwen 2.5 7B: 28 query heads, 4 of keys and values."""
    recipe = get_recipe("qwen3-8b")
    model = dataclasses.replace(recipe.model, dim=3584, ffn_dim=18_944, num_heads=28, num_kv_heads=4, num_layers=1)
    for mesh in (dataclasses.replace(recipe.mesh, fsdp=1, tp=8), MeshConfig(tp=8)):  # the second fills no device either
        with pytest.raises(
            ValueError, match=r"^mesh\.tp 8 does not divide .*num_heads 28 .* 4: choose one of 1, 2, 4$"
        ):
            check_recipe(dataclasses.replace(recipe, model=model, mesh=mesh))
