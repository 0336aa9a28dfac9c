"""Weights written over the present ones: replies that have begun, and an engine whose source fails meanwhile."""

from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import Mock

import jax
import numpy as np
import pytest

from lemur_ray.serve.compute import programs
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.engine.errors import EngineClosed, WeightsNotReplaced
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.engine.sampling_options import SamplingOptions
from lemur_ray.serve.loading import open_engine
from lemur_ray.weights.open_model import HostWeights, random_weights
from lemur_ray.weights.param_slices import Index
from tests.serve.offline import generate
from tests.serve.tiny import TINY, Waiter, poll, prompts, slowed
from tests.weights.whole_models import whole

OTHER = random_weights(TINY, 1)


@pytest.fixture(autouse=True)
def no_second_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every model counts as a large one."""
    monkeypatch.setattr(programs, "MAX_SECOND_COPY_BYTES", 0)


SMALL = {"max_slots": 4, "max_queue": 8, "prefill_tiles": 1}


@pytest.fixture
def small(small_engine: Callable[..., Engine]) -> Engine:
    return small_engine(**SMALL)


@pytest.fixture(scope="module")
def other() -> Iterator[Engine]:
    """An engine that never had other weights."""
    engine = open_engine(OTHER, EngineOptions(**SMALL)).start()
    yield engine
    engine.close()


def requests() -> list[Generation]:
    return [
        Generation(p, 60, SamplingOptions(temperature=float(i % 2), seed=i), logprobs=i == 2)
        for i, p in enumerate(prompts(4, seed=60))
    ]


def swapped(small: Engine, in_flight: Any) -> list[dict[str, list[int]]]:
    """What replies that had begun consist of, if the weights were replaced meanwhile."""
    begun = [Waiter(small, r) for r in requests()]
    with slowed(small, 0.02):
        assert all(not w.next().finish for w in begun)
        small.update(OTHER, "second", in_flight).result(timeout=60)
    return [{"": w.tokens[:1]} | {v: w.tokens[:1] * (not v) + t for v, t in w.by_version().items()} for w in begun]


def test_replies_that_have_begun_go_on_as_if_the_new_weights_had_been_given_all_before(
    small: Engine, other: Engine
) -> None:
    asked = requests()
    old = generate(small, asked)
    for request, parts, all_old in zip(asked, swapped(small, "recompute"), old, strict=True):
        assert list(parts) == ["", "+second"]
        before, after = parts.values()
        assert before == all_old[: len(before)]
        again = Generation((*request.prompt, *before), request.max_tokens - len(before), request.sampling)
        assert after == generate(other, [again])[0]
    assert small.stats.recompiles_after_warmup == 0
    assert generate(small, asked) == generate(other, asked)


def test_kept_replies_go_on_with_their_keys_and_values_and_say_so(small: Engine, other: Engine) -> None:
    old = generate(small, requests())
    for parts, all_old in zip(swapped(small, "keep"), old, strict=True):
        assert list(parts) == ["", "+second-kept"]
        assert parts[""] == all_old[: len(parts[""])]
        assert sum(map(len, parts.values())) == 60
    assert small.stats.recomputed_tokens == 0
    assert generate(small, requests()) == generate(other, requests())
    assert small.stats.blocks_held == 0


def test_a_reply_without_a_token_comes_from_the_new_weights_alone(small: Engine, other: Engine) -> None:
    long = Generation(prompts(1, seed=64, low=200, high=201)[0], 8, prompt_logprobs=True)
    with slowed(small, 0.1):
        waiter = Waiter(small, long)
        poll(lambda: small.stats.prefill_tokens, "the prompt has begun")
        small.update(OTHER, "second").result(timeout=60)
    event = waiter.next()
    scores = Waiter(other, long).next().prompt_logprobs
    assert event.version == "second"
    np.testing.assert_array_equal(event.prompt_logprobs.logprob, scores.logprob)  # type: ignore[union-attr]
    while event.finish is None:
        event = waiter.next()
    assert waiter.tokens == generate(other, [long])[0]


class Failing(HostWeights):
    """Weights that can be read once."""

    passes = 0

    def read(self, label: str, index: Index, dtype: np.dtype[Any] | None = None) -> np.ndarray:
        self.passes += label == "embed"
        if self.passes == 2 and label == "layers.down":
            raise OSError("the file is gone")
        return super().read(label, index, dtype)


def test_an_engine_whose_weights_are_half_replaced_ends_and_its_replies_fail(small: Engine) -> None:
    begun = Waiter(small, Generation((5, 6), 200))
    with slowed(small, 0.02):
        begun.next()
        with pytest.raises(EngineClosed, match=r"partly overwritten.*the file is gone"):
            small.update(Failing(whole(OTHER), TINY), "second").result(timeout=60)
    assert begun.end().finish == "error"
    with pytest.raises(EngineClosed):
        small.submit(Generation((5,), 2), lambda _: None)


def test_weights_that_are_gone_before_the_first_is_overwritten_leave_the_old_ones_in_use(small: Engine) -> None:
    source = HostWeights(whole(OTHER), TINY)
    begun = Waiter(small, Generation((5, 6), 40))
    with slowed(small, 0.02):
        begun.next()
        small.stage(source, "second")
        source.read = Mock(side_effect=FileNotFoundError("the checkpoint is deleted"))  # type: ignore[method-assign]
        with pytest.raises(WeightsNotReplaced, match="the checkpoint is deleted"):
            small.commit("second").result(timeout=60)
    assert begun.end().finish == "length"
    small.update(OTHER, "third").result(timeout=60)
    assert small.version == "third"


def test_a_commit_whose_engine_fails_before_the_switch_is_told(small: Engine) -> None:
    small.stage(OTHER, "second")
    small._batch.settle = Mock(side_effect=RuntimeError("the device is lost"))  # type: ignore[method-assign]
    with pytest.raises(RuntimeError, match="the device is lost"):
        small.commit("second").result(timeout=60)


def test_what_is_committed_is_neither_dropped_nor_committed_again(small: Engine) -> None:
    small.stage(OTHER, "second")
    small.compute.drop = Mock()  # type: ignore[method-assign]
    committed = small.commit("second")
    small.drop()
    committed.result(timeout=60)
    small.compute.drop.assert_not_called()
    assert small.version == "second"


def test_what_is_staged_changes_nothing_until_that_version_is_committed(small: Engine) -> None:
    asked = requests()
    before = generate(small, asked)
    small.stage(OTHER, "second")
    diverged = HostWeights(jax.tree.map(lambda leaf: np.full_like(leaf, np.nan), whole(OTHER)), TINY)
    with pytest.raises(ValueError, match="weights third are not staged, but second"):
        small.commit("third")
    with pytest.raises(ValueError, match="NaN"):
        small.stage(diverged, "third")
    with pytest.raises(ValueError, match="weights second are not staged, but none"):
        small.commit("second")
    small.stage(OTHER, "second")
    small.drop()
    with pytest.raises(ValueError, match="but none"):
        small.commit("second")
    assert generate(small, asked) == before
