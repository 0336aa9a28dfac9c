"""The doctor on made-up hosts of a cluster: what differs, what lacks, and that each ill says what to do."""

from __future__ import annotations

import dataclasses
import os
import pickle
import sys
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.doctor.hosts import consistency, headroom, host_facts, slices
from lemur_ray.doctor.hosts.cluster_checks import checks
from lemur_ray.doctor.hosts.host_facts import HostFacts
from lemur_ray.doctor.machine import Check
from lemur_ray.doctor.resources import GIB

LOCK = {"ray": "2.60.0", "jax": "0.10.2"}
WELL = HostFacts(
    "head",
    "10.0.0.1",
    python="3.12.1",
    project="0.1.0, source 0123456789ab",
    packages={**LOCK, "jax": "0.10.2+local", "unpinned": "1"},
    disk_free={"/root/lemur": 50 * GIB, "/tmp": 40 * GIB},
    shm_bytes=8 * GIB,
    cpus=4.0,
    store_bytes=2 * GIB,
)


def hosts(*changes: dict[str, Any]) -> list[HostFacts]:
    """The head, and hosts a, b, ... that differ from it."""
    head = dataclasses.replace(WELL, is_head=True)
    return [head, *(dataclasses.replace(WELL, name=chr(97 + i), **change) for i, change in enumerate(changes))]


def tpu_hosts(*changes: dict[str, str], chips: int = 4, topology: str = "2x2x2") -> list[HostFacts]:
    names = ",".join(f"host-{i}.svc" for i in range(len(changes)))
    return [
        dataclasses.replace(
            WELL,
            name=f"host-{i}",
            chips=chips,
            tpu={
                "TPU_NAME": "slice-1",
                "TPU_WORKER_ID": str(i),
                "TPU_WORKER_HOSTNAMES": names,
                "TPU_TOPOLOGY": topology,
                **change,
            },
        )
        for i, change in enumerate(changes)
    ]


def ill(check: Check, *said: str, status: str = "missing") -> None:
    assert check.status == status, check
    assert check.fix, "an ill says what to do"
    for word in said:
        assert word in f"{check.found} {check.fix}", check


def test_a_cluster_on_which_all_is_well_asks_for_nothing() -> None:
    found = checks(hosts({}, {}), {}, 12.0, LOCK)
    assert [check for check in found if check.status != "ok" or check.fix] == []
    assert {"hosts", "python", "project", "packages", "clocks", "tpu", "disks", "object stores", "cores for data"} == {
        check.name for check in found
    }


def test_a_host_with_another_project_or_python_is_named_with_what_it_has() -> None:
    other = hosts({}, {"project": "0.0.9, source ffff", "python": "3.11.2"})
    ill(consistency.project(other), "b has 0.0.9, source ffff", "0.1.0, source 0123456789ab on most", "--working-dir .")
    ill(consistency.python(other), "b has 3.11.2", "one image")
    ill(consistency.project(hosts({"project": ""})), "a has none")
    ill(consistency.project(hosts({"project": "else"})), "a has else")  # of two, the head is right


def test_packages_are_those_of_the_lock_or_else_of_most_hosts() -> None:
    odd = hosts({}, {"packages": {"ray": "2.59.0", "unpinned": "1"}})
    ill(consistency.packages(odd, LOCK), "b: ray 2.59.0 (expected 2.60.0), jax absent (expected 0.10.2)", "# on b")
    ill(consistency.packages(odd, {}), "on 1 of 3 hosts: b: ")
    more = hosts({"packages": {**LOCK, "libtpu": "0.0.42"}})
    assert consistency.packages(more, LOCK).status == "ok", "hosts with chips have more than the lock"
    assert consistency.packages([*more, *more[1:]], {}).status == "ok", (
        "and most hosts may be those, where no lock is there"
    )
    assert consistency.shared_packages(odd).status == "missing"
    ill(consistency.shared_packages(odd), "b has ray 2.59.0", "one image")
    assert consistency.shared_packages(hosts({"packages": {"other": "1"}})).status == "ok", (
        "what is absent crosses nowhere"
    )
    same = {
        consistency.packages(hosts({}), LOCK).found,
        consistency.packages(hosts({}), dict(reversed(LOCK.items()))).found,
    }
    assert len(same) == 1


