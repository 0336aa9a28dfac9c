"""Paths in the options of a task: of this host as they are, on the way to another one as bundles.

Whoever makes a task says which of its texts are paths (``HostPath``), and what has to go along with each; an
environment is given a path of its own host and knows nothing of this. What is of use on this host alone (``HostOnly``)
does not go at all. All are found by walking through JSON values.
"""

from __future__ import annotations

import os
import socket
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lemur_ray.storage.bundles.bundle import Bundle, BundleError


class HostPath(str):
    """A text that is a path of this host, or ends in one (``log:FILE``)."""

    __slots__ = ("dated", "prefix", "root")

    root: str
    """The file or folder that is shipped: itself, or a folder around it."""
    prefix: str
    """What stands before the path."""
    dated: bool
    """Whether the times of files are part of what is shown of them."""

    def __new__(
        cls, path: str | Path, around: str | Path | None = None, prefix: str = "", dated: bool = False
    ) -> HostPath:
        """``around``: a folder that goes along, as other tasks, or the path's own reader, need what else is there."""
        text = super().__new__(cls, f"{prefix}{path}")
        text.prefix, text.dated = prefix, dated
        text.root = os.path.abspath(Path(around or path).expanduser())
        return text

    def __getnewargs__(self) -> Any:
        return self[len(self.prefix) :], self.root, self.prefix, self.dated

    @property
    def within(self) -> str:
        """The path from the folder that a bundle of ``root`` is unpacked to."""
        path = os.path.abspath(Path(self[len(self.prefix) :]).expanduser())
        if os.path.isdir(self.root):
            return os.path.relpath(path, self.root)
        return os.path.basename(self.root)


class HostOnly(str):
    """A text that is a path of this host, where another host could not use what it names: it is written to, or run."""

    __slots__ = ("why",)

    why: str
    """What is said to whoever would have it sent: what it is, and what to do instead."""

    def __new__(cls, path: str | Path, why: str) -> HostOnly:
        text = super().__new__(cls, path)
        text.why = why
        return text

    def __getnewargs__(self) -> Any:
        return str(self), self.why


def mark_host_paths(value: Any) -> Any:
    """JSON values of somebody else's, in which absolute paths of files and folders that are here are HostPaths.

    What lies directly beneath the root (``/tmp``) is every host's own.
    """

    def one(inner: Any) -> Any:
        if not isinstance(inner, str) or not inner.startswith(("/", "~/")):
            return inner
        path = Path(inner).expanduser()
        is_own = len(path.parts) > 2 and (path.is_file() or path.is_dir())
        return HostPath(inner) if is_own else inner

    return _each(value, one)


def replace_paths_by_digest(value: Any, held: Callable[[str], str]) -> Any:
    """JSON values of somebody else's with a digest in the place of everything that ``mark_host_paths`` ships.

    ``held``: a path -> the digest of what is there.
    """

    def one(inner: Any) -> Any:
        return {"holds": held(str(inner))} if isinstance(inner, HostPath) else inner

    return _each(mark_host_paths(value), one)


def host_path_option(text: str, *kinds: str) -> str:
    """The text of an option as a HostPath where it is ``KIND:FILE`` with one of these kinds; else as it is."""
    kind, colon, file = text.partition(":")
    return HostPath(file, prefix=f"{kind}:") if colon and file and kind in kinds else text


@dataclass(frozen=True)
class PackedPath:
    """What stands for a HostPath on the way."""

    bundle: Bundle
    within: str
    prefix: str


Publish = Callable[[Path, bool], Bundle]
"""A file or folder of this host, and whether times matter -> its bundle."""


def pack_options(options: Mapping[str, Any], publish: Publish) -> Mapping[str, Any]:
    """The options without a path of this host. Raises what ``publish`` raises, and BundleError."""

    def one(value: Any) -> Any:
        if isinstance(value, HostOnly):
            raise BundleError(f"{value}: {value.why}")
        if isinstance(value, HostPath):
            return PackedPath(publish(Path(value.root), value.dated), value.within, value.prefix)
        return value

    packed: Mapping[str, Any] = _each(options, one)
    return packed


def unpack_options(options: Mapping[str, Any], local: Callable[[Bundle], Path]) -> Mapping[str, Any]:
    """Inverse of ``pack_options`` on another host, with its own paths. Raises what ``local`` raises."""

    def one(value: Any) -> Any:
        if isinstance(value, PackedPath):
            return f"{value.prefix}{os.path.normpath(local(value.bundle) / value.within)}"
        return value

    unpacked: Mapping[str, Any] = _each(options, one)
    return unpacked


def _each(value: Any, one: Callable[[Any], Any]) -> Any:
    if isinstance(value, Mapping):
        return {name: _each(inner, one) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_each(inner, one) for inner in value)
    return one(value)


def host_identity() -> str:
    """What only processes have in common for which a path means the same: machine, its mounts and its root."""
    root = os.stat("/")
    identity = [socket.gethostname(), str(root.st_dev), str(root.st_ino)]
    for name in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/mnt"):
        if os.path.exists(name):
            identity.append(os.readlink(name) if os.path.islink(name) else Path(name).read_text().strip())
    return "|".join(identity)


_RENAMED = {"named": "host_path_option", "shipped_if_there": "mark_host_paths", "by_content": "replace_paths_by_digest"}


def __getattr__(name: str) -> Any:
    """Names of an earlier release, which plug-ins import, for one release."""
    if name not in _RENAMED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn(f"{__name__}.{name} is now {_RENAMED[name]}: import that one", DeprecationWarning, stacklevel=2)
    return globals()[_RENAMED[name]]
