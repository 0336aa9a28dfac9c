"""Log-probabilities of what is generated and of prompts: right, and the same however they came about."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
import torch

from lemur_ray.model.llama import init_params
from lemur_ray.serve.compute.attention import block_bytes
from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.engine.sampling_options import SamplingOptions
from lemur_ray.serve.engine.token_logprobs import TokenLogprobs
from tests.serve.engine.test_parity import oracle
from tests.serve.tiny import TINY, Waiter, prompts

Make = Callable[..., Engine]


@pytest.fixture(scope="module")
def expected() -> Callable[[Sequence[int]], np.ndarray]:
    """Log-softmax of transformers after every token of a sequence."""
    model = oracle(init_params(TINY, 0), TINY)

    def run(tokens: Sequence[int]) -> np.ndarray:
        with torch.no_grad():
            return torch.log_softmax(model(torch.tensor([list(tokens)])).logits[0], -1).numpy()

    return run


@pytest.fixture
def alone(small_engine: Make) -> Engine:
    return small_engine(max_slots=8, max_queue=8)


def scored(
    engine: Engine, prompt: Sequence[int], new: int = 1, **settings: float
) -> tuple[list[int], TokenLogprobs, TokenLogprobs]:
    """Generated ids, their logprobs, and those of the prompt."""
    waiter = Waiter(
        engine, Generation(tuple(prompt), new, SamplingOptions(**settings), logprobs=True, prompt_logprobs=True)
    )  # type: ignore[arg-type]
    events = [waiter.next()]
    while events[-1].finish is None:
        events.append(waiter.next())
    own = [event.logprobs for event in events if event.logprobs is not None]
    (of_prompt,) = [event.prompt_logprobs for event in events if event.prompt_logprobs is not None]
    return waiter.tokens, TokenLogprobs(*map(np.concatenate, zip(*own, strict=True))), of_prompt


def assert_equal(one: TokenLogprobs, other: TokenLogprobs) -> None:
    assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(one, other, strict=True))


def test_scores_are_those_of_transformers(alone: Engine, expected: Callable) -> None:
    (prompt,) = prompts(1, low=90, high=91)
    tokens, own, of_prompt = scored(alone, prompt, 5, temperature=1.0, seed=3)
    reference = expected([*prompt, *tokens])
    assert np.isnan(of_prompt.logprob[0])
    assert np.isnan(of_prompt.top_logprobs[0]).all()
    whole = np.concatenate([of_prompt.logprob[1:], own.logprob])
    assert np.abs(whole - reference[np.arange(len(whole)), [*prompt[1:], *tokens]]).max() < 1e-5
    top_ids, top = (
        np.concatenate([of_prompt.top_ids[1:], own.top_ids]),
        [*of_prompt.top_logprobs[1:], *own.top_logprobs],
    )
    assert np.abs(np.array(top) - np.take_along_axis(reference[:-1], top_ids, -1)).max() < 1e-5
    assert np.array_equal(np.array(top)[:, 0], np.array(top).max(1))


@pytest.mark.parametrize("length", [2, 31, 32, 33, 127, 128, 129, 200])
def test_scores_from_the_cache_are_bit_for_bit_those_of_a_cold_run(length: int, small_engine: Make) -> None:
    (prompt,) = prompts(1, seed=length, low=length, high=length + 1)
    cold = scored(small_engine(), prompt)[2]
    engine = small_engine()
    for begin in ([9], prompt[: length // 2], prompt):  # something else, half of it, all of it
        scored(engine, begin)
    computed = engine.stats.prefill_tokens
    assert_equal(scored(engine, prompt)[2], cold)
    assert engine.stats.prefill_tokens - computed <= max(2, 1 + length % 128 if length % 128 < 18 else 2)


def test_a_header_is_scored_once_for_all_questions(alone: Engine) -> None:
    header, *questions = prompts(5, seed=1, low=150, high=151)
    cold = [scored(alone, (*header, *q[:20]))[2] for q in questions]
    computed = alone.stats.prefill_tokens
    assert computed <= 170 + 3 * 21 + 3
    waiters = [Waiter(alone, Generation((*header, *q[:20]), 1, prompt_logprobs=True)) for q in questions]
    for waiter, first in zip(waiters, cold, strict=True):
        found = waiter.end().prompt_logprobs
        assert found is not None
        assert_equal(found, first)
    assert alone.stats.prefill_tokens - computed <= 4 * 2


def test_what_was_generated_has_the_same_scores_when_it_comes_back_as_a_prompt(alone: Engine) -> None:
    (prompt,) = prompts(1, seed=7, low=60, high=61)
    tokens, own, _ = scored(alone, prompt, 30, temperature=0.9, seed=5)
    again = scored(alone, (*prompt, *tokens))[2]
    assert_equal(again.part(len(prompt), len(prompt) + len(tokens)), own)


def test_cached_tokens_without_scores_are_computed_for_those_who_want_scores(alone: Engine) -> None:
    (prompt,) = prompts(1, seed=8, low=140, high=141)
    Waiter(alone, Generation(prompt, 1)).end()
    first = scored(alone, prompt)[2]
    assert not np.isnan(first.logprob[1:]).any()
    Waiter(
        alone, Generation((*prompt[:100], *prompt[:30]), 1)
    ).end()  # leaves tokens without logprobs behind the header
    mixed = scored(alone, (*prompt[:100], *prompt[:40]))[2]
    assert_equal(mixed.part(0, 100), first.part(0, 100))
    assert not np.isnan(mixed.logprob[1:]).any()


def test_scores_do_not_depend_on_load_or_on_being_preempted(small_engine: Make) -> None:
    asked = prompts(6, seed=9, low=100, high=120)
    quiet = small_engine(max_slots=8, max_queue=8)
    lone = [scored(quiet, p, 40, temperature=1.0, seed=i) for i, p in enumerate(asked)]
    tight = small_engine(max_slots=8, max_queue=8, cache_bytes=5 * block_bytes(TINY))
    waiters = [
        Waiter(tight, Generation(p, 40, SamplingOptions(temperature=1.0, seed=i), logprobs=True, prompt_logprobs=True))
        for i, p in enumerate(asked)
    ]
    for waiter, (tokens, own, of_prompt) in zip(waiters, lone, strict=True):
        events = []
        while not events or events[-1].finish is None:
            events.append(waiter.next())
        assert waiter.tokens == tokens
        assert_equal(
            TokenLogprobs(*map(np.concatenate, zip(*(e.logprobs for e in events if e.logprobs), strict=True))), own
        )
        (found,) = [e.prompt_logprobs for e in events if e.prompt_logprobs is not None]
        assert_equal(found, of_prompt)
    assert tight.stats.preemptions


def test_a_prompt_can_be_scored_without_generating_and_may_fill_the_whole_context(alone: Engine) -> None:
    (prompt,) = prompts(1, seed=2, low=TINY.max_seq_len, high=TINY.max_seq_len + 1)
    waiter = Waiter(alone, Generation(prompt, 0, prompt_logprobs=True))
    event = waiter.end()
    assert (event.tokens, event.finish) == ((), "length")
    assert event.prompt_logprobs is not None
    assert np.isnan(event.prompt_logprobs.logprob).sum() == 1
    with pytest.raises(ValueError, match="at least one prompt token"):
        alone.submit(Generation(prompt[:5], 0), lambda events: None)
