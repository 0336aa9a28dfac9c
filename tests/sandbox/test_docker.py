"""What is Docker's own: the container's settings, an engine that is absent, silent or gone, orphans, the image."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from lemur_ray.sandbox.backends import debian_files, docker_engine, docker_image
from lemur_ray.sandbox.sandbox import Limits, SandboxDestroyed, SandboxSpec, SandboxUnavailable, open_sandbox
from tests.attacks.arena import in_its_next_step, keeper_pid, ready, why_no_engine

ROOT = Path(__file__).resolve().parents[2]
with_engine = [pytest.mark.docker, pytest.mark.slow]


@pytest.fixture(autouse=True)
def package() -> None:
    pytest.importorskip("docker")


@pytest.fixture
def answers() -> None:
    ready("docker")


@pytest.fixture
def silent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """An engine that takes connections and says nothing."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/s")
        yield


def test_without_an_engine_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/absent")
    with pytest.raises(SandboxUnavailable, match=r"apt-get install -y docker\.io") as raised:
        open_sandbox(SandboxSpec(), "docker")
    assert raised.value.blame == "infra"
    assert "apt-get" in why_no_engine()


def test_a_silent_engine_is_the_machines_fault_and_no_hang(silent: None) -> None:
    started = time.monotonic()
    with pytest.raises(SandboxUnavailable, match="engine"), docker_engine.client("a test", timeout_s=0.5) as api:
        api.info()
    assert time.monotonic() - started < 30.0


def test_an_engine_on_another_machine_is_refused_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://192.0.2.1:2375")
    with pytest.raises(SandboxUnavailable, match="runs on this machine"):
        open_sandbox(SandboxSpec(), "docker")


def test_the_packages_of_the_image_are_named_one_a_line() -> None:
    names = docker_image.packages()
    assert {"bash", "python3", "git"} <= set(names)
    assert all(name == name.strip() and " " not in name for name in names)
    assert docker_image.digest("a", names) != docker_image.digest("b", names)
    assert docker_image.digest("a", names) != docker_image.digest("a", names[1:])


def test_a_list_of_packages_brings_what_they_need_and_the_essential_ones() -> None:
    listing = (
        "bash\tinstalled\tyes\t\tlibc6 (>= 2.36), \n"
        "editor\tinstalled\tno\tvi (= 1), text:any\tlibx | liby, libc6:any\n"
        "liby\tinstalled\tno\t\t, \n"
        "libx\tdeinstalled\tno\t\t, \n"
        "libc6\tinstalled\tno\t\t, \n"
        "other\tinstalled\tno\t\t, \n"
    )
    assert debian_files.closure(["vi", "absent"], listing) == {"bash", "libc6", "editor", "liby"}


def test_files_of_packages_are_where_they_really_lie_with_their_folders() -> None:
    found = debian_files.files("/.\n/bin/sh\n/usr/share/doc/x\n/no/such/file\n", ("usr/share/doc",))
    real = os.path.realpath("/bin") + "/sh"
    assert real in found
    assert "/usr" in found
    assert "/no/such/file" not in found
    assert found.index("/usr") < found.index("/usr/bin")