@pytest.mark.parametrize(("ahead_s", "status"), [(0.5, "ok"), (-10.0, "warn"), (10.0, "warn"), (-600.0, "missing")])
def test_a_clock_that_follows_nobody_is_named(ahead_s: float, status: str) -> None:
    check = consistency.clocks(hosts({}, {"clock_ahead_s": ahead_s}, {}))
    assert check.status == status
    if status != "ok":
        ill(check, "b is", "ahead" if ahead_s > 0 else "behind", f"{abs(ahead_s):.1f} s", "set-ntp", status=status)


def test_a_clock_that_could_not_be_read_well_is_not_blamed() -> None:
    assert consistency.clocks(hosts({"clock_ahead_s": 5.0, "clock_unsure_s": 4.0})).status == "ok"


def test_a_slice_that_is_whole_is_well() -> None:
    (check,) = slices.slices(tpu_hosts({}, {}))
    assert (check.status, check.found) == ("ok", "2 hosts, 8 chips")
    assert slices.slices(hosts({}))[0].found == "no TPU host"


def test_numbers_of_hosts_that_are_twice_or_absent_are_named() -> None:
    (check,) = slices.slices(tpu_hosts({}, {"TPU_WORKER_ID": "0"}))
    ill(check, "host-0, host-1 are all TPU_WORKER_ID 0", "TPU_WORKER_ID 1 is not there", "webhook")
    (check,) = slices.slices(tpu_hosts({}, {}, {}, {}, topology="2x2x4")[:2])
    ill(check, "of 4 hosts TPU_WORKER_ID 2, 3 are not there", "works whole")
    (check,) = slices.slices(tpu_hosts({}, {"TPU_WORKER_ID": "one"}))
    ill(check, "host-1: TPU_WORKER_ID is 'one'")


def test_names_without_an_address_and_chips_without_a_slice_are_named() -> None:
    whole = tpu_hosts({}, {})
    lost = [whole[0], dataclasses.replace(whole[1], unresolved=("host-0.svc",))]
    ill(slices.slices(lost)[0], "host-1 finds no address of host-0.svc", "25 characters")
    nameless = [*whole, dataclasses.replace(WELL, name="stray", chips=4)]
    ill(slices.slices(nameless)[0], "stray have chips, but TPU_NAME is not set")
    ill(slices.slices(tpu_hosts({}, {"TPU_WORKER_HOSTNAMES": "a,b"}))[0], "2 different TPU_WORKER_HOSTNAMES")
    alone = tpu_hosts({"TPU_WORKER_HOSTNAMES": ""}, {"TPU_WORKER_HOSTNAMES": ""})
    ill(slices.slices(alone)[0], "none of its 2 hosts has TPU_WORKER_HOSTNAMES", "webhook")
    assert slices.slices(tpu_hosts({"TPU_WORKER_HOSTNAMES": ""}, topology="2x2x1"))[0].status == "ok", "of one host"


def test_chips_that_do_not_make_the_topology_are_counted() -> None:
    (check,) = slices.slices(tpu_hosts({}, {}, {}, topology="4x4"))
    ill(check, "topology 4x4 has 16 chips, 3 hosts with 4 have 12", "numOfHosts: 4")
    whole = tpu_hosts({}, {}, {}, {}, topology="4x4")
    (check,) = slices.slices([*whole[:3], dataclasses.replace(whole[3], chips=3)])
    ill(check, "host-3 has 3 chips, the others 4", 'google.com/tpu: "4"')


def test_two_slices_are_two_lines() -> None:
    other = [dataclasses.replace(host, tpu={**host.tpu, "TPU_NAME": "slice-2"}) for host in tpu_hosts({}, {})]
    assert [check.name for check in slices.slices([*tpu_hosts({}, {}), *other])] == ["tpu slice-1", "tpu slice-2"]


