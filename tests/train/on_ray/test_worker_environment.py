"""Workers share what means the same on every host; folders of the driver on its own host alone."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from lemur_ray.config import MeshConfig, Recipe
from lemur_ray.train.on_ray import worker_environment
from lemur_ray.train.on_ray.worker_environment import adopt_driver_folders, worker_env
from lemur_ray.train.pod.compiler_options import (
    FLAGS,
    MEMORY_FRACTION_NAME,
    attention_block,
    described_settings,
    step_options,
)

NOTE = worker_environment._DRIVER_FOLDERS
FOLDERS = {"LEMUR_HOME": "/of/driver", "LEMUR_DATA": "/of/driver/data", "JAX_COMPILATION_CACHE_DIR": "/of/driver/jax"}


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name, folder in FOLDERS.items():
        monkeypatch.setenv(name, folder)
    monkeypatch.setenv("XLA_FLAGS", "--xla_cpu_enable_fast_math=false")
    return worker_env(MeshConfig())


def test_no_folder_of_the_driver_is_set_where_ray_starts_a_worker(told: dict[str, str]) -> None:
    assert not FOLDERS.keys() & told.keys()
    assert told["XLA_FLAGS"] == "--xla_cpu_enable_fast_math=false"
    assert told["JAX_PLATFORMS"] == "cpu"


def test_on_the_drivers_host_its_folders_hold_and_on_another_one_its_own(
    told: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in FOLDERS:
        monkeypatch.setenv(name, "/own")
    elsewhere = json.dumps({**json.loads(told[NOTE]), "host": "another boot of another machine"})
    for note, expected in ((elsewhere, dict.fromkeys(FOLDERS, "/own")), (told[NOTE], FOLDERS)):
        monkeypatch.setenv(NOTE, note)
        adopt_driver_folders()
        assert {name: os.environ[name] for name in FOLDERS} == expected


def test_a_process_that_was_told_nothing_keeps_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(NOTE, raising=False)
    monkeypatch.setenv("LEMUR_HOME", "/own")
    adopt_driver_folders()
    assert os.environ["LEMUR_HOME"] == "/own"


def test_where_the_code_is_comes_from_the_job_where_it_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    alone = worker_env(MeshConfig())["PYTHONPATH"].split(os.pathsep)
    assert os.path.isdir(f"{alone[0]}/lemur_ray")
    for given, said in (
        ({"working_dir": "gcs://x.zip"}, True),
        ({"env_vars": {"PYTHONPATH": "/app"}}, True),
        ({}, False),
    ):
        monkeypatch.setattr(worker_environment.ray, "is_initialized", lambda: True)
        context = type("Context", (), {"runtime_env": given})
        monkeypatch.setattr(worker_environment.ray, "get_runtime_context", lambda context=context: context)
        assert ("PYTHONPATH" not in worker_env(MeshConfig())) is said


def test_workers_get_what_the_user_set_and_on_gpu_most_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    fraction = "XLA_PYTHON_CLIENT_MEM_FRACTION"
    monkeypatch.delenv(fraction, raising=False)
    monkeypatch.setenv("NCCL_DEBUG", "INFO")
    monkeypatch.setenv("LIBTPU_INIT_ARGS", "--xla_enable_async_all_gather=true")
    gpu = worker_env(MeshConfig(use_gpu=True))
    assert (gpu[fraction], gpu["NCCL_DEBUG"]) == ("0.92", "INFO")
    tpu = worker_env(MeshConfig(use_tpu=True))
    assert tpu["LIBTPU_INIT_ARGS"] == "--xla_enable_async_all_gather=true"
    assert fraction not in tpu
    monkeypatch.setenv(fraction, "0.5")
    assert worker_env(MeshConfig(use_gpu=True))[fraction] == "0.5"


def test_an_option_of_the_compiler_that_the_user_set_is_left_to_the_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("XLA_FLAGS", raising=False)
    name = "xla_gpu_enable_latency_hiding_scheduler"
    gpu, cpu = (SimpleNamespace(platform=name, device_kind=name) for name in ("gpu", "cpu"))
    assert step_options(gpu)[name] is True
    assert step_options(cpu) == {}
    monkeypatch.setenv("XLA_FLAGS", f"--{name}=false --xla_gpu_autotune_level=0")
    assert name not in step_options(gpu)
    assert described_settings(gpu)["XLA_FLAGS"] == f"--{name}=false --xla_gpu_autotune_level=0"


def test_options_and_blocks_of_a_tpu_are_those_of_its_generation(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LIBTPU_INIT_ARGS", raising=False)
    v4, v6e = (SimpleNamespace(platform="tpu", device_kind=kind) for kind in ("TPU v4", "TPU v6 lite"))
    memory = "xla_tpu_scoped_vmem_limit_kib"
    assert (attention_block(v4), attention_block(v6e)) == (512, 2048)
    assert memory not in step_options(v4)
    assert step_options(v6e) == {**step_options(v4), memory: 98_304}
    monkeypatch.setenv("LIBTPU_INIT_ARGS", f"--{memory}=98304")
    assert attention_block(v6e) == 2048
    monkeypatch.setenv("LIBTPU_INIT_ARGS", f"--{memory}=65536")
    assert memory not in step_options(v6e)
    assert attention_block(v6e) == 512
    assert described_settings(v6e)["LIBTPU_INIT_ARGS"] == f"--{memory}=65536"


def test_settings_that_the_step_was_compiled_with_are_in_the_first_lines_and_the_result(
    run_here: Callable[..., dict], small_recipe: Callable[..., Recipe], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (*FLAGS, MEMORY_FRACTION_NAME):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NCCL_ALGO", "Ring")
    lines: list[str] = []
    run_here(small_recipe(steps=1), tmp_path / "run", lines=lines)
    first = "\n".join(lines).partition("step 1")[0]
    assert "compiled with NCCL_ALGO=Ring" in first
    assert json.loads((tmp_path / "run" / "result.json").read_text())["compiled_with"] == {"NCCL_ALGO": "Ring"}
