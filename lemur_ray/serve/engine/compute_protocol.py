"""Interface between the engine and the model on its devices: prepared weights, compiled programs and their steps.

The engine is constructed with a ``Compute``, its only way to a device; the one for jax is ``serve.compute.on_devices``.
Knows nothing of jax or of devices."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from lemur_ray.config import ModelConfig
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine.live_sequence import LiveSequence
from lemur_ray.serve.engine.token_logprobs import TokenLogprobs


@dataclass(frozen=True)
class CacheSizes:
    """Sizes of the cache."""

    context: int
    """Longest sequence in tokens"""
    num_blocks: int
    """Blocks of the cache, including scrap block 0"""
    table_width: int
    """Blocks of a sequence"""
    block: int
    """Tokens of a block"""
    tile: int
    """Tokens of a prompt that are computed together"""


class Row(NamedTuple):
    """One sequence's part of a step: its new tokens, and the cache blocks that they go to."""

    tokens: np.ndarray
    """int32; at most as many as the length of the step"""
    table: np.ndarray
    """(table_width,) int32 block ids of the sequence"""
    start: int
    """Position of the first of the tokens"""
    sequence: LiveSequence
    source: int = -1
    """Row of the step before whose drawn token, not yet on the host, is this row's only one; -1: ``tokens``"""


class Step(Protocol):
    """Results of a step, which may still be on devices. Valid until the next step."""

    @property
    def num_rows(self) -> int:
        """Computed rows, including padding."""

    @property
    def first_tile(self) -> int:
        """Row of the first tile of a mixed step, in which decoding rows come before; else 0."""

    def keep_ids(self) -> None:
        """Free all but the tokens that the step has drawn itself, and their log-probabilities."""

    def next_tokens(self, rows: Sequence[tuple[int, LiveSequence]]) -> list[int | None]:
        """The next token of each (row of the step, sequence), None where one failed; appends requested
        log-probabilities to the sequences."""

    def prompt_logprobs(self, row: int, next_ids: np.ndarray) -> TokenLogprobs:
        """Log-probabilities of ``next_ids``, (tile,) int32: tokens that follow those of row ``row`` of a prompt."""


class WarmPrograms(Protocol):
    """Compiled programs with their weights and cache. For one thread at a time."""

    is_exact: bool
    """Measured: logits do not depend, to the last bit, on what else a step computes"""
    runs_ahead: bool
    """A step can start from the tokens that the step before draws: they need not have arrived"""
    mixes: bool
    """A step can have tiles of prompts and decoding rows, with the same bits to the last if ``is_exact``"""
    is_padded: bool
    """Logits depend on it despite ``batch_invariant``, so steps are padded to one shape and only whole tiles reused"""

    @property
    def compiled_after_warmup(self) -> int:
        """Number of programs compiled after the warm-up, which delayed requests; 0 is expected."""

    def step(self, rows: Sequence[Row], length: int, decoding: Sequence[Row] = ()) -> Step:
        """Compute ``length`` (1, or a tile) or fewer new tokens of each row; their keys and values are written to the
        cache blocks. decoding: with ``mixes``, rows of one token beside ``rows``, which are tiles."""

    def copy(self, source: int, target: int) -> None:
        """Copy cache block ``source`` to ``target``."""

    def replace(self, staged: Any) -> None:
        """Use other weights from now on, in all processes. staged: of ``Compute.stage``. Large ones are written over
        the present ones. Raises WeightsNotReplaced if they cannot be read and all present ones remain (only where
        there is a single process), EngineClosed for any other failure: then no whole weights are left, or processes may
        have different ones."""


class Compute(Protocol):
    """A model's weights on devices, from which ``warm_up`` makes the compiled programs."""

    config: ModelConfig
    options: EngineOptions
    sizes: CacheSizes
    num_devices: int

    def stage(self, source: Any, spec: str, version: str) -> Any:
        """Check that all processes can use the weights of a source of the same model, which the others open as ``spec``
        and in which they must find ``version``; returns them for ``WarmPrograms.replace``. From one thread at a time.
        Raises ValueError if they hold NaN or if a process cannot read them or reads another version, and what reading
        the source raises; the present weights go on in any case."""

    def drop(self) -> None:
        """Let the other processes forget what was staged. From any thread."""

    def warm_up(self, on_loss: Callable[[BaseException], None]) -> WarmPrograms:
        """Compile all programs in the calling thread. on_loss: called once, in another thread, if a process is lost."""

    def close(self) -> None:
        """End the other processes that compute a part of the model."""
