"""Plans for GPUs: the devices of a topology, what is refused, and a step compiled where the compiler is installed."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.config import MeshConfig
from lemur_ray.recipes import get_recipe
from lemur_ray.train.aot import absent_devices, planning
from lemur_ray.train.aot.compiled_step import attention_flops
from lemur_ray.train.aot.hlo import read
from lemur_ray.train.aot.pod_plan import placed
from lemur_ray.train.pod.chips import CHIPS, axis_bytes_per_s
from lemur_ray.train.pod.gpu_hosts import GPUS, GpuHosts, parse_devices
from lemur_ray.train.pod.slices import Slice
from tests.train.aot.counted_products import backward_is_twice_forward, products

ROOT = Path(__file__).resolve().parents[3]
COMPILER = ROOT / ".venv-gpu-compiler" / "bin" / "python"
SMALL = ("--model.num-layers", "2")
"""In full width: of small matrices the compiler computes some twice."""


def test_a_topology_names_gpus_by_hosts_or_a_slice() -> None:
    assert parse_devices("h100:8") == GpuHosts("h100", 1, 8)
    assert parse_devices(" H200:2x8 ") == GpuHosts("h200", 2, 8)
    assert parse_devices("v4:4x8x8") == Slice.of("v4", "4x8x8")
    assert [parse_devices(f"{name}:8").num_chips for name in GPUS] == [8, 8, 8]
    assert (parse_devices("h100:4x8").topology, parse_devices("b200:4").topology) == ("4x8", "4")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("h100:7", "a host has 1, 2, 4, 8 GPUs, not 7"),
        ("h100", "expected h100:GPUS"),
        ("v4", "expected GENERATION:TOPOLOGY"),
        ("h100:2x2x2", "expected h100:GPUS or h100:HOSTSxGPUS"),
        ("h10:8", "did you mean 'h100'"),
        ("v9:2x2", "known: TPU-V4"),
    ],
)
def test_a_topology_that_does_not_exist_is_refused_with_what_does(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_devices(text)


def test_a_mesh_fills_the_gpus_and_keeps_products_within_a_host() -> None:
    recipe, where = get_recipe("llama3-8b"), parse_devices("h100:2x8")
    mesh = placed(recipe, where, MeshConfig(dcn=2, tp=2)).mesh
    assert (mesh.dcn, mesh.fsdp, mesh.tp, mesh.num_workers, mesh.use_gpu) == (2, 4, 2, 16, True)
    with pytest.raises(ValueError, match=r"mesh\.tp 16 does not divide the 8 GPUs of a host.*1, 2, 4, 8"):
        placed(recipe, where, MeshConfig(tp=16))
    with pytest.raises(ValueError, match="dcn 1 x fsdp 5 x tp 1 does not fill"):
        placed(recipe, where, MeshConfig(fsdp=5))


def test_an_axis_that_leaves_a_host_has_the_speed_of_the_network() -> None:
    chip = CHIPS["h100"]
    speeds = axis_bytes_per_s(chip, (2, 8), {"dcn": 1, "fsdp": 8, "tp": 2})
    assert (speeds["tp"], speeds["fsdp"]) == (chip.link_bytes_per_s, chip.network_bytes_per_s)
    assert axis_bytes_per_s(chip, (2, 8), {"dcn": 2, "fsdp": 4, "tp": 2})["fsdp"] == chip.link_bytes_per_s
    assert axis_bytes_per_s(chip, (8,), {"dcn": 1, "fsdp": 8, "tp": 1})["fsdp"] == chip.link_bytes_per_s


def test_a_recipe_for_gpus_is_planned_for_its_own_hosts() -> None:
    recipe = get_recipe("qwen3-8b")
    assert planning.devices_of(recipe) == GpuHosts("h100", 1, 8)
    two = dataclasses.replace(recipe, mesh=dataclasses.replace(recipe.mesh, num_workers=16))
    assert planning.devices_of(two) == GpuHosts("h100", 2, 8)


@pytest.mark.parametrize(("topology", "message"), [("h100:8", "pip install --no-deps jax-cuda12"), ("h100:7", "not 7")])
def test_what_is_missing_is_one_line(topology: str, message: str) -> None:
    command = [sys.executable, str(ROOT / "jobs" / "plan_pod.py"), "llama3-8b", "--topology", topology]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200)
    assert done.returncode == 1, done.stdout[-1000:]
    assert done.stderr.startswith("plan_pod: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


WRITTEN = """ENTRY %main (a: bf16[64,16], b: bf16[16,32]) -> bf16[64,32] {
  %a = bf16[64,16]{1,0} parameter(0)
  %b = bf16[16,32]{1,0} parameter(1)
  %gemm.1 = (bf16[64,32]{1,0}, s8[4194304]{0}) custom-call(%a, %b), custom_call_target="__cublas$gemm", backend_config={"gemm_backend_config":{"alpha_real":1,"dot_dimension_numbers":{"lhs_contracting_dimensions":["1"],"rhs_contracting_dimensions":["0"]}}}
  %attention.2 = (bf16[1,4,16,8]{3,1,2,0}, f32[2,4,16]{2,1,0}, u8[0]{0}) custom-call(%a), custom_call_target="__cudnn$fmhaSoftmax"
  %other.3 = bf16[64,32]{1,0} custom-call(%a), custom_call_target="__cudnn$convForward"
  ROOT %out = bf16[64,32]{1,0} get-tuple-element(%gemm.1), index=0
}
"""  # noqa: E501


def test_calls_of_libraries_are_counted_or_listed() -> None:
    program = read(WRITTEN, lambda kernel, shapes: 5.0 if kernel.startswith("__cudnn$fmha") else 0.0)
    assert program.product_flops == 2 * 64 * 32 * 16
    assert (program.kernel_flops, program.kernels) == (5.0, {"__cudnn$fmhaSoftmax": 1})
    assert program.uncounted == {"__cudnn$convForward": 1}


def test_a_loop_whose_comparison_is_fused_is_counted() -> None:
    text = """%less (counter: s32[]) -> pred[] {
  %counter = s32[] parameter(0)
  %limit = s32[] constant(7)
  ROOT %compare = pred[] compare(%counter, %limit), direction=LT
}

