"""What an engine asks of whatever computes: weights made ready, programs that are warm, and steps of them.

The engine is handed a ``Compute`` and knows no other way to a device; the one for jax is ``serve.compute.on_devices``.
Knows nothing of jax or of devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from lemur_ray.config import ModelConfig
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine.live_sequence import LiveSequence
from lemur_ray.serve.engine.token_logprobs import TokenLogprobs


@dataclass(frozen=True)
class CacheSizes:
    """How large the cache is, and the pieces in which it is filled."""

    context: int
    """Longest sequence in tokens"""
    num_blocks: int
    """Blocks of the cache, the scrap block 0 included"""
    table_width: int
    """Blocks of a sequence"""
    block: int
    """Tokens of a block"""
    tile: int
    """Tokens of a prompt that are computed at once"""


class Row(NamedTuple):
    """New tokens of one sequence in a step."""

    tokens: np.ndarray
    """int32; at most as many as the step is long"""
    table: np.ndarray
    """(table_width,) int32 block ids of the sequence"""
    start: int
    """Position of the first of the tokens"""


class Step(Protocol):
    """What a step has computed, which may still lie on devices. Good until the next step."""

    @property
    def num_rows(self) -> int:
        """Rows that were computed, padding included."""

    def next_tokens(self, rows: Sequence[tuple[int, LiveSequence]]) -> list[int | None]:
        """The next token of these rows' sequences, each by its own settings; None: it failed, the log says why.

        Log-probabilities are added to the sequences that want them.
        """

    def prompt_logprobs(self, row: int, next_ids: np.ndarray) -> TokenLogprobs:
        """Log-probabilities of the tokens behind those of a row of a prompt. next_ids: (tile,) int32."""


class WarmPrograms(Protocol):
    """Programs that are compiled, with weights and cache. For one thread at a time."""

    is_exact: bool
    """Logits do not depend, to the last bit, on what else a step computes, as was measured"""
    is_padded: bool
    """They were asked not to and do: every step is padded to one shape, and only whole tiles may be reused"""

    @property
    def compiled_after_warmup(self) -> int:
        """Programs that were missing."""

    def step(self, rows: Sequence[Row], length: int) -> Step:
        """Compute new tokens, at most ``length`` of each row; their keys and values go into the blocks."""

    def copy(self, source: int, target: int) -> None:
        """Copy one block to another."""

    def replace(self, weights: Any) -> None:
        """Other weights from now on. Raises ValueError where they are not of the same shapes."""


class Compute(Protocol):
    """A model on devices."""

    config: ModelConfig
    options: EngineOptions
    sizes: CacheSizes
    num_devices: int

    def prepare(self, source: Any) -> Any:
        """Weights as ``WarmPrograms.replace`` takes them, from any thread. Raises what reading the source raises."""

    def warm_up(self, on_loss: Callable[[BaseException], None]) -> WarmPrograms:
        """Compile everything, in the thread that will use it.

        on_loss: called once, in a thread of its own, when a process that computes a part is lost.
        """

    def staged(self, spec: str, version: str) -> AbstractContextManager[None]:
        """Other processes have loaded these weights beside their old ones, and take them when they are replaced here.

        Raises ValueError where they cannot be read there or are others.
        """

    def close(self) -> None:
        """Let other processes go."""