def test_the_smallest_disk_and_store_decide() -> None:
    ill(headroom.disks(hosts({}, {"disk_free": {"/x": GIB}})), "least on b: 1.0 GiB free at /x", "LEMUR_HOME")
    ill(headroom.disks(hosts({"disk_free": {"/x": 5 * GIB}})), "least on a", status="warn")
    ill(headroom.object_stores(hosts({"store_bytes": GIB // 8})), "least on a: 0.12 GiB", status="warn")
    ill(headroom.object_stores(hosts({"shm_bytes": 64 << 20})), "a: object store of 2.0 GiB", "emptyDir", status="warn")


def test_a_full_cluster_and_one_that_training_would_fill_are_said() -> None:
    ill(headroom.cores_for_data(hosts({}, {}), 0.5), "0.5 of 12 CPUs are free", "waits until", "ray job list")
    small = [dataclasses.replace(host, cpus=0.0 if host.is_head else 1.0) for host in hosts({}, {})]
    ill(headroom.cores_for_data(small, 2.0), "2 CPUs on 3 hosts", "leaves none for Ray Data", status="warn")
    assert headroom.cores_for_data([*small, dataclasses.replace(WELL, name="c", cpus=2.0)], 4.0).status == "ok"
    alone = [dataclasses.replace(WELL, cpus=0.0, is_head=True)]
    ill(headroom.cores_for_data(alone, 0.0), "0 of 0 CPUs", "ray start --address")
    assert "may grow to 128" in headroom.cores_for_data(alone, 0.0, 128.0).found, (
        "a pool that is empty until it is asked"
    )
    assert (
        headroom.cores_for_data(alone, 0.0, 128.0).status
        == headroom.cores_for_data(hosts({}), 0.0, 128.0).status
        == "ok"
    )


def test_a_host_that_does_not_answer_is_named_and_the_others_are_looked_at() -> None:
    found = checks(hosts({}), {"b (10.0.0.3)": "no answer within 60 s"}, 4.0, LOCK)
    ill(found[0], "1 of 3 do not answer: b (10.0.0.3): no answer within 60 s")
    assert len(found) > 5
    assert len(checks([], {"b": "gone"}, 0.0, LOCK)) == 1


def test_every_host_has_a_name_of_its_own_and_what_many_are_told_is_said_once() -> None:
    from lemur_ray.doctor.hosts.survey import _names

    nodes = [{"NodeManagerHostname": name, "NodeManagerAddress": f"10.0.0.{i // 2}", "NodeManagerPort": i}
             for i, name in enumerate(("head", "box", "box", "box"))]  # fmt: skip
    assert _names(nodes) == ["head", "box 10.0.0.0", "box 10.0.0.1 2", "box 10.0.0.1 3"]
    odd = [dataclasses.replace(WELL, name=f"host-{i}", python="3.11.2") for i in range(9)]
    well = [dataclasses.replace(WELL, name=f"well-{i}") for i in range(10)]
    assert "but host-0, host-1, host-2, host-3 and 5 more has 3.11.2:" in consistency.python([*well, *odd]).found


def test_a_host_knows_what_it_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TPU_WORKER_HOSTNAMES", "localhost,no-such-host.invalid")
    monkeypatch.setenv("LEMUR_HOME", str(tmp_path / "not/yet"))
    found = HostFacts(**host_facts.here())
    assert found.unresolved == ("no-such-host.invalid",)
    assert found.packages["ray"] == "2.60.0"
    assert found.disk_free[str(tmp_path / "not/yet")] > 0
    assert found.project == host_facts.project(sys.path)
    assert pickle.loads(pickle.dumps(host_facts.here()))["name"] == os.uname().nodename


def test_the_project_is_what_would_be_imported_and_its_hash_changes_with_it(tmp_path: Path) -> None:
    assert host_facts.project([str(tmp_path)]) == ""
    for name in host_facts.PACKAGES_OF_OURS:
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").touch()
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "lemur-ray"\nversion = "7.7"\n')
    before = host_facts.project([str(tmp_path), *sys.path])
    assert before.startswith("7.7, source ")
    assert host_facts.project([*sys.path, str(tmp_path)]) != before
    for more in ("envs/more.py", "envs/table.toml", "envs/prompt.txt", "lemur_ray/kernel.cc"):
        (tmp_path / more).write_text("x = 1\n")
        assert host_facts.project([str(tmp_path), *sys.path]) != before, more
        before = host_facts.project([str(tmp_path), *sys.path])
