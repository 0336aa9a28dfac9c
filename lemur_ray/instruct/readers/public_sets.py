"""The public instruction sets of the paper: name, licence and reader of each.

A record yields conversations or a Dropped with the reason; none is skipped silently."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lemur_ray.instruct.config import SetsConfig
from lemur_ray.instruct.conversation import Conversation, Dropped, ReadResult, fault
from lemur_ray.instruct.readers.oasst import read_oasst
from lemur_ray.instruct.readers.questions import read_alpaca, read_openorca
from lemur_ray.instruct.readers.sharegpt import read_sharegpt


@dataclass(frozen=True)
class InstructionSet:
    """A public data set of conversations: licence, and the function of (file, options) that yields its conversations
    and a Dropped for each rejected record."""

    licence: str
    """Licence as stated by the publisher; printed when a file is read."""
    read: Callable[[Path, SetsConfig], Iterator[ReadResult]]


SETS = {
    "oasst1": InstructionSet("Open Assistant 1: Apache-2.0", read_oasst),
    "openorca": InstructionSet("OpenOrca: MIT", read_openorca),
    "sharegpt": InstructionSet(
        "ShareGPT: no clear licence, conversations of users; do not redistribute", read_sharegpt
    ),
    "evol": InstructionSet(
        "Evol-CodeAlpaca: Apache-2.0, Evol-Instruct-Code-80k: CC-BY-NC-SA-4.0 (both unconfirmed: see the file's "
        "own page)",
        read_alpaca("evol"),
    ),
    "verified": InstructionSet("your own verified programs: yours", read_alpaca("verified")),
}
"""Sets by name (``dataset`` of their conversations, and the option for their files), in the order of Table 1.
``verified`` replaces the paper's unreleased set of executed Python."""


def read_set(name: str, path: Path, config: SetsConfig) -> Iterator[ReadResult]:
    """Yield the valid conversations of one file of a set, and a Dropped for every rejected record. name: a key of SETS.
    Raises ValueError or OSError naming a file that cannot be read."""
    for result in SETS[name].read(path, config):
        if isinstance(result, Conversation):
            why = fault(result, allow_empty_system=config.openorca_system == "lemur")
            yield Dropped(result.dataset, result.id, why) if why else result
        else:
            yield result
