"""The ledger of a run: one JSON line per finished episode, appended, synced, never rewritten.

Of several records with one key, the first *scored* one counts. A record without a score (the policy was not to blame)
counts only until a scored one follows, because the next run plays the episode again. Opening a ledger for writing
removes an incomplete last line, which a crash leaves behind, and reports that; an invalid line anywhere else is an
error with file and line number. ``flock`` admits one writer at a time. Readers need no lock: DuckDB's ``read_json``
reads the file as it is, all records of a key included. A prefix that many openings share (``Trajectory.shared``: worked
examples) is written in the first record that has it; later records have its hash in ``trajectory.shared`` and the rest
of their opening.

Memory holds the offset of each key's record and whether it is scored; episodes are read from the file on access."""

import json
import os
import sys
from array import array
from collections import ChainMap
from collections.abc import Iterable, Iterator, MutableMapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import overload

from lemur_ray.agents.messages import Message
from lemur_ray.agents.trajectory import Episode, EpisodeKey, join_opening, opening_digest, split_opening
from lemur_ray.host.file_lock import take


class LedgerError(Exception):
    """Raised if a ledger has an invalid record, was replaced while open, or is open in another writer."""


class Ledger:
    """A ledger that is open for writing; only one process can. ``repaired``: message about an incomplete last line that
    was removed, empty if there was none. ``path``: the file, created if missing."""

    def __init__(self, path: Path) -> None:
        """Open or create the file. Raises LedgerError if another writer has it open, or a line is not an episode."""
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            if not take(self._fd):
                raise LedgerError(f"{path}: another run is writing to it; wait for it or choose another --out")
            self.repaired = _repair(self._fd, path)
            self._known: dict[str, tuple[Message, ...]] = {}
            self._places: dict[EpisodeKey, int] = {}
            for offset, _, episode in read_records(path, self._known):
                if self._is_current(episode):
                    self._places[_interned(episode.key)] = _place(offset, episode)
            _sync_folder(path.parent)
        except BaseException:
            os.close(self._fd)
            raise

    def append(self, episode: Episode) -> bool:
        """Write an episode and sync the file. Returns False, with nothing written, if the key's earlier record counts:
        a scored one always, an unscored one if this episode has no score either."""
        return self.extend([episode]) == 1

    def extend(self, episodes: Iterable[Episode]) -> int:
        """Write several episodes with one sync (milliseconds), skipping those that ``append`` would. Returns how many
        were written. Raises ValueError, with nothing written, for an unreadable record; OSError for a full disk."""
        new: dict[EpisodeKey, Episode] = {}
        for episode in episodes:
            before = new.get(episode.key)
            if self._is_current(episode) and (before is None or _supersedes(episode, before.outcome.scored)):
                new[episode.key] = episode
        known = ChainMap[str, tuple[Message, ...]]({}, self._known)
        written = [_line(e, known) for e in new.values()]
        lines = b"".join(written)
        size = os.fstat(self._fd).st_size
        try:
            while lines:
                lines = lines[os.write(self._fd, lines) :]
            os.fsync(self._fd)
        except OSError:
            os.ftruncate(self._fd, size)  # a full disk must not leave half a line for the next record to run into
            raise
        for episode, line in zip(new.values(), written, strict=True):
            self._places[episode.key] = _place(size, episode)
            size += len(line)
        self._known.update(known.maps[0])
        return len(new)

    def __contains__(self, key: EpisodeKey) -> bool:
        return key in self._places

    def settled(self, key: EpisodeKey) -> bool:
        """Whether the key has a scored record, so that the episode is not played again."""
        return bool(self._places.get(key, 0) & 1)

    def __len__(self) -> int:
        return len(self._places)

    def get(self, key: EpisodeKey) -> Episode | None:
        """The episode in a key's current record; None if there is none."""
        episodes = self.episodes([key])
        return episodes[0] if episodes else None

    def episodes(self, keys: Iterable[EpisodeKey]) -> "Episodes":
        """The episodes in the current records of ``keys``, in order, without missing ones. Works after ``close``."""
        offsets = (self._places[key] >> 1 for key in keys if key in self._places)
        return Episodes(self.path, array("q", offsets), self._known)

    def _is_current(self, episode: Episode) -> bool:
        before = self._places.get(episode.key)
        return before is None or _supersedes(episode, bool(before & 1))

    def close(self) -> None:
        """Release the lock. Safe to call twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


class Episodes(Sequence[Episode]):
    """A sequence of episodes in a ledger's file, each read on access; equal to any sequence of the same episodes.
    Access raises LedgerError if the file was replaced, FileNotFoundError if it is gone."""

    def __init__(self, path: Path, offsets: "array[int]", known: MutableMapping[str, tuple[Message, ...]]) -> None:
        self._path, self._offsets, self._known = path, offsets, known

    def __len__(self) -> int:
        return len(self._offsets)

    def __iter__(self) -> Iterator[Episode]:
        with self._path.open("rb") as file:
            for offset in self._offsets:
                file.seek(offset)
                yield _record_there(self._path, offset, file.readline(), self._known)

    @overload
    def __getitem__(self, place: int) -> Episode: ...

    @overload
    def __getitem__(self, place: slice) -> "Episodes": ...

    def __getitem__(self, place: int | slice) -> "Episode | Episodes":
        if isinstance(place, slice):
            return Episodes(self._path, self._offsets[place], self._known)
        return next(iter(Episodes(self._path, array("q", [self._offsets[place]]), self._known)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"<{len(self)} episodes in {self._path}>"


def read_episodes(path: Path) -> list[Episode]:
    """The current episode of each key, in the order of the keys' first records; an incomplete last line is ignored.
    Raises LedgerError if a complete line is not an episode, FileNotFoundError if there is no ledger."""
    current: dict[EpisodeKey, Episode] = {}
    for _, _, episode in read_records(path, {}):
        before = current.get(episode.key)
        if before is None or _supersedes(episode, before.outcome.scored):
            current[episode.key] = episode
    return list(current.values())


def merge_ledger(before: Path, into: Path) -> None:
    """Append to the ledger ``into`` (created if missing) the episodes of the ledger ``before`` that it lacks, or has
    only without a score. Raises LedgerError if another process writes to ``into`` or one of the files has an invalid
    line, FileNotFoundError without ``before``."""
    with Ledger(into) as ledger:
        ledger.extend(read_episodes(before))


def _supersedes(episode: Episode, scored_before: bool) -> bool:
    return episode.outcome.scored and not scored_before


def _place(offset: int, episode: Episode) -> int:
    """A record's offset and, in the lowest bit, whether it is scored, as one number, which saves memory."""
    return offset << 1 | episode.outcome.scored


