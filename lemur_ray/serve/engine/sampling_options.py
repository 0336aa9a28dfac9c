"""The sampling options of a request: each is declared once, with its default, its bounds and its default over HTTP.

Request bodies, requests by Ray handle, ``generation_config.json`` and the arrays of the sampling program take their
options from this declaration. A new numeric option is a field here and its arithmetic in ``compute/sampling.py``, or if
it edits logits in ``compute/drawing/token_choice.py`` and ``compute/drawing/slot_edits.py``. Knows nothing of HTTP,
models or jax."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

log = logging.getLogger(__name__)


class InvalidRequest(ValueError):
    """Raised for an invalid option or field of a request, named by ``param``: unknown, empty, of a wrong type, out of
    bounds, or with ids outside the vocabulary. A prompt that is too long raises ContextExceeded instead."""

    def __init__(self, param: str, problem: str):
        super().__init__(f"{param} {problem}")
        self.param = param


class Bounds(NamedTuple):
    """Range of a number, with both ends unless ``above`` excludes the lower one; as text "at least 0 and at most 2"."""

    low: float = -math.inf
    high: float = math.inf
    above: bool = False
    """Whether ``low`` itself is excluded"""

    def admits(self, number: float) -> bool:
        """Whether a finite number lies in the range."""
        is_in_range = self.low <= number <= self.high and not (self.above and number == self.low)
        return is_in_range and -math.inf < number < math.inf

    def __str__(self) -> str:
        low = f"{'above' if self.above else 'at least'} {self.low:g}" if self.low > -math.inf else ""
        high = f"at most {self.high:.10g}" if self.high < math.inf else ""
        return " and ".join(filter(None, (low, high)))


class LogitBias(tuple[tuple[int, float], ...]):
    """Pairs of (token id, number added to its logit); the properties are computed once and cached."""

    @classmethod
    def of(cls, biases: Mapping[Any, float]) -> LogitBias:
        """Biases from a mapping whose keys are ids, as int or decimal text. Raises ValueError for other keys."""
        return cls(sorted({int(token): bias for token, bias in biases.items()}.items()))

    @cached_property
    def tokens(self) -> np.ndarray:
        """(pairs,) int64: token id of each pair."""
        return np.array([token for token, _ in self], np.int64)

    @cached_property
    def values(self) -> np.ndarray:
        """(pairs,) float64: what is added to the logit of each of ``tokens``, in the same order."""
        return np.array([value for _, value in self], np.float64)

    @cached_property
    def is_valid(self) -> bool:
        """Whether every token is named once, with a finite number."""
        return len(np.unique(self.tokens)) == len(self) and bool(np.isfinite(self.values).all())

    @cached_property
    def id_range(self) -> tuple[int, int]:
        """(lowest token id, highest token id). Raises ValueError if there is none."""
        return int(self.tokens.min()), int(self.tokens.max())


class NumberOption(NamedTuple):
    """Declaration of a numeric sampling option: its default and bounds, in the engine and over HTTP. An int if
    ``default`` is one, else a float."""

    default: float
    bounds: Bounds
    """Values that the engine computes, and that a request by Ray handle may have"""
    http: Bounds
    """Values that an HTTP request may have, as in OpenAI's protocol"""
    http_default: float
    in_generation_config: bool
    """Whether the model's ``generation_config.json`` sets the default over HTTP"""


def _number(
    default: float, bounds: Bounds, http: Bounds | None = None, http_default: float | None = None, config: bool = False
) -> Any:
    """A dataclass field with its ``NumberOption``; http, http_default: by default as without HTTP."""
    http_default = default if http_default is None else http_default
    return field(default=default, metadata={"": NumberOption(default, bounds, http or bounds, http_default, config)})


