"""An engine whose attention is the kernel for TPU, run by Pallas' interpreter, beside one with the plain layout."""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from lemur_ray.serve.compute import programs
from lemur_ray.serve.compute.cache_layout import PLAIN, CacheLayout
from lemur_ray.serve.compute.paged_cache import Paged
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.loading import open_engine
from lemur_ray.weights.open_model import random_weights
from tests.serve.offline import generate
from tests.serve.tiny import TINY, prompts

pytestmark = pytest.mark.slow

CONFIG = replace(TINY, head_dim=128)


@pytest.fixture
def engine_with(monkeypatch: pytest.MonkeyPatch, tpu_interpreter: None) -> Iterator[Callable[[CacheLayout], Engine]]:
    made = []

    def make(layout: CacheLayout) -> Engine:
        monkeypatch.setattr(programs, "layout_for", lambda *_: layout)
        options = EngineOptions(max_slots=3, max_queue=16, prefill_tiles=2, batch_invariant=False)
        made.append(open_engine(random_weights(CONFIG, 0), options).start())
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.mark.sweep  # the slow tier compares the layouts in test_cache_layouts
def test_greedy_tokens_do_not_depend_on_the_layout(engine_with: Callable[[CacheLayout], Engine]) -> None:
    some = prompts(6, seed=5, low=1, high=150)
    # The same beginning again, some of it in blocks that are shared and some in one that is copied.
    some += [(*some[0][:40], 9), some[1] * 3, (*some[1] * 3, 11, 12)]
    requests = [Generation(prompt[:220], 12) for prompt in some]
    found = []
    for layout in (PLAIN, Paged()):
        engine = engine_with(layout)
        found.append((generate(engine, requests), generate(engine, requests[-2:])))
        assert engine.stats.recompiles_after_warmup == 0
        assert engine.stats.cached_tokens > 0
    assert found[0] == found[1]
