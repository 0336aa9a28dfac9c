"""A server that follows a run does not try for ever to take over weights that it cannot have."""

import threading
from types import SimpleNamespace
from typing import Any

import pytest

from lemur_ray.serve import loading
from lemur_ray.serve.config import EngineOptions
from tests.serve.tiny import poll


@pytest.fixture
def engine() -> Any:
    return SimpleNamespace(version="1", accepting=True, options=EngineOptions())


def test_weights_that_cannot_be_taken_over_are_tried_a_few_times_and_newer_ones_again(
    engine: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    newest, looked, tried = "2", list[str](), list[str]()

    def look(spec: str) -> Any:
        looked.append(newest)
        return SimpleNamespace(version=newest)

    def take(engine: Any, spec: str) -> str:
        tried.append(newest)
        if newest == "2":
            raise RuntimeError("these weights hold NaN")
        engine.version = newest
        return newest

    monkeypatch.setattr(loading, "open_model", look)
    monkeypatch.setattr(loading, "update_weights", take)
    following = threading.Thread(target=loading._follow, args=(engine, "run", 0.001), daemon=True)
    following.start()
    poll(lambda: len(looked) > 20, "many looks", 60)
    assert tried == ["2"] * loading.MOST_ATTEMPTS
    assert [r.message for r in caplog.records][-1] == (
        "newer weights could not be taken over, the weights stay those of 1 until there are others: these weights "
        "hold NaN"
    )
    newest = "3"
    poll(lambda: engine.version == "3", "the newer ones", 60)
    engine.accepting = False
    following.join(60)
    assert tried == ["2"] * loading.MOST_ATTEMPTS + ["3"]
