"""Ports for processes that have yet to listen."""

import socket

import pytest

from lemur_ray.host import ports
from lemur_ray.host.ports import free_port


def test_a_port_is_given_once_and_is_none_that_the_system_gives_to_others() -> None:
    found = [free_port() for _ in range(300)]
    assert len(set(found)) == 300
    with socket.create_server(("127.0.0.1", 0)) as anybody:
        assert max(found) < anybody.getsockname()[1]


def test_a_port_where_somebody_listens_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(ports, "_CHOICE", [taken.getsockname()[1]] * 300)
        assert free_port() != taken.getsockname()[1]