%condition (state: (s32[], f32[8])) -> pred[] {
  %state = (s32[], f32[8]{0}) parameter(0)
  %number = s32[] get-tuple-element(%state), index=0
  ROOT %fused = pred[] fusion(%number), kind=kLoop, calls=%less
}

%body (state.1: (s32[], f32[8])) -> (s32[], f32[8]) {
  %state.1 = (s32[], f32[8]{0}) parameter(0)
  %number.1 = s32[] get-tuple-element(%state.1), index=0
  %two = s32[] constant(2)
  %next = s32[] add(%number.1, %two)
  %x = f32[8]{0} get-tuple-element(%state.1), index=1
  ROOT %out = (s32[], f32[8]{0}) tuple(%next, %x)
}

ENTRY %main (x.1: f32[8]) -> (s32[], f32[8]) {
  %x.1 = f32[8]{0} parameter(0)
  %zero = s32[] constant(0)
  %start = (s32[], f32[8]{0}) tuple(%zero, %x.1)
  ROOT %while.1 = (s32[], f32[8]{0}) while(%start), condition=%condition, body=%body
}
"""
    assert [loop.trips for loop in read(text).loops] == [4]


def test_attention_of_a_row_counts_blocks_up_to_the_diagonal() -> None:
    recipe = placed(get_recipe("llama3-8b"), parse_devices("h100:8"), MeshConfig())
    whole = 2.0 * 32 * 8192**2 * 128  # one product of all pairs of tokens, for 32 heads of one row
    diagonal = (64 + 1) / (2 * 64)
    assert attention_flops(recipe, "__cudnn$fmhaSoftmax") == pytest.approx(2 * whole * diagonal)
    assert attention_flops(recipe, "__cudnn$fmhaSoftmaxBackward") == pytest.approx(5 * whole * diagonal)
    assert attention_flops(recipe, "__cudnn$convForward") == 0


def plan(*arguments: str) -> tuple[dict[str, Any], str]:
    if not COMPILER.exists():
        pytest.skip("the compiler for GPUs is not installed: make gpu-compiler")
    command = [str(COMPILER), str(ROOT / "jobs" / "plan_pod.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=850)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]), done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(("topology", "remat"), [("h100:8", "save_dots"), ("h100:2x8", "full")])
def test_a_step_compiled_for_gpus_has_the_products_that_a_hand_counts(topology: str, remat: str) -> None:
    rows = str(2 * parse_devices(topology).num_chips)
    flags = ("--train.remat", remat, "--train.rows-per-step", rows, "--train.microbatches", "2")
    found, text = plan("llama3-8b", "--topology", topology, *SMALL, *flags)
    assert found["fits"] is True
    assert sum(found["memory_gib"].values()) == pytest.approx(found["hbm_peak_gib"], abs=0.01)
    model = dataclasses.replace(get_recipe("llama3-8b").model, num_layers=2)
    tokens, heads = int(rows) * 8192, 32 * 128
    attention = (2 + 5 + 2 * (remat == "full")) * 2.0 * tokens * heads * 8192 * (64 + 1) / (2 * 64)
    expected = products(model, tokens, again=remat == "full") + 2 * attention
    assert found["executed_flops_per_step"] == pytest.approx(expected, rel=0.02)
    assert backward_is_twice_forward(found) == 4
    assert found["uncounted"] == {}
    assert {c["kind"] for c in found["collectives"]} == {"all-gather", "reduce-scatter", "all-reduce"}
    assert "__cudnn$fmhaSoftmax, __cudnn$fmhaSoftmaxBackward ask for" in text


@pytest.mark.sweep  # the whole depth: a minute each; the slow tier compiles two layers
@pytest.mark.parametrize(
    ("recipe", "remat", "most"),
    [("llama3-8b", "full", 1.35), ("llama3-8b", "save_dots", 1.03), ("qwen3-8b", "save_dots", 1.03)],
)
def test_the_recipes_for_eight_gpus_fit_and_compute_little_twice(recipe: str, remat: str, most: float) -> None:
    planned, _ = plan(recipe, "--topology", "h100:8", "--train.remat", remat)
    assert planned["fits"] is True
    assert planned["executed_over_model"] <= most
    tokens = get_recipe(recipe).tokens_per_step
    expected = products(get_recipe(recipe).model, tokens, again=remat == "full") / 8
    assert sum(planned["product_flops_per_chip"].values()) == pytest.approx(expected, rel=0.02)
    assert backward_is_twice_forward(planned) == 4


CALL = """
import os, sys
sys.path.insert(0, sys.argv[1])
from lemur_ray.train.aot import absent_devices
from lemur_ray.train.pod.gpu_hosts import GpuHosts
where = GpuHosts("h100", 1, 1)
os.environ.update(absent_devices.environment(where))
import jax, jax.numpy as jnp
from jax.sharding import SingleDeviceSharding
from lemur_ray.model.attention.dispatch import attention
from lemur_ray.model.attention.interface import Limits
device = absent_devices.devices(where)[0]
place = SingleDeviceSharding(device)
def gradients(q, k, v, ids):
    total = lambda *x: jnp.sum(attention(*x, ids, "cudnn", limits=Limits()).astype(jnp.float32))
    return jax.grad(total, (0, 1, 2))(q, k, v)
