"""One engine for all tests of serving; its app under uvicorn."""

from collections.abc import Callable, Iterator
from typing import Any

import httpx
import openai
import pytest

from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.http.uvicorn_server import running
from lemur_ray.serve.loading import open_engine
from lemur_ray.serve.text_engine import TextEngine
from lemur_ray.weights.open_model import random_weights
from tests.serve.tiny import OPTIONS, TINY, TOKENIZER


@pytest.fixture(scope="session")
def engine() -> Iterator[Engine]:
    engine = open_engine(random_weights(TINY, 0), OPTIONS, "tiny-0").start()
    yield engine
    engine.close()


@pytest.fixture
def small_engine() -> Iterator[Callable[..., Engine]]:
    """Makes engines with few slots, for tests that fill or break them."""
    made = []

    def make(**options: Any) -> Engine:
        small = EngineOptions(**{"max_slots": 2, "max_queue": 3, "prefill_tiles": 1, **options})
        made.append(open_engine(random_weights(TINY, 0), small))
        return made[-1].start()

    yield make
    for engine in made:
        engine.close()


@pytest.fixture
def tpu_interpreter(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Pallas kernels for TPU run here, operation by operation, in every thread."""
    from jax._src.literals import TypedInt
    from jax.experimental.pallas import tpu

    # jax 0.10.2 asks a masked store's constant index for its shape, which that class forgot to have.
    monkeypatch.setattr(TypedInt, "shape", (), raising=False)
    tpu.set_tpu_interpret_mode(True)  # type: ignore[arg-type]  # the plain interpreter: the other one knows no reshape
    yield
    tpu.set_tpu_interpret_mode(None)  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def served(engine: Engine) -> TextEngine:
    return TextEngine(engine, TOKENIZER, "tiny")


@pytest.fixture(scope="session")
def url(served: TextEngine) -> Iterator[str]:
    """Base URL of the app under uvicorn, in this process."""
    with running(served, close_engine=False) as url:
        yield url


@pytest.fixture(scope="session")
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=url, api_key="any", max_retries=0) as client:
        yield client


@pytest.fixture(scope="session")
def http(url: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=url.removesuffix("/v1"), timeout=60) as http:
        yield http
