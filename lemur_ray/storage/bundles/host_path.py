"""Paths in the options of a task, which are replaced by bundles to send the task to another host.

The author of a task marks the strings that are paths (``HostPath``), with the files to send for each. The other host
replaces each bundle by a local path to its files. Paths that are of no use elsewhere (``HostOnly``) cannot be sent.
Marked strings may be nested in any JSON values."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lemur_ray.host.renamed_names import renamed_names
from lemur_ray.storage.bundles.bundle import Bundle, BundleError


class HostPath(str):
    """A str that is a path of this host, perhaps after a prefix (``log:FILE``), replaced when sent to another host."""

    __slots__ = ("dated", "prefix", "root")

    root: str
    """Absolute path of the file or folder to archive: the path itself, or a folder that contains it."""
    prefix: str
    """Text before the path, for example ``log:``."""
    dated: bool
    """Whether modification times are part of the content."""

    def __new__(
        cls, path: str | Path, around: str | Path | None = None, prefix: str = "", dated: bool = False
    ) -> HostPath:
        """around: folder around the path to archive instead of the path alone, if its reader needs other files, too."""
        text = super().__new__(cls, f"{prefix}{path}")
        text.prefix, text.dated = prefix, dated
        text.root = os.path.abspath(Path(around or path).expanduser())
        return text

    def __getnewargs__(self) -> Any:
        return self[len(self.prefix) :], self.root, self.prefix, self.dated

    @property
    def within(self) -> str:
        """The path relative to the folder to which a bundle of ``root`` is unpacked."""
        path = os.path.abspath(Path(self[len(self.prefix) :]).expanduser())
        if os.path.isdir(self.root):
            return os.path.relpath(path, self.root)
        return os.path.basename(self.root)


class HostOnly(str):
    """A str that is a path of this host and cannot be sent to others, because its file is written to or executed."""

    __slots__ = ("why",)

    why: str
    """Message of the BundleError for an attempt to send it: what it is, and what to do instead."""

    def __new__(cls, path: str | Path, why: str) -> HostOnly:
        text = super().__new__(cls, path)
        text.why = why
        return text

    def __getnewargs__(self) -> Any:
        return str(self), self.why


def mark_host_paths(value: Any) -> Any:
    """Copy of JSON values in which each string that is the path of an existing file or folder, absolute or from ``~/``,
    is a HostPath. Not marked: keys of objects, and entries of the root folder (``/tmp``), as every host has its own."""

    def one(inner: Any) -> Any:
        if not isinstance(inner, str) or not inner.startswith(("/", "~/")):
            return inner
        path = Path(inner).expanduser()
        is_own = len(path.parts) > 2 and (path.is_file() or path.is_dir())
        return HostPath(inner) if is_own else inner

    return _each(value, one)


def replace_paths_by_digest(value: Any, held: Callable[[str], str]) -> Any:
    """Copy of JSON values with ``{"holds": DIGEST}`` in place of every path that ``mark_host_paths`` would mark.
    ``held``: function from a path to the digest of the file or folder there."""

    def one(inner: Any) -> Any:
        return {"holds": held(str(inner))} if isinstance(inner, HostPath) else inner

    return _each(mark_host_paths(value), one)


def host_path_option(text: str, *kinds: str) -> str:
    """``KIND:FILE`` as a HostPath with the prefix ``KIND:`` if KIND is one of ``kinds``; any other text unchanged."""
    kind, colon, file = text.partition(":")
    return HostPath(file, prefix=f"{kind}:") if colon and file and kind in kinds else text


@dataclass(frozen=True)
class PackedPath:
    """Takes the place of a HostPath in options that are sent: the bundle, the path in it, the text before the path."""

    bundle: Bundle
    within: str
    prefix: str


Publish = Callable[[Path, bool], Bundle]
"""Function that archives a file or folder of this host; the flag says whether to keep modification times."""


def pack_options(options: Mapping[str, Any], publish: Publish) -> Mapping[str, Any]:
    """A copy of a task's options with a PackedPath for every HostPath. ``publish``: uploads a file or folder and
    returns its bundle. Raises errors of ``publish``, and BundleError for a HostOnly."""

    def one(value: Any) -> Any:
        if isinstance(value, HostOnly):
            raise BundleError(f"{value}: {value.why}")
        if isinstance(value, HostPath):
            return PackedPath(publish(Path(value.root), value.dated), value.within, value.prefix)
        return value

    packed: Mapping[str, Any] = _each(options, one)
    return packed


def unpack_options(options: Mapping[str, Any], local: Callable[[Bundle], Path]) -> Mapping[str, Any]:
    """Options with a path of this host for every PackedPath. ``local``: returns the folder of an extracted bundle."""

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
    """Text that is equal for processes with the same view of files: host name, boot, mount namespace and root."""
    root = os.stat("/")
    identity = [socket.gethostname(), str(root.st_dev), str(root.st_ino)]
    for name in ("/proc/sys/kernel/random/boot_id", "/proc/self/ns/mnt"):
        if os.path.exists(name):
            identity.append(os.readlink(name) if os.path.islink(name) else Path(name).read_text().strip())
    return "|".join(identity)


if not TYPE_CHECKING:
    __getattr__ = renamed_names(
        __name__, named="host_path_option", shipped_if_there="mark_host_paths", by_content="replace_paths_by_digest"
    )
