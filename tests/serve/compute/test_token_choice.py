"""Settings that change what may be drawn, through the engine."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.engine.sampling_options import LogitBias, SamplingOptions
from tests.serve.offline import generate
from tests.serve.tiny import TINY, Waiter, prompts

Make = Callable[..., Engine]


@dataclass(frozen=True)
class Digits:
    """Allows the tokens of ``order`` one after the other."""

    order: tuple[int, ...]
    seen: list[int] = field(default_factory=list)

    def allowed(self) -> np.ndarray:
        bits = np.zeros(TINY.vocab_size // 32 + 1, np.uint32)
        token = self.order[len(self.seen)]
        bits[token // 32] = np.uint32(1) << np.uint32(token % 32)
        return bits

    def accept(self, token: int) -> None:
        self.seen.append(token)


def test_a_bias_makes_a_token_certain_or_impossible(engine: Engine) -> None:
    (prompt,) = prompts(1, seed=20)
    (plain,) = generate(engine, [Generation(prompt, 12)])
    (never,) = generate(engine, [Generation(prompt, 12, SamplingOptions(logit_bias=LogitBias(((plain[0], -100.0),))))])
    (always,) = generate(
        engine, [Generation(prompt, 12, SamplingOptions(logit_bias=LogitBias(((77, 100.0),)), temperature=1.0, seed=4))]
    )
    assert plain[0] not in never
    assert always == [77] * 12


def test_penalties_keep_a_model_from_repeating_itself(engine: Engine) -> None:
    (prompt,) = prompts(1, seed=21)
    settings: list[dict[str, Any]] = [{"presence_penalty": 100.0}, {"frequency_penalty": 100.0}]
    once = generate(engine, [Generation(prompt, 60, SamplingOptions(**change)) for change in settings])
    assert [len(set(tokens)) for tokens in once] == [60, 60]
    biased = [(200, 8.0), (201, 7.9)]
    (turns,) = generate(
        engine, [Generation((9,), 20, SamplingOptions(logit_bias=LogitBias(tuple(biased)), frequency_penalty=0.5))]
    )
    assert {turns.count(200), turns.count(201)} == {10}


def test_more_changes_than_one_program_takes_are_all_made(engine: Engine) -> None:
    biases = tuple((token, -100.0) for token in range(TINY.vocab_size) if token != 42)
    assert generate(engine, [Generation((9,), 5, SamplingOptions(logit_bias=LogitBias(biases)))]) == [[42] * 5]


def test_a_constraint_sees_every_token_and_neighbours_never_notice(engine: Engine) -> None:
    others = [Generation(p, 20, SamplingOptions(temperature=0.8, seed=i)) for i, p in enumerate(prompts(9, seed=22))]
    alone = [generate(engine, [request])[0] for request in others]
    order = (50, 51, 7, 99, 50)
    digits = [Digits(order) for _ in range(3)]
    bound = [Generation((9, i), 5, SamplingOptions(temperature=float(i)), constraint=d) for i, d in enumerate(digits)]
    together = generate(engine, [*others[:4], *bound, *others[4:]])
    assert together[4:7] == [list(order)] * 3
    assert together[:4] + together[7:] == alone
    assert [tuple(d.seen) for d in digits] == [order] * 3


@pytest.mark.slow
def test_a_constraint_that_fails_or_leaves_nothing_ends_its_own_request_alone(small_engine: Make) -> None:
    engine = small_engine()

    class Nothing(Digits):
        def allowed(self) -> np.ndarray:
            return np.zeros(TINY.vocab_size // 32 + 1, np.uint32)

    steady = Waiter(engine, Generation((9,), 20, SamplingOptions(temperature=1.0, seed=1)))
    for broken, why in ((Digits(()), ""), (Nothing(()), "the structure allows no token of this model to come next")):
        end = Waiter(engine, Generation((9, 8), 5, constraint=broken)).end()
        assert (end.finish, end.refusal) == ("error", why)
    assert steady.end().finish == "length"
    assert engine.failure is None


def test_nothing_is_compiled_after_the_start_whatever_is_asked_for(engine: Engine) -> None:
    every = [
        Generation(
            (9,),
            3,
            SamplingOptions(min_p=0.1, temperature=1.0, presence_penalty=1.0, logit_bias=LogitBias(((5, 1.0),))),
            logprobs=True,
        ),
        Generation((9, 9), 3, prompt_logprobs=True, logprobs=True),
        Generation((9, 9, 9), 3, constraint=Digits((5, 6, 7))),
    ]
    generate(engine, every)
    assert engine.stats.recompiles_after_warmup == 0


@pytest.mark.parametrize(
    "change",
    [
        {"min_p": 1.5},
        {"presence_penalty": float("inf")},
        {"logit_bias": LogitBias(((3, 1.0), (3, 2.0)))},
        {"logit_bias": LogitBias(((TINY.vocab_size, 1.0),))},
        {"logit_bias": LogitBias(((3, float("nan")),))},
    ],
)
def test_settings_without_a_meaning_are_refused_at_once(engine: Engine, change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=rf"^{next(iter(change))} "):
        engine.submit(Generation((9,), 4, SamplingOptions(**change)), lambda events: None)
