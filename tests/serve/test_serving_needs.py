"""What serving needs before it begins: a model that does not fit is refused with what would do, a small one is not."""

from __future__ import annotations

import importlib
import importlib.util
import socket
from dataclasses import replace

import pytest

from lemur_ray.cluster import connection
from lemur_ray.doctor.devices import Devices
from lemur_ray.host.ports import free_port
from lemur_ray.serve.config import EngineOptions, Hosts, ServeJob
from lemur_ray.serve.needs import GIB, NotServed, check_job
from tests.conftest import ROOT

LAPTOP = Devices(cpus=2, memory_bytes=20 * GIB)


def job(**options: object) -> ServeJob:
    return ServeJob(no_ray=True, engine=EngineOptions(**options))  # type: ignore[arg-type]


def test_a_model_that_does_not_fit_is_refused_with_the_flags_under_which_it_would() -> None:
    with pytest.raises(NotServed, match=r"6\.7 billion parameters as float32 take 25\.1 GiB, this machine has 20\.0"):
        check_job("random:llama2-7b", job(), LAPTOP)
    with pytest.raises(NotServed, match=r"take --engine\.dtype bfloat16 or --engine\.quantization int8"):
        check_job("random:llama2-7b", job(), LAPTOP)
    check_job("random:llama2-7b", job(dtype="bfloat16"), LAPTOP)
    check_job("random:llama2-7b", job(quantization="int8"), LAPTOP)
    with pytest.raises(NotServed, match=r"take a smaller model, or more GPUs"):
        check_job("random:llama2-70b", job(), LAPTOP)


def test_what_fits_is_not_refused() -> None:
    check_job("random:nano", job(), LAPTOP)
    check_job("random:llama2-70b", job(), replace(LAPTOP, gpus=8, gpu_bytes=640 * GIB))
    check_job("random:llama2-70b", job(), Devices(cpus=1000, in_cluster=True))


def test_everything_that_lacks_is_in_one_list() -> None:
    wanted = ServeJob(replicas=4, hosts=Hosts(use_gpu=True), engine=EngineOptions(tensor_parallel=2))
    with pytest.raises(NotServed) as refused:
        check_job("random:llama2-7b", wanted, LAPTOP)
    said = str(refused.value).splitlines()
    assert "take 4 CPU cores; this machine has 2 CPU cores" in said[1]
    assert "take 8 GPUs; this machine has 2 CPU cores, 0 GPUs" in said[2]
    assert "100.4 GiB in 4 replicas" in said[3]


def test_gpus_that_are_there_are_asked_for_and_said_where_they_are_too_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    found = replace(LAPTOP, gpus=1, gpu_bytes=80 * GIB)
    check_job("random:nano", ServeJob(), found)
    two = ServeJob(replicas=2)
    with pytest.raises(NotServed, match=r"2 replica\(s\) take 2 GPUs; .* 1 GPUs .*JAX_PLATFORMS=cpu"):
        check_job("random:nano", two, found)
    check_job("random:nano", replace(job(), replicas=1), replace(found, gpus=0))
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    check_job("random:nano", two, found)


def test_an_engine_that_is_not_installed_is_in_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(NotServed, match=r"(?s)pip install 'lemur-ray\[vllm\]'.*take 1 GPUs"):
        check_job("random:nano", ServeJob(backend="vllm"), LAPTOP)


def test_the_job_says_it_before_anything_is_started(
    lemur_home: object, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.syspath_prepend(str(ROOT / "jobs"))
    monkeypatch.setattr(connection, "connect", lambda **options: pytest.fail("Ray was started"))
    monkeypatch.setattr(connection, "available_devices", lambda **options: LAPTOP)
    assert importlib.import_module("serve").main(["--model", "random:llama2-70b"]) == 1
    assert "random:llama2-70b is not served:\n- memory: 69.0 billion parameters" in capsys.readouterr().err


def test_a_port_where_somebody_listens_is_refused_before_a_model_is_loaded() -> None:
    port = free_port()  # no port that another program may be given as soon as it is free again
    with socket.create_server(("127.0.0.1", port)):
        with pytest.raises(NotServed, match=rf"port {port} of 127\.0\.0\.1: somebody listens .*--port"):
            check_job("random:nano", replace(job(), port=port), LAPTOP)
        # In a cluster Serve may listen there itself, and the head is another machine.
        check_job("random:nano", ServeJob(port=port), replace(LAPTOP, in_cluster=True))
    check_job("random:nano", replace(job(), port=port), LAPTOP)


def test_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(NotServed, match=r"--host 192\.0\.2\.1: Cannot assign requested address: give"):
        check_job("random:nano", replace(job(), host="192.0.2.1"), LAPTOP)
