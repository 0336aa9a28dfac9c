"""Rules that the writes of a bucket obey whatever fails, and the breaches of them in a history.

1. A writer whose attempt was superseded has no write accepted in that folder, except for data of checkpoints that it
   can no longer commit and lines that it can no longer join to their file. Fence objects (``FENCES``) hold the number
   of the newest attempt.
2. What only grows (``*.jsonl``, and the pieces of one) never shrinks and never changes in its first part.
3. A commit (a checkpoint's marker, an index of pieces) names only objects that exist, and while it stands none of them
   is deleted or replaced; one command has written a whole checkpoint.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.faults.history import TEST, Client, History, Write

FENCES = {".run.lease": ("holder", "holder"), ".run.attempt": ("attempt", "driver")}
"""Objects with the number of the newest attempt of their folder -> JSON fields of that number, and of the first attempt
of the same command: that binds all processes of the command."""
_CHECKPOINT = re.compile(r"(.+/checkpoints/\d+(?:\.attempt-(\d+))?/)(.+)")
_MARKER = "commit_success.txt"
_NEEDED = ("plan/metadata", "state/_METADATA", "state/manifest.ocdbt")
"""Objects that every committed checkpoint has."""
_UNJOINED = re.compile(r"\.jsonl\.part-[0-9a-f]{12}$")
_WITH_ATTEMPT = ("/result.json", "/stopped.json")
"""JSON objects that hold the attempt that writes them."""
_INDEX = re.compile(r"(.+\.pieces/)index\.json$")


@dataclass(frozen=True)
class Breach:
    """A write that broke a rule."""

    rule: str
    write: Write
    why: str

    def __str__(self) -> str:
        return f"{self.rule}: {self.write}: {self.why}"


def check(history: History) -> None:
    """Raise AssertionError that lists the breaches of a history."""
    broken = [breach for breach in breaches(history.writes) if breach.rule not in history.excused]
    lines = "\n".join(f"  {breach}" for breach in broken[:20])
    assert not broken, f"{len(broken)} breaches in a history of {len(history.writes)} writes:\n{lines}"


def breaches(writes: Iterable[Write]) -> list[Breach]:
    """All breaches in these writes, in order. Writes of the test itself change the state and break no rule."""
    fencing, objects = _Fencing(), _Objects()
    out: list[Breach] = []
    for write in writes:
        if not write.accepted:
            continue
        attempt = objects.attempt(write)
        whys = [("superseded", why) for why in fencing.apply(write, attempt)]
        whys += objects.breaks(write, attempt)
        objects.apply(write)
        out += [Breach(rule, write, why) for rule, why in whys if write.client != TEST]
    return out


@dataclass(frozen=True)
class _Attempt:
    """The newest attempt at a fence object."""

    number: int = 0
    first: int = 0
    """First attempt of the same command."""
    id: object = None
    taken_at: int = 0
    """Number of the write that took it."""


class _Fencing:
    """The newest attempt at each fence object, and which command each client belongs to."""

    def __init__(self) -> None:
        self._newest: dict[str, _Attempt] = {}
        self._first: dict[tuple[str, object], int] = {}
        """(fence, client) -> first attempt of its command."""

    def apply(self, write: Write, attempt: int | None) -> list[str]:
        """Reasons why this write should have been refused; notes the attempt if it takes one.

        attempt: that the write itself states.
        """
        out = [] if _is_scratch(write) else list(self._superseded(write, attempt))
        fields = FENCES.get(write.name.rpartition("/")[2])
        if fields is None or write.deletes or write.client == TEST:
            return out
        value, newest = write.value(), self._newest.get(write.name, _Attempt())
        number = int(value.get(fields[0], 0))
        taken = _Attempt(number, int(value.get(fields[1], number)), value.get("id"), write.number)
        if number < newest.number:
            return [*out, f"it takes {write.name} back from attempt {newest.number} to {number}"]
        if number == newest.number and taken.id != newest.id:
            out.append(f"attempt {number} was taken by another client at #{newest.taken_at}")
        if number > newest.number:
            self._newest[write.name] = taken
        self._first[write.name, _command(write.client)] = taken.first
        return out

    def _superseded(self, write: Write, attempt: int | None) -> Iterator[str]:
        for fence, newest in self._newest.items():
            folder, _, name = fence.rpartition("/")
            if not write.name.startswith(f"{folder}/"):
                continue
            after = f"attempt {newest.number} had taken {fence} at #{newest.taken_at}"
            first = self._first.get((fence, _command(write.client)))
            if first is not None and first < newest.first:
                yield f"its command had attempt {first}, and {after}"
            elif attempt is not None and attempt < newest.number and name == ".run.attempt":
                yield f"it is of attempt {attempt}, and {after}"


def _command(client: Client) -> object:
    return client.entrance or client.process


def _is_scratch(write: Write) -> bool:
    """Whether this counts for nothing yet: data of a checkpoint without its marker, lines not joined to their file."""
    if _UNJOINED.search(write.name):
        return True
    checkpoint = _CHECKPOINT.match(write.name)
    return checkpoint is not None and checkpoint[3] != _MARKER


@dataclass
class _Objects:
    """The objects that exist, and the commits that name them."""

    live: dict[str, Write] = field(default_factory=dict)
    named: dict[str, str] = field(default_factory=dict)
    """Name of a piece -> the index that names it."""
    text: dict[str, bytes] = field(default_factory=dict)
    """Name of an index -> content of its file."""
    folders: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Folder of a checkpoint -> names of its objects."""

    def attempt(self, write: Write) -> int | None:
        """The attempt that a write states: in its metadata, its content or its checkpoint's. A deletion states none."""
        if write.deletes:
            return None
        if "attempt" in write.metadata:
            return int(write.metadata["attempt"])
        if write.name.endswith(_WITH_ATTEMPT) and "attempt" in write.value():
            return int(write.value()["attempt"])
        if (checkpoint := _CHECKPOINT.match(write.name)) is None:
            return None
        plan = self.live.get(f"{checkpoint[1]}plan/metadata")
        stated = checkpoint[2] or (plan.value().get("attempt") if plan else None)
        return int(stated) if stated else None

    def breaks(self, write: Write, attempt: int | None) -> list[tuple[str, str]]:
        """(rule, reason) of each breach by this write, before it is applied."""
        out = [("shrank", why) for why in self._shrinks(write)]
        if checkpoint := _CHECKPOINT.match(write.name):
            folder, _, name = checkpoint.groups()
            if name != _MARKER and f"{folder}{_MARKER}" in self.live:
                out.append(("commit", f"checkpoint {folder} is committed, and this object belongs to it"))
            if name == _MARKER and not write.deletes:
                absent = [piece for piece in _NEEDED if f"{folder}{piece}" not in self.live]
                out += [("commit", f"checkpoint {folder} lacks {', '.join(absent)}")] if absent else []
                out += [("commit", why) for why in self._authors(folder, write)]
        if index := self.named.get(write.name):
            same = not write.deletes and write.sha256 == self.live[write.name].sha256
            out += [] if same else [("commit", f"{index} names this piece")]
        return out

    def apply(self, write: Write) -> None:
        checkpoint = _CHECKPOINT.match(write.name)
        if write.deletes:
            self.live.pop(write.name, None)
            if checkpoint:
                self.folders[checkpoint[1]].discard(write.name)
            return
        self.live[write.name] = write
        if checkpoint:
            self.folders[checkpoint[1]].add(write.name)
        if index := _INDEX.match(write.name):
            for piece in [piece for piece, by in self.named.items() if by == write.name]:
                del self.named[piece]
            self.named |= {f"{index[1]}{name}": write.name for name, _, _ in write.value().get("pieces", ())}
            self.text[write.name], _ = self._assembled(write)

    def _shrinks(self, write: Write) -> Iterator[str]:
        if write.name.endswith(".jsonl") and write.before and ".pieces/" not in write.name:
            if write.deletes:
                yield f"it held {write.size_before} bytes"
            elif not write.extends:
                yield f"it held {write.size_before} bytes that the new content does not begin with"
        if not _INDEX.match(write.name):
            return
        before = self.text.get(write.name, b"")
        text, absent = (b"", list[str]()) if write.deletes else self._assembled(write)
        if absent:
            yield f"it names {', '.join(absent)}, which are absent or have other content"
        elif not text.startswith(before):
            yield f"its file held {len(before)} bytes that the {len(text)} bytes of its pieces do not begin with"

    def _assembled(self, index: Write) -> tuple[bytes, list[str]]:
        """(content of the pieces that an index names, names of those that are absent or differ)."""
        folder, out, absent = index.name.rpartition("/")[0], b"", []
        for name, _, sha256 in index.value().get("pieces", ()):
            piece = self.live.get(f"{folder}/{name}")
            if piece is None or piece.sha256 != sha256:
                absent.append(f"{folder}/{name}")
            else:
                out += piece.data or b""
        return out, absent

    def _authors(self, folder: str, marker: Write) -> Iterator[str]:
        """Objects of a checkpoint that another command wrote than the one that commits it."""
        names = sorted(self.folders[folder])
        others = [name for name in names if _command(self.live[name].client) != _command(marker.client)]
        if marker.client.entrance and others:
            yield f"another command wrote {', '.join(others[:3])}"