def _interned(key: EpisodeKey) -> EpisodeKey:
    """The key, with its repeated parts (benchmark, policy, recipe) as strings that all keys share in memory."""
    words = [sys.intern(word) for word in (key.benchmark, key.policy, key.recipe)]
    return replace(key, benchmark=words[0], policy=words[1], recipe=words[2])


def read_records(path: Path, known: dict[str, tuple[Message, ...]]) -> Iterator[tuple[int, bytes, Episode]]:
    """Yield every record as (offset, line, episode), one at a time; an incomplete last line is ignored. ``known`` is
    filled with the shared prefixes by hash, to which later records refer. Raises LedgerError if a complete line is not
    an episode, FileNotFoundError without a ledger."""
    offset = 0
    with path.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n") and not _is_record(line):
                return  # left by a crash, or being written at this moment
            try:
                yield offset, line, _record(line, known)
            except ValueError as error:
                raise LedgerError(
                    f"{path}, line {number}: {error}; move the file away or mend the line. If a newer version of "
                    "lemur-ray wrote it, use that"
                ) from error
            offset += len(line)


def record_at(path: Path, offset: int, size: int, known: dict[str, tuple[Message, ...]]) -> Episode:
    """The episode in the record of ``size`` bytes at ``offset``, as ``read_records`` returned them. ``known``: its
    shared prefixes. Raises LedgerError if the file was replaced."""
    with path.open("rb") as file:
        file.seek(offset)
        return _record_there(path, offset, file.read(size), known)


def _record_there(path: Path, offset: int, line: bytes, known: MutableMapping[str, tuple[Message, ...]]) -> Episode:
    try:
        return _record(line, known)
    except ValueError as error:
        raise LedgerError(f"{path}, byte {offset}: {error}; was it replaced while it was read?") from error


def _repair(fd: int, path: Path) -> str:
    """Make the file end in a newline: add it to a last record that lacks only that, remove any other incomplete line.
    Returns a message, empty if nothing was repaired."""
    tail = _tail(path)
    if not tail:
        return ""
    if _is_record(tail):
        os.write(fd, b"\n")
        message = f"{path}: the last record lacked its newline; added"
    else:
        os.ftruncate(fd, os.fstat(fd).st_size - len(tail))
        message = f"{path}: cut off a torn record of {len(tail)} bytes; its episode will be played again"
    os.fsync(fd)
    return message


def _tail(path: Path) -> bytes:
    """The bytes of a file after its last newline: an incomplete last line, or empty."""
    blocks: list[bytes] = []
    with path.open("rb") as file:
        at = file.seek(0, os.SEEK_END)
        while at and not (blocks and b"\n" in blocks[-1]):
            step = min(at, 2**16)
            at = file.seek(at - step)
            blocks.append(file.read(step))
    tail = b"".join(reversed(blocks))
    return tail[tail.rfind(b"\n") + 1 :]


def _line(episode: Episode, known: MutableMapping[str, tuple[Message, ...]]) -> bytes:
    """The line of an episode's record. ``known``: shared prefixes in the file by hash; a new one is added. Raises
    ValueError if the record could not be read again."""
    try:
        record = episode.to_json()
        Episode.from_json(record)
        if episode.trajectory.shared:
            head, rest = split_opening(episode.trajectory)
            name = opening_digest(head)
            if name in known:
                record["trajectory"] |= {"opening": [message.to_json() for message in rest], "shared": name}
            known[name] = head
        return json.dumps(record, separators=(",", ":"), allow_nan=False).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        message = f"episode {episode.key!r} is not written, it is no record in JSON that could be read again: {error}"
        raise ValueError(message) from error


def _record(line: bytes, known: MutableMapping[str, tuple[Message, ...]] | None = None) -> Episode:
    """The episode in a line. ``known``: as in ``_line``; None: leave out a shared prefix that is given by its hash."""
    try:
        record = json.loads(line)
        shared = record["trajectory"].get("shared", 0) if isinstance(record, dict) else 0
        if not isinstance(shared, str):
            episode = Episode.from_json(record)
            if episode.trajectory.shared and known is not None:
                head, _ = split_opening(episode.trajectory)
                known[opening_digest(head)] = head
            return episode
        record["trajectory"]["shared"] = 0
        episode = Episode.from_json(record)
    except RecursionError as error:
        raise ValueError("not an episode record: nested too deeply") from error
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"not an episode record: {type(error).__name__}: {error}") from error
    if known is None:
        return episode
    if shared not in known:
        raise ValueError(f"its opening begins as an earlier record's ({shared}), which is not in the file")
    return replace(episode, trajectory=join_opening(known[shared], episode.trajectory))


def _is_record(line: bytes) -> bool:
    try:
        _record(line)
    except ValueError:
        return False
    return True


def _sync_folder(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