@dataclass(frozen=True)
class SamplingOptions:
    """Options for drawing the tokens of one reply from the model's logits."""

    seed: int = 0
    """Seed of the noise; only its low 64 bits count. The same seed draws the same tokens whatever else is computed"""
    temperature: float = _number(0.0, Bounds(0), Bounds(0, 2), 1.0, config=True)
    """Divides the logits; 0 takes the likeliest token"""
    top_p: float = _number(1.0, Bounds(0, 1, above=True), config=True)
    """Tokens are drawn from the fewest likeliest ones that together have this probability"""
    top_k: int = _number(0, Bounds(0, 2**31 - 1), Bounds(-1), config=True)
    """Number of likeliest tokens that may be drawn; 0, or -1 in a request: all"""
    min_p: float = _number(0.0, Bounds(0, 1), config=True)
    """Probability below which a token is never drawn, as a share of the likeliest token's"""
    presence_penalty: float = _number(0.0, Bounds(), Bounds(-2, 2))
    """Subtracted from the logit of every token that the reply already contains"""
    frequency_penalty: float = _number(0.0, Bounds(), Bounds(-2, 2))
    """Subtracted from a token's logit once for every time that the reply contains it"""
    logit_bias: LogitBias = LogitBias()
    """Added to the logits of these tokens"""

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> SamplingOptions:
        """Options from JSON values by name; missing ones have their defaults, and ``logit_bias`` is as for
        ``LogitBias.of``. Raises InvalidRequest for an unknown name or wrong type; ``check`` checks bounds."""
        for name, value in values.items():
            if name not in cls.__dataclass_fields__:
                raise InvalidRequest(name, f"is no sampling option: known are {', '.join(cls.__dataclass_fields__)}")
            kind = type(getattr(cls, name))
            if kind is not LogitBias and (isinstance(value, bool) or not isinstance(value, int | kind)):
                expected = "a number" if kind is float else "an integer"
                raise InvalidRequest(name, f"is {value!r:.40}: expected {expected}")
        try:
            return cls(**{**values, "logit_bias": LogitBias.of(values.get("logit_bias", {}))})
        except (AttributeError, TypeError, ValueError) as error:
            raise InvalidRequest("logit_bias", "must map token ids to numbers") from error

    @property
    def edits_logits(self) -> bool:
        """Whether penalties or biases change the logits before a token is drawn."""
        return bool(self.presence_penalty or self.frequency_penalty or self.logit_bias)

    def for_vocabulary(self, vocab_size: int) -> SamplingOptions:
        """Equivalent options in the engine's form: top_k 1 becomes temperature 0, and top_k -1 or >= vocab_size 0."""
        temperature = 0.0 if self.top_k == 1 else self.temperature  # greedy, with its rule for equal logits
        top_k = 0 if self.top_k == -1 or self.top_k >= vocab_size else self.top_k
        return replace(self, temperature=temperature, top_k=top_k)

    def check(self, vocab_size: int) -> None:
        """Raise InvalidRequest for an option out of its bounds, and for biases of tokens outside the vocabulary."""
        for name, option in NUMBERS.items():
            if not option.bounds.admits(number := getattr(self, name)):
                bounds = f", {option.bounds}" if str(option.bounds) else ""
                raise InvalidRequest(name, f"is {number}: expected a finite number{bounds}")
        if not self.logit_bias.is_valid:
            raise InvalidRequest("logit_bias", "names a token twice, or a bias that is not finite")
        if self.logit_bias:
            check_ids("logit_bias", self.logit_bias.id_range, vocab_size)


def check_ids(param: str, id_range: tuple[int, int], vocab_size: int) -> None:
    """Raise InvalidRequest about ``param`` unless (lowest id, highest id) lie within 0..vocab_size - 1."""
    if not 0 <= id_range[0] <= id_range[1] < vocab_size:
        raise InvalidRequest(param, f"has token ids outside 0..{vocab_size - 1}")


NUMBERS: dict[str, NumberOption] = {f.name: f.metadata[""] for f in fields(SamplingOptions) if f.metadata}
"""Declarations of the numeric options by name."""
HTTP_DEFAULTS = SamplingOptions(**{name: option.http_default for name, option in NUMBERS.items()})  # type: ignore[arg-type]

_UNSUPPORTED = {"repetition_penalty": 1.0, "typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0, "num_beams": 1}
"""Options of ``generation_config.json`` that this engine lacks, with the values that ask for nothing."""


def model_defaults(generation_config: Mapping[str, Any]) -> SamplingOptions:
    """Default options of HTTP requests to a model with this ``generation_config.json`` ({}: no such file). Invalid and
    unsupported values are left out, with a warning in the log.
    ``do_sample`` has no effect, as with other servers: temperature alone decides whether a model is greedy."""
    defaults: dict[str, Any] = {}
    for name, option in NUMBERS.items():
        value = generation_config.get(name) if option.in_generation_config else None
        low, high = max(option.bounds.low, option.http.low), min(option.bounds.high, option.http.high)
        if value is None or (value == 0 and option.bounds.above):
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            log.warning("generation_config.json: %s is %r, expected %g to %g: left out", name, value, low, high)
            continue
        defaults[name] = type(option.default)(value)
    for name, neutral in _UNSUPPORTED.items():
        if (value := generation_config.get(name, neutral)) not in (None, neutral):
            log.warning("generation_config.json: %s is %r, which is not done here: left out", name, value)
    return replace(HTTP_DEFAULTS, **defaults)
