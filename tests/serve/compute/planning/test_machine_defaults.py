"""Formulas of sizes and defaults against the arrays that an engine would hold, and figures of lemur-70b-chat."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from lemur_ray.recipes import get_recipe
from lemur_ray.serve.compute import ahead_of_time, attention, invariant
from lemur_ray.serve.compute.devices import splits
from lemur_ray.serve.config import BY_MACHINE, EngineOptions, Hosts, ServeJob
from lemur_ray.serve.planning import machine_defaults as m
from lemur_ray.serve.planning.cluster_choice import with_devices
from lemur_ray.serve.planning.machines import attached_machine, machine_of, parse_machine, smallest, smallest_count
from lemur_ray.serve.planning.plan_job import PlanServingJob, check_flags, given_flags
from lemur_ray.train.pod.gpu_hosts import GpuHosts
from lemur_ray.train.pod.slices import parse_slice

CHAT = get_recipe("lemur-70b-chat").model


def machine(text: str) -> m.Machine:
    return machine_of(parse_slice(text))


@pytest.mark.parametrize("name", ["lemur-70b-chat", "llama2-7b"])
@pytest.mark.parametrize("int8", [False, True])
def test_the_formula_for_weights_is_the_size_of_the_arrays(name: str, int8: bool) -> None:
    config = replace(get_recipe(name).model, num_layers=3)
    options = EngineOptions(dtype="bfloat16", quantization="int8" if int8 else "none")
    for parts in (1, 2, 8, 16):
        exact = ahead_of_time.weight_bytes(config, options, parts, "tpu")
        assert m.weight_bytes(config, parts, int8=int8) == exact


def test_keys_and_values_of_a_token_take_as_much_on_16_devices_as_on_8() -> None:
    assert [m.kv_bytes_per_token(CHAT, n) for n in (1, 4, 8, 16)] == [327_680, 81_920, 40_960, 40_960]
    for n in (1, 4, 8, 16):
        assert attention.block_bytes(CHAT, "bfloat16", n) == n * m.BLOCK * m.kv_bytes_per_token(CHAT, n)
    assert (m.BLOCK, m.TILE) == (attention.BLOCK, invariant.TILE)


def test_a_cache_takes_what_weights_a_step_and_two_layers_leave_of_the_usable_memory() -> None:
    v4 = machine("v4:2x2x2")
    room = m.cache_room(CHAT, v4)
    used = m.weight_bytes(CHAT, 8) + 2 * m.layer_bytes(CHAT, 8) + m.STEP_BYTES
    assert room + used == int(0.9 * 32 * 2**30)
    assert room - m.BLOCK * 40_960 * 2 < m.cache_tokens(CHAT, v4) * 40_960 < room
    assert m.cache_room(CHAT, machine("v5e:2x4")) < 0
    assert m.cache_tokens(CHAT, machine("v5e:2x4"), int8=True) > 100_000


@pytest.mark.parametrize(
    ("where", "tokens"), [("v4:2x2x2", 182), ("v5e:4x4", 226), ("v6e:2x4", 456), ("v5p:2x2x2", 136)]
)
def test_products_of_so_many_tokens_take_as_long_as_reading_the_weights(where: str, tokens: int) -> None:
    """The issue's figures, 180, 230, 460 and 145, with the weights as they are."""
    one = machine(where)
    weights = m.weight_bytes(CHAT, one.num_devices)
    assert m.step_tokens(CHAT, one, weights, 64, 1024) == pytest.approx(tokens, abs=2)
    assert m.prompt_tokens(CHAT, one, weights, 64, 1024) == max(1, (tokens - 64) // 32) * 32


@pytest.mark.parametrize(
    ("where", "rate"),
    [("v4:2x2x2", 2760), ("v4:2x2x4", 4190), ("v5e:4x4", 3040), ("v6e:2x4", 3810), ("v5p:2x2x2", 5590)],
)
def test_estimates_are_those_of_the_roofline(where: str, rate: int) -> None:
    one = machine(where)
    seconds = m.decode_s(CHAT, one, m.weight_bytes(CHAT, one.num_devices), 64, 1024)
    assert 64 / seconds == pytest.approx(rate, rel=0.08)


def test_the_smallest_devices_are_those_below_which_none_fits() -> None:
    options = EngineOptions(dtype="bfloat16")
    found = smallest(CHAT, options)
    assert {name: where and where.topology for name, where in found.items()} == {
        "v4": "2x2x2", "v5p": "2x2x1", "v5e": "2x8", "v6e": "2x4", "h100": "2", "h200": "2", "b200": "1",
    }  # fmt: skip
    smaller = smallest(CHAT, replace(options, quantization="int8"))
    assert smaller["v5e"] is not None
    assert smaller["v5e"].topology == "2x4"
    assert splits(CHAT) == [1, 2, 4, 8, 16, 32, 64]


@pytest.mark.parametrize(
    ("slice_text", "gpu", "message"),
    [
        ("v4:2x2x3", "", "TPU-V4 has 2x2x1"),
        ("v9:2x2", "", "--slice is 'v9:2x2': expected GENERATION:TOPOLOGY, for example v4:2x2x4 .known: v4, v5p,"),
        ("", "h300x8", "expected NAMExGPUS, for example h200x8"),
        ("", "h200x3", "a host has 1, 2, 4, 8 GPUs, not 3"),
        ("v4:2x2x2", "h200x8", "choose one"),
    ],
)
def test_devices_that_do_not_exist_are_refused(slice_text: str, gpu: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_machine(slice_text, gpu)


def test_gpus_are_named_with_a_cross_or_a_colon() -> None:
    assert parse_machine("", "h200x8") == parse_machine("", "H200:8") == GpuHosts("h200", 1, 8)
    assert parse_machine("", "h100x2x8") == GpuHosts("h100", 2, 8)
    assert parse_machine("", "") is None


@pytest.mark.parametrize(
    ("flags", "where", "chip", "message"),
    [
        ("--engine.pin-s 3", "", "v4", "--engine.pin-s: a plan of one chip does not use it"),
        ("--check --engine.cache-bytes=5", "", "", "--check, --engine.cache-bytes: a plan without --slice or --gpu"),
        ("--train.steps 3", "v4:2x2x2", "", "--train.steps: a plan of devices does not use it"),
        ("--layers 2", "", "v5e", "--layers: a plan of one chip"),
        ("--chip v4", "v4:2x2x2", "v4", "--chip is one chip alone"),
        ("--quantization int8 --engine.quantization none", "", "", "--engine.quantization: give one of them"),
        ("--engine.tensor_parallel 4", "v4:2x2x2", "", "--engine.tensor-parallel is 4, but the plan is for 8 device"),
        ("--engine.tensor-parallel 4", "", "v4", "--engine.tensor-parallel is 4, but the plan is for 1 device"),
    ],
)
def test_a_flag_that_a_plan_does_not_use_is_refused(flags: str, where: str, chip: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_flags(given_flags(flags.split()), 4, parse_slice(where) if where else None, chip)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"layers": -1}, "layers is -1: expected at least 0"),
        ({"chip": "v9"}, "--chip is 'v9': expected one of v4, v5p, v5e, v6e"),
        ({"chip": "v5litepod"}, "--chip is 'v5litepod'"),
    ],
)
def test_a_value_that_a_plan_cannot_use_is_refused(values: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        PlanServingJob(**values)


def test_flags_that_a_plan_uses_are_accepted() -> None:
    flags = "--slice v4:2x2x2 --check --engine.max-slots 8 --model.num-layers=2 --engine.tensor-parallel 8"
    check_flags(given_flags(flags.split()), 8, parse_slice("v4:2x2x2"), "")
    check_flags(given_flags(["--engine.context", "2048", "--json"]), 1, None, "")
    check_flags(given_flags(["--engine.no-batch-invariant", "--no-check"]), 8, parse_slice("v4:2x2x2"), "")


def test_a_model_without_room_is_refused_with_its_sizes() -> None:
    with pytest.raises(
        ValueError, match=r"16\.06 GiB of weights a device, 14\.40 GiB usable: use int8 or more devices"
    ):
        m.chosen(BY_MACHINE, CHAT, machine("v5e:2x4"))
    int8 = m.chosen(replace(BY_MACHINE, quantization="int8"), CHAT, machine("v5e:2x4"))
    room = m.cache_room(CHAT, machine("v5e:2x4"), int8=True) - m.slot_bytes(CHAT, 8, int8.max_slots)
    assert int8.cache_bytes == 8 * room
    with pytest.raises(ValueError, match="is more than the 8 devices have beside the weights: at most 1"):
        m.chosen(replace(BY_MACHINE, cache_bytes=2**40), CHAT, machine("v4:2x2x2"))


@pytest.mark.parametrize(("where", "tiles"), [("v4:2x2x2", 3), ("v6e:2x4", 12), ("v5e:4x4", 5)])
def test_what_a_user_leaves_open_is_chosen_for_the_machine(where: str, tiles: int) -> None:
    one = machine(where)
    options = m.chosen(BY_MACHINE, CHAT, one)
    assert (options.dtype, options.context, options.prefill_tiles) == ("bfloat16", CHAT.max_seq_len, tiles)
    room = m.cache_room(CHAT, one) - m.slot_bytes(CHAT, one.num_devices, options.max_slots)
    assert options.cache_bytes == one.num_devices * room
    assert m.chosen(options, CHAT, one) == options


def test_slots_of_a_large_vocabulary_leave_less_for_the_cache() -> None:
    gemma, one = replace(CHAT, num_layers=2, vocab_size=256_000), machine("v4:2x2x2")
    few, many = (m.chosen(replace(BY_MACHINE, max_slots=slots), gemma, one).cache_bytes for slots in (64, 512))
    assert few - many == one.num_devices * 448 * 8 * 32_000


def test_what_a_user_sets_stays() -> None:
    own = EngineOptions(dtype="float32", cache_bytes=2**32, prefill_tiles=7, context=300)
    assert m.chosen(own, replace(CHAT, num_layers=4), machine("v4:2x2x2")) == own
    small = m.chosen(replace(BY_MACHINE, cache_bytes=8 * 128 * 40_960 * 5), CHAT, machine("v4:2x2x2"))
    assert small.context == 4 * 128


def test_cpus_are_served_as_before() -> None:
    import jax

    cpu = attached_machine(jax.local_devices(), 1)
    assert m.chosen(BY_MACHINE, CHAT, cpu) == EngineOptions()
    assert (cpu.platform, cpu.num_devices) == ("cpu", 1)


def test_the_memory_is_that_of_the_poorest_device() -> None:
    def device(limit: int) -> SimpleNamespace:
        return SimpleNamespace(platform="tpu", device_kind="TPU v4", memory_stats=lambda: {"bytes_limit": limit})

    found = attached_machine([device(33 * 10**9), device(32 * 10**9)])
    assert (found.platform, found.num_devices) == ("tpu", 2)
    assert 32 * 10**9 - 2**28 < found.memory_bytes <= 32 * 10**9
    assert replace(machine("v4:2x2x2"), num_devices=2, memory_bytes=0, link_bytes_per_s=0) == replace(
        found, memory_bytes=0, link_bytes_per_s=0
    )


def test_hosts_of_one_engine_take_the_memory_of_the_poorest_of_them() -> None:
    device = SimpleNamespace(platform="tpu", device_kind="TPU v4", memory_stats=lambda: {"bytes_limit": 2**35})
    assert attached_machine([device], 8, lambda steps: steps - 1).memory_bytes == 2**35 - 2**28


@pytest.mark.parametrize(
    ("where", "model", "num"),
    [("h200x8", "lemur-70b-chat", 2), ("h100x8", "lemur-70b-chat", 2), ("h100x8", "llama2-7b", 1),
     ("h100x1", "lemur-70b-chat", 1), ("v6e:2x4", "lemur-70b-chat", 8), ("v4:2x2x1", "llama2-7b", 1)],
)  # fmt: skip
def test_a_model_takes_the_fewest_devices_that_hold_it_and_a_context(where: str, model: str, num: int) -> None:
    there = parse_machine("", where) if "h" in where else parse_machine(where, "")
    assert there is not None
    assert smallest_count(get_recipe(model).model, BY_MACHINE, machine_of(there)) == num


def node(**resources: Any) -> dict[str, Any]:
    names = ("pod_type", "topology", "slice_name")
    labels = {name.replace("_", "-"): resources.pop(name) for name in names if name in resources}
    return {"Alive": True, "Resources": resources, "Labels": {f"ray.io/tpu-{k}": v for k, v in labels.items()}}


GPU_HOST = node(GPU=8.0) | {"Resources": {"GPU": 8.0, "accelerator_type:H200": 1.0}}
SLICES = [node(TPU=4, pod_type="v4-8", topology="2x2x1"), node(TPU=4, pod_type="v4-32", topology="2x2x4"),
          node(TPU=4, pod_type="v4-16", topology="2x2x2")]  # fmt: skip


def test_a_job_that_names_no_devices_takes_what_the_cluster_has_for_its_model(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)

    def chosen(nodes: list[dict[str, Any]], **options: Any) -> tuple[Hosts, int]:
        job = with_devices(ServeJob(**options), lambda: CHAT, nodes)
        return job.hosts, job.engine.tensor_parallel

    assert chosen([node(CPU=8.0)]) == (Hosts(), 1)
    assert chosen([node(CPU=8.0), GPU_HOST]) == (Hosts(), 2)
    assert caplog.messages[-1] == "the model takes 2 of the 8 GPUs (h200) of a host"
    one_gpu = GPU_HOST | {"Resources": {**GPU_HOST["Resources"], "GPU": 1.0}}
    assert chosen([GPU_HOST, one_gpu]) == chosen([one_gpu, GPU_HOST]) == (Hosts(), 2)
    assert chosen(SLICES) == (Hosts(2, topology="2x2x2", accelerator_type="TPU-V4"), 0)
    assert caplog.messages[-1] == "the model takes a slice 2x2x2 of TPU-V4"
    large = [node(TPU=4, pod_type="v4-32", topology="2x2x4", slice_name=name) for name in "aabb"]
    assert chosen([*SLICES, *large], replicas=2) == (Hosts(4, topology="2x2x4", accelerator_type="TPU-V4"), 0)
    small = [node(TPU=4, pod_type="v4-16", topology="2x2x2", slice_name=name) for name in "cc"]
    assert chosen([*small, *large[:2]], replicas=2)[0].topology == "2x2x2", "neither has one for each: the smaller one"
    unnamed = [node(TPU=4, pod_type="v4-16", topology="2x2x2", **name) for name in ({}, {"slice_name": ""})]
    for one in unnamed:
        assert chosen([one] * 4 + large, replicas=2)[0].topology == "2x2x2", "two hosts each"
        assert chosen([one] * 3 + large, replicas=2)[0].topology == "2x2x4", "hosts of one slice are not two slices"
    assert chosen(SLICES[:1]) == (Hosts(1, topology="2x2x1", accelerator_type="TPU-V4"), 0)
    assert chosen([node(GPU=4.0)]) == (Hosts(), 1)
    assert "unknown kind" in caplog.messages[-1]
    own = Hosts(4, topology="2x2x4", accelerator_type="TPU-V4")
    assert chosen(SLICES, hosts=own) == (own, 0)
    assert chosen([GPU_HOST], engine=replace(BY_MACHINE, tensor_parallel=4)) == (Hosts(), 4)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert chosen([GPU_HOST]) == (Hosts(), 1)
