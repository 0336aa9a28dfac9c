"""Bundle: a reference to the archive of a file or folder, for transport to other hosts."""

from dataclasses import dataclass

from lemur_ray.host.exit_codes import CausedError


class BundleError(CausedError, ValueError):
    """Raised if a bundle cannot be created, stored, downloaded or extracted; the message gives the reason."""


@dataclass(frozen=True)
class Bundle:
    """Reference to the archive of a file or folder: URL, SHA-256 and size in bytes."""

    url: str
    """URL of the archive for fsspec, or ``pieces:NAME`` with the name of a Ray actor that holds it (``on_ray``)."""
    digest: str
    """SHA-256 of the archive in hex digits, by which it is named."""
    size: int
    """Bytes of the archive; the unpacked folder takes about as much."""
