"""The allocator settings of worker processes."""

import subprocess
import sys

import pytest

from lemur_ray.train.on_ray.worker_environment import allocator_environment

FAULTS = """
import resource
def touch():
    b"x" * (16 << 20)  # allocated, written, freed
touch()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    touch()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def test_freed_memory_is_used_again_without_page_faults() -> None:
    def faults(env: dict[str, str]) -> int:
        done = subprocess.run([sys.executable, "-c", FAULTS], env=env, capture_output=True, text=True, check=True)
        return int(done.stdout)

    assert faults(allocator_environment()) < 100 < faults({}) / 10


def test_settings_of_the_user_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.arena_max=4:glibc.malloc.check=1")
    found = allocator_environment()["GLIBC_TUNABLES"].split(":")
    assert found[:2] == ["glibc.malloc.arena_max=4", "glibc.malloc.check=1"]
    assert sum("arena_max" in item for item in found) == 1
