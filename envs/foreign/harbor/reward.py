"""Parses the reward that a task's tests wrote: untrusted bytes from a container in which a policy ran."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

from lemur_ray.host.json_files import parse_json

TEXT, JSON = "/logs/verifier/reward.txt", "/logs/verifier/reward.json"
MOST_BYTES = 65_536


class NoReward(ValueError):
    """Raised if the tests wrote no valid reward; the message says why."""


def reward_in(files: Mapping[str, bytes]) -> float:
    """The reward, 0 to 1, in the tests' files by path: the number in ``reward.txt``, else the one in ``reward.json``.

    An object in reward.json counts by its entry ``reward``, else by the mean of its entries. Raises NoReward.
    """
    if TEXT in files:
        return _number(files[TEXT])
    if JSON not in files:
        raise NoReward("the tests wrote no reward")
    if len(files[JSON]) > MOST_BYTES:
        raise NoReward(f"reward.json has {len(files[JSON])} bytes")
    try:
        value = parse_json(files[JSON], Path(JSON))
    except ValueError as error:
        raise NoReward(f"reward.json: {error}") from error
    numbers = value if isinstance(value, dict) else {"reward": value}
    rewards = [_bounded(value) for value in ([numbers["reward"]] if "reward" in numbers else list(numbers.values()))]
    if not rewards:
        raise NoReward("reward.json holds no number")
    return sum(rewards) / len(rewards)


def _number(data: bytes) -> float:
    text = data[:MOST_BYTES].decode("utf-8", "replace").strip()
    try:
        return _bounded(float(text))
    except ValueError as error:
        raise NoReward(f"reward.txt holds {text[:80]!r}, expected a number from 0 to 1") from error


def _bounded(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise NoReward(f"a reward of {str(value)[:80]!r}, expected a number from 0 to 1")
    if not 0 <= value <= 1:
        raise NoReward(f"a reward of {value:g}, expected a number from 0 to 1")
    return float(value)
