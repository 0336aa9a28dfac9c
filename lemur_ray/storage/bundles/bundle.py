"""A bundle: what stands for a file or folder on its way to other hosts. Reads and writes nothing."""

from __future__ import annotations

from dataclasses import dataclass


class BundleError(ValueError):
    """A bundle cannot be made, stored or fetched. The message gives the reason and what to do."""


@dataclass(frozen=True)
class Bundle:
    """Where an archive is kept, and what it must be."""

    url: str
    """Of the archive: what fsspec reads, or ``pieces:NAME`` of an actor that holds it (``pieces_on_ray``)."""
    digest: str
    """SHA-256 of the archive in hex digits: its name."""
    size: int
    """Of the archive in bytes; unpacked it takes about as many."""
