"""Where a token's bits depend on how it was computed, a reply that lost its place goes on as if it never had.

The model here is a hash: of everything before a token, and of whether that was computed as a tile of a prompt or by
itself. No other arithmetic is as sensitive.
"""

import contextlib
import zlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine.compute_protocol import CacheSizes, Row
from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.engine.generation import Generation
from lemur_ray.serve.engine.live_sequence import LiveSequence
from lemur_ray.serve.engine.token_logprobs import TokenLogprobs
from tests.serve.tiny import TINY, Waiter, prompts

BLOCK, WIDTH, TILE = 16, 16, 8


class HashStep:
    first_tile = 0

    def __init__(self, sums: list[int]):
        self._sums, self.num_rows = sums, len(sums)

    def next_tokens(self, rows: Sequence[tuple[int, LiveSequence]]) -> list[int | None]:
        for row, sequence in rows:
            score = np.array([self._sums[row] / 2**32], np.float32)
            sequence.logprobs.append(TokenLogprobs(score, np.zeros((1, 1), np.int32), score[:, None]))
        return [self._sums[row] % TINY.vocab_size for row, _ in rows]

    def prompt_logprobs(self, row: int, next_ids: np.ndarray) -> TokenLogprobs:
        raise NotImplementedError


class HashPrograms:
    """A cache whose entries are hashes; only whole tiles of prompts are equal however they came to be."""

    is_exact, is_padded, compiled_after_warmup, runs_ahead, mixes = False, True, 0, False, False

    def __init__(self, num_blocks: int):
        self._cache = np.zeros((num_blocks, BLOCK), np.uint32)

    def step(self, rows: Sequence[Row], length: int, decoding: Sequence[Row] = ()) -> HashStep:
        sums = []
        for row in rows:
            for at, token in enumerate(row.tokens, row.start):
                # A tile is known by where it begins: one that begins elsewhere gives other bits.
                how = row.start if length > 1 else -1
                value = zlib.crc32(repr((int(token), at, how, self._before(row, at))).encode())
                self._cache[row.table[at // BLOCK], at % BLOCK] = value
            sums.append(zlib.crc32(repr(self._before(row, row.start + len(row.tokens))).encode()))
        return HashStep(sums)

    def _before(self, row: Row, end: int) -> list[int]:
        return [int(self._cache[row.table[i // BLOCK], i % BLOCK]) for i in range(end)]

    def copy(self, source: int, target: int) -> None:
        self._cache[target] = self._cache[source]

    def replace(self, weights: Any) -> None:
        raise NotImplementedError


class HashCompute:
    def __init__(self, num_blocks: int):
        self.config, self.options, self.num_devices = TINY, EngineOptions(max_slots=4, prefill_tiles=2), 1
        self.sizes = CacheSizes(BLOCK * WIDTH, num_blocks, WIDTH, BLOCK, TILE)

    def prepare(self, source: Any) -> Any:
        return source

    def warm_up(self, on_loss: Callable[[BaseException], None]) -> HashPrograms:
        return HashPrograms(self.sizes.num_blocks)

    def staged(self, spec: str, version: str) -> contextlib.AbstractContextManager[None]:
        return contextlib.nullcontext()

    def close(self) -> None:
        pass


def replies(num_blocks: int, requests: list[Generation]) -> tuple[list[tuple[list[int], list[float]]], Engine]:
    """Tokens and scores of requests that are there at the same time, and the engine when it has ended."""
    engine = Engine(HashCompute(num_blocks))
    waiters = [Waiter(engine, request) for request in requests]
    engine.start()
    told = []
    for waiter in waiters:
        events = [waiter.next()]
        while events[-1].finish is None:
            events.append(waiter.next())
        assert events[-1].finish == "length"
        told.append((waiter.tokens, [float(e.logprobs.logprob[0]) for e in events if e.logprobs is not None]))
    engine.close()
    return told, engine


def test_a_reply_that_lost_its_place_has_the_bits_of_one_that_kept_it() -> None:
    requests = [Generation(p, 100, logprobs=True) for p in prompts(6, seed=70, low=20, high=90)]
    calm, roomy = replies(200, requests)
    assert roomy.stats.preemptions == 0
    hurried, tight = replies(21, requests)
    assert tight.stats.preemptions > 2
    assert tight.stats.recomputed_tokens > 0
    assert hurried == calm
    assert [len(tokens) for tokens, _ in calm] == [len(logprobs) for _, logprobs in calm] == [100] * 6
    assert tight.stats.blocks_held == 0
