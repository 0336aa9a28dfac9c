"""An engine's steps compiled for TPU chips that are not there, by the compiler that those chips' programs come from."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

from lemur_ray.serve.compute.ahead_of_time import abstract_weights
from lemur_ray.serve.compute.weights import Form, prepare
from lemur_ray.weights.open_model import random_weights
from tests.serve.tiny import TINY

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[3]
SMALL = ("--engine.max-slots", "16", "--engine.context", "2048")
GQA = ("--model.num-kv-heads", "8", "--model.ffn-dim", "14336", "--model.num-layers", "4")
"""The shape of Mistral 7B and Llama 3 8B, fewer layers: they are all alike."""


@pytest.fixture(autouse=True)
def _libtpu() -> None:
    if importlib.util.find_spec("libtpu") is None:
        if os.environ.get("CI"):
            pytest.fail("libtpu is not installed: in CI it must be (requirements-dev.lock)")
        pytest.skip("libtpu is not installed: pip install 'lemur-ray[tpu]'")


def plan_serving(*arguments: str, code: int = 0) -> tuple[dict[str, Any], str]:
    """The job in a process of its own, as jax must not be there before its environment is."""
    command = [sys.executable, str(ROOT / "jobs" / "plan_serving.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == code, done.stdout[-2000:] + done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1]), done.stdout + done.stderr


@pytest.mark.parametrize(("form", "scanned"), [("columns", False), ("rows", True), ("int8", False), ("int8", True)])
def test_planned_weights_have_the_shapes_of_those_that_an_engine_prepares(form: Form, scanned: bool) -> None:
    real = prepare(random_weights(TINY, 0), jnp.bfloat16, form=form, scanned=scanned)
    planned = abstract_weights(TINY, jnp.bfloat16, form, scanned=scanned)
    shapes = [jax.tree.map(lambda x: (x.shape, x.dtype), tree) for tree in (real, planned)]
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize(
    ("chip", "cache_gib", "shape"),
    [
        pytest.param("v4", 8, GQA, marks=pytest.mark.sweep),
        ("v5e", 1, ()),
        pytest.param("v6e", 8, GQA, marks=pytest.mark.sweep),
    ],
)
def test_the_kernel_is_in_both_steps_and_no_pool_is_copied(chip: str, cache_gib: int, shape: tuple[str, ...]) -> None:
    cache = ("--engine.cache-bytes", str(cache_gib * 2**30))
    found, _ = plan_serving("llama2-7b", "--chip", chip, *SMALL, *cache, *shape)
    assert found["fits"] is True
    assert [(step["rows"], step["length"], step["singles"]) for step in found["steps"]] == [(16, 1, 0), (4, 32, 16)]
    for step in found["steps"]:
        assert step["kernel"] is True
        assert step["temporaries"] - step["code"] < step["cache"] / (4 if shape else 32), (
            "the pool of a layer is there twice"
        )
        if not shape:
            assert step["weights"] == 2 * 6_738_415_616 + 2 * 65 * 4096, "norms stay float32"


def test_a_model_that_the_kernel_cannot_take_is_compiled_without_it_and_that_is_said() -> None:
    """Neither a pool of its cache is copied nor its logits, into a layout in which a row takes the memory of eight."""
    shape = ("--model.vocab-size", "151936", "--model.max-seq-len", "8192", "--engine.max-slots", "16")
    found, text = plan_serving("nano", "--chip", "v5e", *shape)
    pool = found["steps"][0]["cache"] / 8
    for step in found["steps"]:
        logits = 4 * (step["rows"] + step["singles"]) * 151_936
        assert step["temporaries"] - step["code"] < 3 * logits < pool
    assert [step["kernel"] for step in found["steps"]] == [False, False]
    assert text.count("attention without the kernel for TPU: the paged kernel needs heads of a multiple of 128") >= 1


def test_a_model_that_is_too_large_for_the_chip_is_said_not_to_fit() -> None:
    arguments = ("llama2-13b", "--chip", "v5e", "--model.num-layers", "40", *SMALL)
    command = [sys.executable, str(ROOT / "jobs" / "plan_serving.py"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=500)
    assert done.returncode == 1, done.stdout
    assert "Ran out of memory on HBM" in done.stderr
    assert "Traceback" not in done.stderr
