"""Planning a pod: what the TPU compiler says of a step, the search for a plan that fits, and the check without it."""

import dataclasses
import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from lemur_ray.config import MeshConfig
from lemur_ray.recipes import get_recipe
from lemur_ray.train.aot import compiled_step, planning
from lemur_ray.train.aot.compiled_step import does_not_fit
from lemur_ray.train.aot.pod_plan import LIMIT, PodPlan, StepDoesNotFit, placed
from lemur_ray.train.aot.search import candidates, search
from lemur_ray.train.pod.chips import CHIPS, StepTime, axis_bytes_per_s, step_time
from lemur_ray.train.pod.slices import parse_slice
from tests.train.aot.counted_products import backward_is_twice_forward
from tests.train.aot.plan_runs import libtpu, plan_pod

ROOT = Path(__file__).resolve().parents[3]
TINY = [
    *("--model.head-dim", "128", "--model.num-layers", "3", "--model.dim", "256", "--model.ffn-dim", "1024"),
    *("--model.num-heads", "4", "--model.num-kv-heads", "2", "--model.vocab-size", "1024", "--data.seq-len", "512"),
    *("--optimizer.name", "adamw", "--train.rows-per-step", "16", "--train.microbatches", "2"),
    *("--train.compute-dtype", "bfloat16", "--mesh.tp", "2"),
]


def test_a_step_compiled_for_a_slice_that_is_not_there_tells_memory_operations_and_transfers() -> None:
    libtpu()
    found, text = plan_pod("nano", "--topology", "v4:2x2x2", *TINY, "--train.remat", "save_dots")
    assert found["fits"] is True
    assert found["mesh"] == {"dcn": 1, "fsdp": 4, "tp": 2}
    assert 0.9 < found["executed_over_model"] < 1.25  # short rows: attention weighs much, no block is skipped
    assert sum(found["memory_gib"].values()) == pytest.approx(found["hbm_peak_gib"], abs=0.01)
    assert backward_is_twice_forward(found) == 4
    kinds = {(c["kind"], c["dtype"]) for c in found["collectives"]}
    assert {("all-gather", "bf16"), ("reduce-scatter", "bf16")} <= kinds
    gathers = [c for c in found["collectives"] if c["kind"] == "all-gather" and c["axis"] == "fsdp"]
    # Seven matrices of three layers, two microbatches, forward and backward, in bfloat16, each device the others' 3/4.
    weights = 256 * 128 * (4 + 2 + 2 + 4) + 3 * 256 * 1024
    assert sum(c["sent_bytes"] for c in gathers) == pytest.approx(2 * 2 * 3 * weights / 2 * 2 * 3 / 4, rel=0.2)
    # Activations go over tp by gathers and reduce-scatters; what is summed whole is numbers and vectors.
    summed = [c for c in found["collectives"] if c["kind"] == "all-reduce"]
    assert max(math.prod(c["shape"]) for c in summed) <= 512 * 4
    scattered = {c["origin"] for c in found["collectives"] if (c["kind"], c["axis"]) == ("reduce-scatter", "tp")}
    for pass_, line in (("backward", "llama.py"), ("forward", "embedding.py"), ("forward", "loss.py")):
        assert any(origin.startswith(f"{pass_}, model/{line}:") for origin in scattered), scattered
    assert "reduce-scatter over tp, bf16[" in text
    assert "a range, nothing was measured" in text
    low, high = found["estimate"]["mfu_6n_causal"]
    assert 0 < low <= high <= 0.654


@pytest.mark.slow
def test_what_slices_send_each_other_is_counted_by_itself() -> None:
    libtpu()
    found, _ = plan_pod("nano", "--topology", "v5e:2x4", *TINY, "--mesh.dcn", "2")
    assert found["mesh"] == {"dcn": 2, "fsdp": 4, "tp": 2}
    between = [c for c in found["collectives"] if c["axis"] == "dcn"]
    assert {c["kind"] for c in between} == {"all-reduce"}
    # The gradient of either microbatch, of the eighth part that a device owns, in bfloat16 or float32; a ring of two.
    matrices = 3 * (256 * 128 * (4 + 2 + 2 + 4) + 3 * 256 * 1024) + 2 * 1024 * 256
    assert 2 * 2 * matrices / 8 <= sum(c["sent_bytes"] for c in between) <= 2 * 4 * matrices / 8
    # Inside a slice gradients are scattered, and the embedding. Of results as small as these the compiler sums two
    # products a layer whole.
    within = [c for c in found["collectives"] if c["axis"] != "dcn"]
    whole = [c["origin"] for c in within if c["kind"] == "all-reduce" and math.prod(c["shape"]) > 512 * 4]
    assert all(origin.startswith("forward, model/llama.py:") for origin in whole), whole


