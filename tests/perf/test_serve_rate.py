"""How fast the engine is on the nano model, and its search for prefixes.

Run by hand, alone on the machine, with ``pytest tests/perf -s``.
"""

import time

import numpy as np
import pytest

from lemur_ray.config import ModelConfig
from lemur_ray.serve.engine.block_cache import BlockCache
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.loading import open_engine
from lemur_ray.weights.open_model import random_weights
from tests.serve.offline import generate

NANO = ModelConfig(vocab_size=3072)


@pytest.mark.parametrize("episodes", [8, 32, 64])
def test_episodes_of_twenty_turns(episodes: int) -> None:
    """A header of 100 tokens, then turns of 12 tokens against observations of 30: what agents ask of the engine."""
    engine = open_engine(random_weights(NANO, 0)).start()
    rng = np.random.default_rng(0)

    def text(length: int) -> list[int]:
        return [int(i) for i in rng.integers(7, NANO.vocab_size, length)]

    header, unique = text(100), 100
    histories = [header + text(50) for _ in range(episodes)]
    unique += 50 * episodes
    begin, cpu = time.monotonic(), time.process_time()
    for _ in range(20):
        replies = generate(engine, [Generation(tuple(h), 12) for h in histories])
        for history, reply in zip(histories, replies, strict=True):
            history += reply + text(30)
            unique += 12 + 30
    wall_s, cpu_s = time.monotonic() - begin, time.process_time() - cpu
    stats = engine.stats
    engine.close()
    print(
        f"\n{episodes} episodes: {stats.generated_tokens / cpu_s:.0f} generated and {stats.prefill_tokens / cpu_s:.0f} "
        f"prefilled tokens per CPU-second ({wall_s:.1f} s, warm-up {stats.warmup_s:.1f} s); computed "
        f"{stats.prefill_tokens} of {stats.prompt_tokens} prompt tokens, {unique} are different"
    )
    assert stats.recompiles_after_warmup == 0
    # Every episode computes the header for itself when all of them begin at the same moment.
    assert stats.prefill_tokens <= unique + 100 * episodes


@pytest.mark.parametrize("children", [10, 1000, 10000])
def test_conversations_that_part_behind_one_header(children: int) -> None:
    """They all hang below one node: a header of 40 tokens ends inside a block of 128."""
    rng = np.random.default_rng(0)
    cache, header = BlockCache(children + 600, 128, 4), rng.integers(7, 3000, 40)

    def prompt() -> np.ndarray:
        return np.concatenate([header, rng.integers(7, 3000, 60)]).astype(np.int32)

    def play(tokens: np.ndarray) -> None:
        place = cache.admit(tokens)
        assert place is not None
        for token in range(place.cached, len(tokens)):  # one by one, as a reply is recorded
            cache.record(place.handle, tokens[token : token + 1])
        cache.release(place.handle)

    for _ in range(children):
        play(prompt())
    asked = [prompt() for _ in range(500)]
    begin = time.process_time()
    for tokens in asked:
        cache.tree.find(tokens)
    search_s, begin = (time.process_time() - begin) / len(asked), time.process_time()
    for tokens in asked:
        play(tokens)
    print(
        f"\n{children} children: {search_s * 1e6:.0f} us of CPU a search, "
        f"{(time.process_time() - begin) / len(asked) / 60 * 1e6:.1f} us a recorded token"
    )
    assert search_s < 0.001
