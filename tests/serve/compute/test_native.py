"""The kernels for CPUs: what they compute, to the last bit in any company, and a server without a compiler."""

from __future__ import annotations

import dataclasses
import logging
import multiprocessing
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

from lemur_ray.config import ModelConfig
from lemur_ray.serve.compute import programs
from lemur_ray.serve.compute.attention import Place
from lemur_ray.serve.compute.cache_layout import PLAIN, Native, layout_for
from lemur_ray.serve.compute.cpu import kernels
from lemur_ray.serve.compute.cpu.kernels import available, build
from lemur_ray.serve.compute.cpu.panels import Packed, pack, packed_product
from lemur_ray.serve.compute.invariant import EXACT_CPU
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.loading import open_engine
from lemur_ray.weights.open_model import random_weights
from tests.serve.engine.test_engine import mixed_requests
from tests.serve.offline import generate
from tests.serve.tiny import poll

NATIVE = Native()
DTYPES = {"float32": np.float32, "bfloat16": ml_dtypes.bfloat16, "int8": np.int8}
SHAPES = [(1, 1), (7, 5), (64, 32), (64, 48), (1030, 33), (2500, 1000)]
"""Inputs and outputs: less than a word, than a panel, and more than stays in a cache."""


@pytest.fixture(autouse=True)
def compiler() -> None:
    assert available(), "no C++ compiler: apt-get install -y g++"


def draw(rng: np.random.Generator, dtype: str, *shape: int) -> np.ndarray:
    if dtype == "int8":
        return rng.integers(-127, 128, shape).astype(np.int8)
    return rng.standard_normal(shape).astype(DTYPES[dtype])


def on_device(w: np.ndarray) -> Packed:
    return jax.tree.map(jnp.asarray, pack(w))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("inputs", "outputs"), SHAPES)
def test_a_product_is_that_of_numpy_and_a_row_has_its_bits_in_any_company(
    dtype: str, inputs: int, outputs: int
) -> None:
    rng = np.random.default_rng(inputs)
    x, w = draw(rng, dtype, 70, inputs), draw(rng, dtype, inputs, outputs)
    packed, product = on_device(w), jax.jit(packed_product)
    whole = np.asarray(product(jnp.asarray(x), packed))
    exact = x.astype(np.float64) @ w.astype(np.float64)
    bound = 0 if dtype == "int8" else 1e-6 * np.abs(x).astype(np.float64) @ np.abs(w).astype(np.float64)
    assert (np.abs(whole - exact) <= bound).all()
    assert whole.dtype == (np.int32 if dtype == "int8" else np.float32)
    for rows in (1, 2, 12, 13, 31):
        assert np.array_equal(product(jnp.asarray(x[3 : 3 + rows]), packed), whole[3 : 3 + rows])


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_padding_are_zeros_whatever_is_in_them(dtype: str) -> None:
    rng = np.random.default_rng(0)
    x, w = draw(rng, dtype, 9, 40), draw(rng, dtype, 40, 50)
    whole = np.asarray(packed_product(jnp.asarray(x), on_device(w)))
    if dtype != "int8":
        x[4:] = np.nan
    for real in (0, 1, 4):
        got = np.asarray(jax.jit(packed_product)(jnp.asarray(x), on_device(w), jnp.int32(real)))
        assert np.array_equal(got[:real], whole[:real])
        assert not got[real:].any()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_what_is_no_number_is_none_after_attention(dtype: Any) -> None:
    config = CONFIGS["heads of 16"]
    place = Place(*(jnp.asarray(x, jnp.int32) for x in ([[1, 2]], [140], [1], 1)))
    q, kv = jnp.ones((1, 4, 1, 1, 16)), jnp.ones((1, 4, 16))
    cache = NATIVE.write(NATIVE.allocate(config, 3, dtype)[0], kv, kv, place)
    assert np.isfinite(NATIVE.attend(cache, q, place, EXACT_CPU)).all()
    for broken in (np.nan, np.inf):
        cache = NATIVE.write(cache, kv * broken, kv, place)
        assert np.isnan(NATIVE.attend(cache, q, place, EXACT_CPU)).all()


def test_a_model_whose_heads_the_kernel_cannot_take_is_told(caplog: pytest.LogCaptureFixture) -> None:
    odd = dataclasses.replace(CONFIGS["grouped"], head_dim=24)
    with caplog.at_level(logging.WARNING):
        assert layout_for(odd, jnp.float32, "cpu", native=True) == PLAIN
    assert "head_dim 24 is no multiple of 16" in caplog.text


