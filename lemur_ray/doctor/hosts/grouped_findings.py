"""Joins sentences about many hosts into one text in which equal sentences appear once."""

from collections.abc import Mapping, Sequence

FEW = 4
"""Maximum number of host names in a sentence."""


def few(names: Sequence[str], most: int = FEW) -> str:
    """The first ``most`` names, and the number of the others: "a, b and 3 more"."""
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")


def by_reason(sentences: Mapping[str, str], between: str = ": ") -> str:
    """One text from ``sentences`` (host -> sentence) in which hosts with equal sentences are listed together: "a, b: no
    disk; c: ...". ``between``: text between hosts and sentence."""
    hosts: dict[str, list[str]] = {}
    for host, sentence in sorted(sentences.items()):
        hosts.setdefault(sentence, []).append(host)
    return "; ".join(f"{few(names)}{between}{sentence}" for sentence, names in hosts.items())
