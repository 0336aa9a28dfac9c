"""How jobs find their cluster, and what they say where there is none, or one that they cannot use."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest

from lemur_ray.cluster import connection
from lemur_ray.host.ports import free_port


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RAY_ADDRESS", "RAY_JOB_CONFIG_JSON_ENV_VAR"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("address", "said"),
    [
        (
            "127.0.0.1:{port}",
            r"RAY_ADDRESS=127.0.0.1:\d+: no head answers there .*: start one and give its address, or",
        ),
        ("http://127.0.0.1:8265", "is a dashboard: use `ray job submit"),
        ("ray://127.0.0.1:10001", "is that of Ray Client, .*: submit to the cluster"),
    ],
)
def test_an_address_where_no_head_answers_is_said_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, address: str, said: str
) -> None:
    assert connection.HEAD_TIMEOUT_S <= 60
    monkeypatch.setattr(connection, "HEAD_TIMEOUT_S", 0.6)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setenv("RAY_ADDRESS", address.format(port=free_port()))
    began = time.monotonic()
    with pytest.raises(SystemExit, match=said):
        connection.connect()
    assert time.monotonic() - began < 50


def another_head(nodes: object, timeout: float) -> list[bool]:
    raise RuntimeError("Unauthenticated: RPC error: WrongClusterID: Perhaps the client is accessing GCS after it has")


@pytest.mark.parametrize("says", [another_head, lambda nodes, timeout: [False]], ids=["another head", "lost this host"])
def test_a_job_that_has_joined_a_cluster_ends_with_a_sentence_when_that_knows_it_no_more(
    monkeypatch: pytest.MonkeyPatch, says: Any
) -> None:
    joined, why, came = list[str](), list[str](), threading.Event()
    gcs = SimpleNamespace(check_alive=says)
    monkeypatch.setattr("ray._private.worker.global_worker.gcs_client", gcs, raising=False)
    monkeypatch.setattr("ray.get_runtime_context", lambda: SimpleNamespace(get_node_id=lambda: "ab" * 28))
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", lambda address, **options: joined.append(address))
    monkeypatch.setattr("lemur_ray.cluster.head_watch._exit", lambda said: (why.append(said), came.set()))
    monkeypatch.setattr(connection, "_wait_for_head", lambda address: None)
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert connection.connect(require_same_code=False) == "10.0.0.1:6379"
    assert came.wait(60)
    assert why[0].startswith("the head at 10.0.0.1:6379 does not know this host any more")


@pytest.mark.parametrize(
    ("differs", "said"),
    [
        ({"project": "0.0.9, source ffff"}, "project: .*b has 0.0.9, source ffff.*--working-dir"),
        ({"packages": {"ray": "2.60.0", "jax": "0.9.0"}}, "jax: .*b has jax 0.9.0: what one host writes another may"),
        ({}, ""),
    ],
)
def test_hosts_that_hold_other_code_are_refused_when_a_job_connects(
    monkeypatch: pytest.MonkeyPatch, differs: dict[str, Any], said: str
) -> None:
    from lemur_ray.doctor.hosts import survey
    from tests.doctor.test_cluster_checks import hosts

    same = {"packages": {"ray": "2.60.0", "jax": "0.10.2"}}
    found = type("Asked", (), {"hosts": hosts(same, same | differs)[1:]})
    monkeypatch.setattr(survey, "ask", lambda: found)
    nodes = [{"Alive": True, "NodeManagerAddress": f"10.0.0.{n}"} for n in range(2)]
    monkeypatch.setattr("ray.nodes", lambda: nodes)
    if not said:
        connection._refuse_other_code()
        return
    with pytest.raises(SystemExit, match=said):
        connection._refuse_other_code()
