"""One sandbox for each backend, reset before every attack; a neighbour that must feel nothing of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from lemur_ray.sandbox.sandbox import Limits, Sandbox, SandboxSpec, backend_named, open_sandbox
from tests.attacks.arena import BACKENDS, LIMITS, STEP_S, ready


@pytest.fixture(scope="session", params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    ready(request.param)
    return str(request.param)


@pytest.fixture(scope="session")
def neighbour(backend: str) -> Iterator[Sandbox]:
    """Another episode on the same machine."""
    sandbox = open_sandbox(SandboxSpec(limits=Limits(time_s=STEP_S), run="tests"), backend)
    yield sandbox
    sandbox.close()


@pytest.fixture(scope="session")
def shared_box(backend: str) -> Iterator[list[Sandbox]]:
    held = [open_sandbox(SandboxSpec(limits=LIMITS, run="tests"), backend)]
    yield held
    for sandbox in held:
        sandbox.close()


@pytest.fixture
def box(shared_box: list[Sandbox], neighbour: Sandbox) -> Iterator[Sandbox]:
    """A fresh tree; afterwards the harness is alive and so is the neighbour."""
    sandbox = shared_box[0]
    sandbox.reset()
    yield sandbox
    assert neighbour.exec(["sh", "-c", "(echo fine)"]).out == "fine\n"


@pytest.fixture
def guaranteed(backend: str) -> Callable[[str], None]:
    """Expect exactly what the backend says of itself: a guarantee it does not give is an xfail with its reason."""

    def check(name: str) -> None:
        capabilities = backend_named(backend).capabilities
        if not getattr(capabilities, name):
            pytest.xfail(capabilities.reasons[name])

    return check