@pytest.mark.slow
@pytest.mark.sweep  # the slow tier plans the run of the paper
def test_a_run_with_adapters_is_planned_with_its_frozen_base() -> None:
    libtpu()
    found, _ = plan_pod("nano", "--topology", "v4:2x2x2", *TINY, "--lora.rank", "4")
    assert found["fits"] is True
    base = 3 * (256 * 128 * (4 + 2 + 2 + 4) + 3 * 256 * 1024) + 2 * 1024 * 256
    parameters = found["memory_gib"]["parameters"] * 2**30  # on one of eight chips, the base in bfloat16
    assert 2 * base / 8 <= parameters <= 1.2 * 2 * base / 8 + 2**20
    assert found["memory_gib"]["optimizer"] < found["memory_gib"]["parameters"]
    waiting, sent = found["waiting_bytes_per_chip"], found["sent_bytes_per_chip"]
    assert waiting.keys() <= sent.keys()
    assert all(0 <= waiting[axis] <= sent[axis] for axis in waiting)


SCRIPT = """
import dataclasses, json, os, sys
sys.path.insert(0, sys.argv.pop(1))
from lemur_ray.config import DataConfig, MeshConfig, ModelConfig, Recipe, TrainConfig
from lemur_ray.train.aot import absent_devices
from lemur_ray.train.aot.pod_plan import placed
from lemur_ray.train.pod.slices import parse_slice
where = parse_slice(sys.argv.pop(1))
os.environ.update(absent_devices.environment(where))
from lemur_ray.train.aot import compiled_step
"""
FAMILIES = (
    SCRIPT
    + """
SHAPE = ModelConfig(vocab_size=512, num_layers=2, dim=256, ffn_dim=512, num_heads=4, num_kv_heads=2, head_dim=128)
GEMMA = {"window": 128, "global_every": 2, "activation": "gelu_tanh", "norm_offset": True, "post_norms": True,
         "embed_scale": True, "query_scalar": 144, "tie_embeddings": True, "logit_cap": 30.0}
for switches in ({}, {"window": 128}, {"qkv_bias": True, "head_dim": 64}, {"qk_norm": True},
                 {**GEMMA, "attention_cap": 50.0}, {**GEMMA, "qk_norm": True, "local_rope_theta": 1e3}):
    train = TrainConfig(rows_per_step=8, microbatches=2, compute_dtype="bfloat16", remat="save_dots")
    model = dataclasses.replace(SHAPE, **switches)
    recipe = Recipe(model=model, train=train, data=DataConfig(seq_len=256))
    plan = compiled_step.plan(placed(recipe, where, MeshConfig(tp=2)), where)
    print(plan.fits, sorted(plan.program.kernels), round(plan.executed_flops / plan.model_flops, 3))
"""
)


@pytest.mark.slow
@pytest.mark.sweep  # the slow tier plans the run of the paper
def test_every_family_is_planned_with_the_kernel_of_tpus() -> None:
    libtpu()
    command = [sys.executable, "-c", FAMILIES, str(ROOT), "v5e:2x2"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=850)
    assert done.returncode == 0, done.stderr[-3000:]
    lines = done.stdout.splitlines()
    assert len(lines) == 6
    for line in lines:
        assert line.startswith("True ['splash_mha_dkv"), line


ROW = (
    SCRIPT
    + """
import jax, jax.numpy as jnp
from jax.sharding import SingleDeviceSharding
from lemur_ray.model.attention.dispatch import attention
from lemur_ray.model.attention.interface import Limits
from lemur_ray.train.pod.compiler_options import attention_block, step_options
device = absent_devices.devices(where)[0]
place, block = SingleDeviceSharding(device), attention_block(device)
def gradients(q, k, v, ids):
    total = lambda *x: jnp.sum(attention(*x, ids, "splash", limits=Limits(block=block)).astype(jnp.float32))
    return jax.grad(total, (0, 1, 2))(q, k, v)
q = jax.ShapeDtypeStruct((1, 32768, 32, 128), jnp.bfloat16, sharding=place)
ids = jax.ShapeDtypeStruct((1, 32768), jnp.int32, sharding=place)
lowered = jax.jit(gradients, compiler_options=step_options(device)).lower(q, q, q, ids)
print(block, lowered.compile().memory_analysis().temp_size_in_bytes)
"""
)