class TestWithEngine:
    """Against an engine that answers."""

    pytestmark = with_engine

    def test_a_container_has_no_right_no_network_and_limits(self, answers: None) -> None:
        limits = Limits(memory_bytes=256 * 2**20, processes=20, disk_bytes=16 * 2**20)
        with open_sandbox(SandboxSpec(limits=limits, run="settings"), "docker") as sandbox:  # type: ignore[attr-defined]
            with docker_engine.client("to look at a container") as api:
                found = api.inspect_container(sandbox._housing.container)
            host = found["HostConfig"]
            assert (host["NetworkMode"], host["CapDrop"], host["CapAdd"]) == ("none", ["ALL"], None)
            assert host["ReadonlyRootfs"]
            assert not host["Privileged"]
            assert "no-new-privileges" in host["SecurityOpt"]
            assert limits.memory_bytes < host["Memory"] == host["MemorySwap"] < limits.memory_bytes + 100 * 2**20
            assert host["PidsLimit"] == limits.processes + 16
            assert int(found["Config"]["User"].split(":")[0]) != 0
            assert found["Config"]["Labels"]["lemur.run"] == "settings"
            assert all(not mount["RW"] for mount in found["Mounts"])

    def test_a_container_that_the_engine_ends_is_the_machines_fault(self, answers: None) -> None:
        sandbox = open_sandbox(SandboxSpec(limits=Limits(time_s=90)), "docker")
        try:
            name = sandbox._housing.container  # type: ignore[attr-defined]

            def kill() -> None:
                with docker_engine.client("to kill a container") as api:
                    api.kill(name)

            in_its_next_step(sandbox, kill)
            ended = sandbox.exec(["sleep", "85"])
            assert (ended.alive, ended.blame) == (False, "infra")
            assert ended.wall_s < 45.0
            with pytest.raises(SandboxDestroyed):
                sandbox.reset()
        finally:
            sandbox.close()

    def test_steps_and_resets_go_on_and_close_ends_all_where_the_engine_has_gone(
        self, answers: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
    ) -> None:
        sandbox = open_sandbox(SandboxSpec(), "docker")
        keeper = keeper_pid(sandbox)
        with monkeypatch.context() as patch:
            patch.setenv("DOCKER_HOST", f"unix://{tmp_path}/gone")
            sandbox.write("x", b"x")
            sandbox.reset()
            assert sandbox.exec(["ls"]).out == ""
            sandbox.close()
        deadline = time.monotonic() + 60
        while Path(f"/proc/{keeper}").exists():
            assert time.monotonic() < deadline, "the container outlives its socket"

    def test_containers_of_a_dead_run_are_gone_though_nobody_closed_them(self, answers: None) -> None:
        code = (
            "import sys\nfrom lemur_ray.sandbox.sandbox import *\n"
            "s = open_sandbox(SandboxSpec(run='doomed-docker'), 'docker')\nprint('open', flush=True)\n"
            "s.exec(['sleep', '9'])\n"
        )
        harness = subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": str(ROOT)}
        )
        assert harness.stdout
        assert harness.stdout.readline() == b"open\n"
        assert len(of_run("doomed-docker")) == 1
        harness.send_signal(signal.SIGKILL)
        harness.wait()
        harness.stdout.close()
        deadline = time.monotonic() + 60
        while of_run("doomed-docker"):
            assert time.monotonic() < deadline, "a container of a dead run is left"

    def test_a_container_is_removed_where_the_engines_answer_to_its_making_was_lost(
        self, answers: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import docker
        import requests

        made = docker.APIClient.create_container_from_config

        def lost(*args: object, **named: object) -> object:
            made(*args, **named)
            raise requests.ReadTimeout("the answer was lost")

        monkeypatch.setattr(docker.APIClient, "create_container_from_config", lost)
        with pytest.raises(SandboxUnavailable, match="the answer was lost"):
            open_sandbox(SandboxSpec(run="lost-answer"), "docker")
        assert of_run("lost-answer") == []

    def test_a_container_that_could_not_be_removed_is_removed_by_the_next_start(
        self, answers: None, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import docker
        import requests

        from lemur_ray.sandbox.backends import docker_containers

        def refused(*args: object, **named: object) -> None:
            raise requests.ReadTimeout("no answer")

        with monkeypatch.context() as patch:
            patch.setattr(docker.APIClient, "start", refused)
            patch.setattr(docker.APIClient, "remove_container", refused)
            patch.setattr(docker.APIClient, "wait", refused)
            with pytest.raises(SandboxUnavailable, match="no answer"):
                open_sandbox(SandboxSpec(run="kept-created"), "docker")
            assert len(of_run("kept-created")) == 1
        docker_containers.reap()
        assert of_run("kept-created") == []

    def test_a_container_whose_maker_is_dead_is_reaped_by_the_next_start(self, answers: None) -> None:
        from lemur_ray.sandbox.backends import docker_containers

        namespace, run = docker_containers.namespace(), f"old-{os.getpid()}"
        with docker_engine.client("to start a container") as api:
            made = [
                api.create_container(
                    docker_image.ensure().name,
                    ["sleep", "99"],
                    labels={docker_containers.MAKER: maker, "lemur.run": run},
                )["Id"]
                for maker in (f"1:5@{namespace}", "1:5@pid:[1]", docker_containers.maker_of(os.getpid()))
            ]
        try:
            docker_containers.reap()  # where another process opened a sandbox, that one's has been first
            assert set(of_run(run)) == set(made[1:]), "the living and those of another namespace stay"
        finally:
            for container in made[1:]:
                docker_containers.remove(container)


def of_run(run: str) -> list[str]:
    with docker_engine.client("to list containers") as api:
        return [found["Id"] for found in api.containers(all=True, filters={"label": f"lemur.run={run}"})]