CONFIGS = {
    "grouped": ModelConfig(vocab_size=70, num_layers=2, dim=48, ffn_dim=80, num_heads=4, num_kv_heads=2, head_dim=16),
    "heads of 16": ModelConfig(
        vocab_size=97, num_layers=2, dim=64, ffn_dim=96, num_heads=4, num_kv_heads=4, head_dim=16
    ),
    "heads without a kernel": ModelConfig(
        vocab_size=97, num_layers=1, dim=48, ffn_dim=80, num_heads=2, num_kv_heads=1, head_dim=24
    ),
    "heads of 80": ModelConfig(
        vocab_size=97, num_layers=1, dim=160, ffn_dim=90, num_heads=2, num_kv_heads=1, head_dim=80
    ),
}


KINDS: tuple[dict[str, Any], ...] = ({}, {"dtype": "bfloat16"}, {"quantization": "int8"})
IN_SHORT = {("grouped", 2), ("heads of 16", 0), ("heads of 80", 1), ("heads without a kernel", 0)}
"""Every model and every kind at least once; all pairs of them in `make test-all`."""


@pytest.mark.parametrize(
    ("config", "kind"),
    [
        pytest.param(
            CONFIGS[name],
            kind,
            marks=pytest.mark.slow if (name, number) in IN_SHORT else pytest.mark.sweep,
            id=f"{name} {kind}",
        )
        for name in CONFIGS
        for number, kind in enumerate(KINDS)
    ],
)
def test_an_engine_of_any_model_is_exact_without_padding(config: ModelConfig, kind: dict[str, Any]) -> None:
    options = EngineOptions(max_slots=3, context=200, prefill_tiles=2, **kind)
    engine = open_engine(random_weights(config, 0), options).start()
    assert engine.stats.batch_invariant
    engine.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", [{}, {"quantization": "int8"}], ids=str)
def test_without_a_compiler_the_same_is_said_more_slowly(
    small_engine: Callable[..., Engine], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, kind: Any
) -> None:
    requests = mixed_requests(5, seed=2)
    compiled = generate(small_engine(**kind), requests)
    monkeypatch.setattr(kernels.shutil, "which", lambda _: None)
    monkeypatch.delenv("CXX", raising=False)
    with caplog.at_level(logging.WARNING):
        assert not kernels._registered.__wrapped__()
    assert "apt-get install -y g++" in caplog.text
    monkeypatch.setattr(programs, "available", lambda: False)
    plain = small_engine(**kind)
    assert plain.stats.batch_invariant
    assert generate(plain, requests) == compiled


def test_a_compiler_that_fails_is_named_with_what_it_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho 'no space left' >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("CXX", str(broken))
    with pytest.raises(RuntimeError, match=r"broken .* ended with 3: no space left"):
        build(tmp_path / "kept")
    monkeypatch.setenv("CXX", str(tmp_path / "missing"))
    with pytest.raises(RuntimeError, match="missing"):
        build(tmp_path / "kept")
    assert not list((tmp_path / "kept").glob("*"))


def test_a_compiler_may_have_arguments_and_say_what_is_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = tmp_path / "said"
    monkeypatch.setenv("CXX", "sh -c 'printf \"d\\351j\\340: $0\" >&2; exit 4' -m64")
    with pytest.raises(RuntimeError, match="ended with 4: d\ufffdj\ufffd: -m64"):
        build(said)


@pytest.mark.slow
@pytest.mark.sweep  # the slow tier kills a build
def test_a_folder_that_cannot_keep_the_library_costs_only_its_compilation(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    with caplog.at_level(logging.WARNING):
        assert hasattr(kernels.load_or_build(tmp_path / "file" / "native"), kernels.TARGETS[0])
    assert "cannot keep them" in caplog.text


@pytest.mark.slow
@pytest.mark.sweep  # the slow tier kills a build
def test_processes_that_build_at_once_and_a_torn_library_end_with_a_whole_one(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    builders = [context.Process(target=_load, args=(tmp_path,)) for _ in range(2)]
    for builder in builders:
        builder.start()
    for builder in builders:
        builder.join(300)
    assert [builder.exitcode for builder in builders] == [0, 0]
    [library] = tmp_path.iterdir()
    library.write_bytes(library.read_bytes()[:1000])
    again = context.Process(target=_load, args=(tmp_path,))
    again.start()
    again.join(300)
    assert again.exitcode == 0
    assert list(tmp_path.iterdir()) == [library]


@pytest.mark.slow
def test_a_build_that_is_killed_leaves_nothing_that_a_later_one_would_take(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    killed = context.Process(target=_load, args=(tmp_path,))
    killed.start()
    poll(lambda: list(tmp_path.iterdir()), "the compiler runs", limit_s=60)
    killed.kill()
    killed.join(60)
    assert not list(tmp_path.glob("*.so"))
    again = context.Process(target=_load, args=(tmp_path,))
    again.start()
    again.join(300)
    assert again.exitcode == 0
    assert len(list(tmp_path.glob("*.so"))) == 1


def _load(folder: Path) -> None:
    assert hasattr(kernels.load(folder), kernels.TARGETS[0])
