"""Records which weights the replicas of a deployment serve, so that replicas that start later serve the same.

The record is in the key-value store of the cluster's head, where Ray Serve keeps its own state, and lasts as long. Each
update adds an entry with the next number; of two updates at once only one gets it."""

import json
import logging
import secrets
import threading
from collections import Counter
from collections.abc import Callable
from typing import NamedTuple

from ray.experimental import internal_kv

log = logging.getLogger(__name__)

CHECK_S = 5.0
"""Seconds between two reads of the record by a replica that an update may not have reached."""
MOST_ATTEMPTS = 3
"""Attempts of a replica to switch to one choice, each of which reads all weights; faults are seldom temporary."""
_NAMESPACE = "lemur-weights"


class Choice(NamedTuple):
    """The weights that all replicas of a deployment serve. Default values: those that it was deployed with."""

    number: int = 0
    """Number of updates of the deployment so far"""
    spec: str = ""
    """Model with these weights, as for ``weights.open_model``"""
    version: str = ""
    """Their version in replies"""


def new_record_name() -> str:
    """A name of a record for a deployment, which no other one has."""
    return secrets.token_hex(8)


class WeightsRecord:
    """The record of one deployment. name: unique to it. Needs a connection to Ray."""

    def __init__(self, name: str):
        self.name, self._prefix = name, f"{name}/"

    def read(self) -> Choice:
        """The newest choice; an empty one if there was no update."""
        while keys := internal_kv._internal_kv_list(self._prefix, namespace=_NAMESPACE):
            newest = max(keys, key=_number)
            if value := internal_kv._internal_kv_get(newest, namespace=_NAMESPACE):  # else it was removed meanwhile
                return Choice(_number(newest), *json.loads(value))
        return Choice()

    def add(self, choice: Choice) -> bool:
        """Record a choice; False if there is one of that number or a later one, which stays. Removes earlier ones."""
        key, value = f"{self._prefix}{choice.number}", json.dumps(choice[1:])
        if internal_kv._internal_kv_put(key, value, overwrite=False, namespace=_NAMESPACE):
            return False
        numbers = sorted(map(_number, internal_kv._internal_kv_list(self._prefix, namespace=_NAMESPACE)))
        for old in numbers[:-1]:  # perhaps also this one, if two updates were faster: its number was free again
            internal_kv._internal_kv_del(f"{self._prefix}{old}", namespace=_NAMESPACE)
        return numbers[-1] == choice.number

    def watch(self, switch: Callable[[Choice], object], ended: threading.Event) -> None:
        """Read the record every ``CHECK_S`` seconds and call ``switch`` with each new choice, such as one that was
        recorded while the replica started. Returns when ``ended`` is set. What ``switch`` raises is logged; it is
        called for one choice at most ``MOST_ATTEMPTS`` times."""
        attempts: Counter[int] = Counter()
        while not ended.wait(CHECK_S):
            try:
                choice = self.read()
                attempts[choice.number] += 1
                if attempts[choice.number] <= MOST_ATTEMPTS:
                    switch(choice)
                    attempts[choice.number] = MOST_ATTEMPTS
            except Exception as error:  # of any kind: replicas differ in what they raise
                log.warning("the weights stay as they are: %s", error)


def _number(key: bytes) -> int:
    return int(key.rpartition(b"/")[2])