q, k = (jax.ShapeDtypeStruct((1, 32768, heads, 128), jnp.bfloat16, sharding=place) for heads in (32, 8))
ids = jax.ShapeDtypeStruct((1, 32768), jnp.int32, sharding=place)
compiled = jax.jit(gradients).lower(q, k, k, ids).compile()
text = compiled.as_text()
print(text.count("fmhaSoftmaxBackward"), text.count("32768,32768]"), compiled.memory_analysis().temp_size_in_bytes)
"""


@pytest.mark.slow
def test_no_array_of_a_compiled_row_has_the_size_of_length_times_length() -> None:
    if not COMPILER.exists():
        pytest.skip("the compiler for GPUs is not installed: make gpu-compiler")
    done = subprocess.run([str(COMPILER), "-c", CALL, str(ROOT)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    kernels, squares, temporaries = map(int, done.stdout.split())
    assert kernels > 0
    assert squares == 0
    assert temporaries < 1.1 * 2**30


def test_the_image_the_extra_the_doctor_and_the_plan_name_one_cuda() -> None:
    image = (ROOT / "cluster/images/gpu/python.txt").read_text()
    plugin = next(line for line in image.splitlines() if line.startswith("jax-cuda"))
    assert f'gpu = ["{plugin}"]' in (ROOT / "pyproject.toml").read_text()
    assert plugin.split("==")[0] in (ROOT / "lemur_ray/doctor/packages.py").read_text()
    assert set(absent_devices.PACKAGES) <= {line.split("[")[0].split("==")[0] for line in image.splitlines()}