@pytest.mark.slow
@pytest.mark.sweep  # half a minute each
@pytest.mark.parametrize("name", ["v6e", "v5p"])
def test_attention_of_a_long_row_takes_at_most_two_gib(name: str) -> None:
    libtpu()
    command = [sys.executable, "-c", ROW, str(ROOT), f"{name}:{'2x2x1' if name == 'v5p' else '2x2'}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr[-3000:]
    block, temporaries = map(int, done.stdout.split())
    assert block == {"v5p": 512, "v6e": 2048}[name]
    assert temporaries <= 2 * 2**30


def test_the_table_of_rules_is_printed_with_the_bytes_of_a_device() -> None:
    found, text = plan_pod("lemur-70b", "--topology", "v4:4x8x8", "--describe")
    assert found["fits"] is None
    row = next(line for line in text.splitlines() if line.startswith("layers.down"))
    assert row.split() == ["layers.down", "80x28672x8192", "layers,", "ffn,", "dim", "-,", "tp,", "fsdp", "293,601,280",
                           "880,803,840"]  # fmt: skip
    assert "3,249,045,504 bytes of parameters and moments on each of 256 devices" in text


def test_without_libtpu_shardings_are_checked_on_fake_devices() -> None:
    script = """
import sys
sys.path.insert(0, sys.argv.pop(1))
from lemur_ray.recipes import get_recipe
from lemur_ray.train.aot import absent_devices, planning
from lemur_ray.train.pod.slices import parse_slice
import dataclasses, json
absent_devices.has_libtpu = lambda: False
recipe = get_recipe("llama2-7b")
recipe = dataclasses.replace(recipe, model=dataclasses.replace(recipe.model, num_layers=2))
print(json.dumps(planning.run(recipe, parse_slice("v4:2x2x2"), search=0, describe=False, say=print)))
"""
    done = subprocess.run([sys.executable, "-c", script, str(ROOT)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["fits"], found["hbm_peak_gib"]) == (None, None)
    assert found["state_bytes_per_chip"] > 0
    assert "libtpu is not installed" in done.stdout


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--mesh.fsdp", "32"], "32"),
        (["--mesh.tp", "16", "--mesh.fsdp", "16"], "model.num_kv_heads"),
        (["--train.microbatches", "48"], "1024 rows"),
        (["--train.attention-block", "768"], "attention_block 768 does not divide data.seq_len 4096: choose a divisor"),
        (["--topology", "v4:3x3x3"], "multiples of 4"),
        (
            ["--topology", "v4:2x2x2", "--model.num-heads", "28", "--model.num-kv-heads", "4", "--mesh.tp", "8"],
            "mesh.tp 8 does not divide model.num_heads 28 and model.num_kv_heads 4: choose one of 1, 2, 4",
        ),
    ],
)
def test_what_cannot_run_on_the_slice_is_said_in_one_line(flags: list[str], message: str) -> None:
    command = [sys.executable, str(ROOT / "jobs" / "plan_pod.py"), "llama2-70b", "--describe", *flags]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 1, done.stdout[-1000:]
    assert done.stderr.startswith("plan_pod: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_candidates_divide_and_those_expected_to_fit_come_first() -> None:
    where, recipe = parse_slice("v6e:4x4"), get_recipe("llama2-7b")
    found = candidates(recipe, where)
    room = LIMIT * CHIPS["v6e"].hbm_bytes
    fits = [guess.bytes <= room for guess in found]
    assert fits == sorted(fits, reverse=True)
    assert any(fits)
    times = [guess.step_s for guess in found if guess.bytes <= room]
    assert times == sorted(times)
    for guess in found:
        mesh, train = guess.recipe.mesh, guess.recipe.train
        assert mesh.fsdp * mesh.tp == 16
        assert train.rows_per_step % (train.microbatches * mesh.fsdp) == 0


def test_the_search_compiles_as_many_as_asked_for_whether_they_fit_or_not() -> None:
    where, recipe, seen = parse_slice("v6e:4x4"), get_recipe("llama2-7b"), []

    class Plan:
        def __init__(self, fits: bool) -> None:
            self.fits = fits

    def compiled(recipe: Any, where: Any) -> Any:
        seen.append(recipe)
        if len(seen) == 1:
            raise StepDoesNotFit("too large")
        return Plan(len(seen) == 3)

    found = [result for _, result in search(recipe, where, compiled, 4)]
    assert [getattr(result, "fits", None) for result in found] == [None, False, True, False]
    assert len({(r.mesh, r.train) for r in seen}) == 4


TOO_LARGE = """RESOURCE_EXHAUSTED: E1001: CompileTimeScopedVmemOom:
Ran out of memory in memory space vmem while allocating on stack for %splash_mha_fwd_segmented.1.
Scoped allocation with size 28.79M and limit 16.00M exceeded scoped vmem limit by 12.79M."""


@pytest.mark.parametrize(
    ("length", "block", "advice"),
    [
        (4096, 2048, "2048 tokens exceeds scoped vmem: try --train.attention-block 1024"),
        (1536, 768, "try --train.attention-block 512"),
        (4096, 128, "no smaller block divides 4096"),
    ],
)
def test_a_block_too_large_for_scoped_memory_is_refused_with_the_next_smaller_one(
    length: int, block: int, advice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A search varies no blocks, so none is advised; it is for a step that needs more memory of a chip."""
    monkeypatch.setattr(os, "environ", dict(os.environ))
    monkeypatch.setattr(planning.absent_devices, "has_libtpu", lambda: True)
    for message, end in (TOO_LARGE, f"{advice})"), ("RESOURCE_EXHAUSTED: hbm\nmore", "looks for a plan that does"):
        error, lines = does_not_fit(message, length, block), []
        monkeypatch.setattr(compiled_step, "plan", Mock(side_effect=error))
        result = planning.run(
            get_recipe("llama2-7b"), parse_slice("v5e:4x4"), search=0, describe=False, say=lines.append
        )
        assert result["fits"] is False
        assert lines[-1].endswith(end)


def test_a_recipe_of_another_pod_takes_the_mesh_of_the_slice_it_is_planned_for() -> None:
    recipe, where = get_recipe("llama2-7b"), parse_slice("v5e:4x4")
    meshed = placed(recipe, where, MeshConfig(tp=2))
    assert (meshed.mesh.fsdp, meshed.mesh.tp, meshed.mesh.num_workers) == (8, 2, 4)
    with pytest.raises(ValueError, match="names no slice"):
        planning.devices_of(get_recipe("nano"))


def test_an_estimate_lies_between_all_hidden_and_nothing_hidden() -> None:
    chip, sizes = CHIPS["v4"], {"dcn": 1, "fsdp": 64, "tp": 4}
    speed = axis_bytes_per_s(chip, (4, 8, 8), sizes)
    assert (speed["tp"], speed["fsdp"]) == (2 * 4.5e10, 4 * 4.5e10)
    assert axis_bytes_per_s(CHIPS["v5e"], (4, 4), {"dcn": 1, "fsdp": 4, "tp": 4})["tp"] == 4.5e10, "no ring closes"
    waits = step_time(chip, (4, 8, 8), sizes, 2.2e14, {"tp": 9e9, "fsdp": 18e9}, {"fsdp": 18e9})
    assert (waits.at_least_s, waits.at_most_s) == (pytest.approx(1.1), pytest.approx(1.2))
    time = step_time(chip, (4, 8, 8), sizes, 2.2e14, {"tp": 9e9, "fsdp": 18e9})
    assert (time.compute_s, time.communication_s) == (pytest.approx(1.0), pytest.approx(0.2))
    assert time.at_least_s < time.middle_s < time.at_most_s


@pytest.mark.parametrize(("slice_", "best"), [("v4:4x8x8", 0.654), ("v5p:4x4x8", 0.654), ("v6e:16x16", 0.503)])
def test_no_estimate_is_faster_than_what_was_ever_measured(slice_: str, best: float) -> None:
    where, flops = parse_slice(slice_), 1e18
    ideal_s = flops / (where.num_chips * CHIPS[where.generation.name].peak_flops)
    made: Any = {field.name: None for field in dataclasses.fields(PodPlan)}
    made |= {"recipe": get_recipe("nano"), "where": where, "model_flops": flops}
    hidden = PodPlan(**made | {"time": StepTime(ideal_s / 0.8, 0.0, {})})
    assert hidden.mfu == pytest.approx((best, best))
    slow = PodPlan(**made | {"time": StepTime(ideal_s / 0.8, 4 * ideal_s, {})})
    assert slow.mfu == pytest.approx((1 / 5.25, 1 / 4))
