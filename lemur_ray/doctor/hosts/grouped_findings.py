"""The same said of many hosts, once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

FEW = 4


def few(names: Sequence[str]) -> str:
    """The first names, and how many more there are."""
    return ", ".join(names[:FEW]) + (f" and {len(names) - FEW} more" if len(names) > FEW else "")


def by_reason(said: Mapping[str, str], between: str = ": ") -> str:
    """``said``: sentence by host. Hosts of which the same is said stand together."""
    hosts: dict[str, list[str]] = {}
    for host, sentence in sorted(said.items()):
        hosts.setdefault(sentence, []).append(host)
    return "; ".join(f"{few(names)}{between}{sentence}" for sentence, names in hosts.items())
