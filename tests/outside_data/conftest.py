"""A local Hub for every test, clients that wait for nothing, and no token of the machine's."""

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from lemur_ray.outside_data.fetching import FetchOptions, fetch
from lemur_ray.outside_data.source import DataSet, Source
from tests.outside_data.local_hub import LocalHub, serve

Fetch = Callable[..., list[str]]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[LocalHub]:
    with serve() as served:
        monkeypatch.setenv("HF_ENDPOINT", served.url)
        monkeypatch.setenv("LEMUR_GIT_MIRROR", served.url)
        monkeypatch.setenv("HF_HUB_DISABLE_TELEMETRY", "1")
        monkeypatch.setenv("HF_HUB_DISABLE_XET", "1")
        monkeypatch.setenv("HF_HOME", str(tmp_path / "hf"))
        monkeypatch.setenv("NO_PROXY", "127.0.0.1")
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.setattr("huggingface_hub.constants.HF_TOKEN_PATH", str(tmp_path / "none"))
        # Bytes that the clients ask for, or write down, at once: a broken connection costs at most so many.
        monkeypatch.setattr("huggingface_hub.constants.DOWNLOAD_CHUNK_SIZE", 10_000)
        monkeypatch.setattr("lemur_ray.outside_data.web.BLOCK", 50_000)
        yield served


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Seconds that anybody would have waited before a new try, in order."""
    waited: list[float] = []
    clock = SimpleNamespace(sleep=waited.append, time=lambda: 0.0, monotonic=lambda: 0.0)
    for module in ("huggingface_hub.file_download", "huggingface_hub.utils._http", "lemur_ray.outside_data.transfer"):
        monkeypatch.setattr(f"{module}.time", clock)
    return waited


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def fetched(tmp_path: Path, said: list[str]) -> Fetch:
    """Fetches sources of one set into ``tmp_path/data``; returns what failed."""

    def run(*sources: Source, accepted: tuple[str, ...] = (), name: str = "set/one") -> list[str]:
        return fetch([DataSet(name, "", sources)], FetchOptions(tmp_path / "data", accepted, said.append))

    return run
