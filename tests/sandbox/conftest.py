"""A small sandbox of each backend that every test finds clean."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lemur_ray.sandbox.sandbox import Limits, Sandbox, SandboxSpec, open_sandbox
from tests.attacks.arena import BACKENDS, ready

LIMITS = Limits(time_s=30.0, disk_bytes=8 * 2**20, inodes=1000)


@pytest.fixture(scope="session", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    ready(request.param)
    return str(request.param)


@pytest.fixture(scope="session")
def opened(backend: str) -> Iterator[Sandbox]:
    sandbox = open_sandbox(SandboxSpec(limits=LIMITS, run="tests"), backend)
    yield sandbox
    sandbox.close()


@pytest.fixture
def box(opened: Sandbox) -> Sandbox:
    opened.reset()
    return opened
