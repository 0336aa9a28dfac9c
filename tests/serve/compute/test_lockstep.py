"""An engine over several processes with fake devices: the tokens of one, and an end for all when one is killed."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lemur_ray.host.ports import free_port
from lemur_ray.serve.loading import open_engine
from tests.serve import fake_hosts
from tests.serve.offline import generate

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

LONE = dataclasses.replace(fake_hosts.OPTIONS, tensor_parallel=1)


class Hosts:
    """A leader and its follower, as processes."""

    def __init__(self, folder: Path, *then: str, spec: str = "0", followers: int = 1, compiler: str = ""):
        """compiler: of the followers."""
        self._log = open(folder / "log.txt", "a")  # noqa: SIM115
        self._env = os.environ | {"JAX_PLATFORMS": "cpu", "XLA_FLAGS": "--xla_force_host_platform_device_count=2"}
        if followers == 3:
            self._env["XLA_FLAGS"] = "--xla_force_host_platform_device_count=1"
        coordinator = f"127.0.0.1:{free_port()}"
        self.folder = folder
        self.leader = self._start("leader", str(followers), coordinator, *then)
        self.port = self.wait_for("address")[1]
        self._env |= {"CXX": compiler} if compiler else {}
        self.followers = [
            self._start("follower", str(rank), str(followers), coordinator, str(self.port), spec)
            for rank in range(1, followers + 1)
        ]
        self.follower = self.followers[0]

    def _start(self, *arguments: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "tests.serve.fake_hosts", *arguments]
        return subprocess.Popen(command, env=self._env, stdout=subprocess.PIPE, stderr=self._log, text=True)

    def wait_for(self, what: str, limit_s: float = 200) -> Any:
        """What the leader says under that name; fails when it says nothing more."""
        timer = threading.Timer(limit_s, self.leader.kill)
        timer.start()
        try:
            for line in self.leader.stdout or ():
                if line.startswith(f'["{what}"'):
                    return json.loads(line)[1]
        finally:
            timer.cancel()
        raise AssertionError(f"the leader never said {what}: {(self.folder / 'log.txt').read_text()[-3000:]}")

    def end(self) -> None:
        for process in (self.leader, *self.followers):
            process.kill()
            process.wait()
            process.stdout.close()  # type: ignore[union-attr]
        self._log.close()


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Callable[..., Hosts]]:
    started: list[Hosts] = []

    def start(*then: str, **options: Any) -> Hosts:
        started.append(Hosts(tmp_path, *then, **options))
        return started[-1]

    yield start
    for pair in started:
        pair.end()


def test_several_processes_answer_like_one_before_and_after_new_weights(hosts: Callable[..., Hosts]) -> None:
    pair = hosts(followers=3)
    lone = open_engine(fake_hosts.load("0").source, LONE, "seed 0").start()
    assert pair.wait_for("least") == 2, "of 5, 4, 3 and 2"
    assert pair.wait_for("answers") == fake_hosts.answers(lone)
    lone.update(fake_hosts.load("1").source, "seed 1").result(60)
    assert pair.wait_for("others") == fake_hosts.answers(lone)
    assert "other hosts read the weights seed 2, this one seed 3" in pair.wait_for("refused")
    assert "follower 1: ValueError" in pair.wait_for("failed")
    assert pair.wait_for("still") == generate(lone, fake_hosts.requests()[:2])
    assert pair.wait_for("devices") == [4, 1, 0]
    lone.close()
    assert [process.wait(90) for process in (pair.leader, *pair.followers)] == [0] * 4


def test_a_follower_that_is_killed_fails_what_runs_and_all_that_comes(hosts: Callable[..., Hosts]) -> None:
    pair = hosts("wait")
    pair.wait_for("running")
    pair.follower.send_signal(signal.SIGKILL)
    finish, seconds = pair.wait_for("ended", 60)
    assert finish == "error"
    assert seconds < 20, "the line says it, not the heartbeat"
    assert "the engine died" in pair.wait_for("refused", 60)
    assert pair.wait_for("closed", 60)


def test_a_follower_that_is_killed_while_it_writes_new_weights_ends_the_engine(hosts: Callable[..., Hosts]) -> None:
    pair = hosts("swap")
    assert "is lost" in pair.wait_for("lost")
    assert pair.wait_for("ended", 60) == ["error", "seed 0"]
    assert pair.follower.wait(60) == -signal.SIGKILL


@pytest.mark.sweep  # the slow tier kills a follower
def test_a_follower_that_stands_still_ends_its_leader(hosts: Callable[..., Hosts]) -> None:
    """Its line stays open and its devices never answer: the heartbeat of jax.distributed is what notices."""
    pair = hosts("wait")
    pair.wait_for("running")
    pair.follower.send_signal(signal.SIGSTOP)
    assert pair.leader.wait(150) != 0


@pytest.mark.sweep  # the slow tier kills a follower
def test_a_leader_that_is_killed_takes_its_follower_along(hosts: Callable[..., Hosts]) -> None:
    pair = hosts("wait")
    pair.wait_for("running")
    pair.leader.send_signal(signal.SIGKILL)
    assert pair.follower.wait(90) != 0


@pytest.mark.sweep  # the slow tier kills a follower
def test_other_weights_on_another_host_stop_the_start(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    pair = hosts(spec="1")
    assert pair.leader.wait(200) != 0
    assert "other hosts read the weights seed 1, this one seed 0" in (tmp_path / "log.txt").read_text()
    assert pair.follower.wait(90) != 0


@pytest.mark.sweep  # the slow tier kills a follower
def test_a_host_without_the_kernels_of_the_others_stops_the_start(hosts: Callable[..., Hosts], tmp_path: Path) -> None:
    pair = hosts(compiler="no-such-compiler")
    assert pair.leader.wait(200) != 0
    assert "matrices of other hosts are columns, of this one packed" in (tmp_path / "log.txt").read_text()
    assert pair.follower.wait(90) != 0
