"""Bundle: a reference to an archived file or folder for transport to other hosts. Reads and writes nothing."""

from __future__ import annotations

from dataclasses import dataclass


class BundleError(ValueError):
    """A bundle cannot be made, stored or fetched. The message gives the reason and what to do."""


@dataclass(frozen=True)
class Bundle:
    """Location, digest and size of an archive."""

    url: str
    """URL of the archive for fsspec, or ``pieces:NAME`` with the name of an actor that holds it (``on_ray``)."""
    digest: str
    """SHA-256 of the archive in hex digits: its name."""
    size: int
    """Bytes of the archive; the unpacked folder takes about as much."""
