"""A request that changes a logit for every token of a vocabulary costs a step as much as one that changes a few."""

import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lemur_ray.serve.compute import sampling
from lemur_ray.serve.compute.drawing.token_choice import next_tokens
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.engine.live_sequence import LiveSequence
from lemur_ray.serve.engine.sampling_options import LogitBias, SamplingOptions

VOCAB = 4000


class Counted:
    """The programs of ``sampling`` without an engine."""

    config = SimpleNamespace(vocab_size=VOCAB)

    def __init__(self) -> None:
        self.calls: list[str] = []

    def run(self, name: str, rows: int, *arguments: Any) -> Any:
        self.calls.append(name)
        return getattr(sampling, name)(*arguments)


def live(request: Generation, generated: tuple[int, ...] = ()) -> LiveSequence:
    return LiveSequence(0, request, np.array(request.prompt, np.int32), generated=list(generated))


@pytest.fixture
def logits() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(3, VOCAB)).astype(np.float32)


def test_all_changes_are_made_at_once_and_neighbours_never_notice(logits: np.ndarray) -> None:
    rng = np.random.default_rng(1)
    bias = rng.normal(size=VOCAB) * 3
    many = Generation(
        (1,), 9, SamplingOptions(logit_bias=LogitBias(tuple(enumerate(bias.tolist()))), frequency_penalty=0.5)
    )
    few = Generation(
        (1,),
        9,
        SamplingOptions(logit_bias=LogitBias(((7, 5.0), (8, 4.9))), presence_penalty=2.0, temperature=0.7, seed=3),
    )
    drawn = Generation((1,), 9, SamplingOptions(temperature=1.0, seed=4))
    rows = [(0, live(many, (int(np.argmax(logits[0] + bias)),) * 9)), (1, live(few, (7,))), (2, live(drawn))]
    programs: Any = Counted()
    together = next_tokens(programs, logits, rows)
    assert programs.calls == ["pick", "shift", "sample"]
    expected = logits[0] + bias.astype(np.float32)
    expected[int(np.argmax(expected))] -= 4.5
    assert together[0] == int(np.argmax(expected))
    alone = [next_tokens(programs, logits, [row])[0] for row in rows]
    assert together == alone
    assert programs.calls == [
        "pick",
        "shift",
        "sample",
        "pick",
        "shift",
        "greedy",
        "pick",
        "edit",
        "sample",
        "pick",
        "sample",
    ]


def test_a_hundred_choices_with_a_bias_for_every_token_are_checked_in_an_instant() -> None:
    one = Generation((1,), 9, SamplingOptions(logit_bias=LogitBias(tuple((token, -1.0) for token in range(32000)))))
    begin = time.process_time()
    for index in range(128):
        replace(one, sample_index=index).check(32000, 100)
    # Looking at every pair for every choice takes two seconds.
    assert time.process_time() - begin < 0.3
