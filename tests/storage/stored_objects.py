"""What a bucket service holds: named bytes with generations, conditions on them and listings. Knows nothing of HTTP."""

from __future__ import annotations

import base64
import itertools
import struct
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from tests.faults.history import History


class Refusal(Exception):
    """The service says no: an HTTP status and a word."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status, self.reason = status, reason


@dataclass
class Stored:
    """One object; a new one takes its place whenever it is written."""

    bucket: str
    name: str
    data: bytes
    generation: int
    content_type: str = "application/octet-stream"
    metadata: dict[str, str] = field(default_factory=dict)
    written: float = field(default_factory=time.time)

    def described(self) -> dict[str, Any]:
        """As the service's JSON has it; numbers are strings there."""
        when = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(self.written))
        return {
            "kind": "storage#object", "bucket": self.bucket, "name": self.name, "size": str(len(self.data)),
            "id": f"{self.bucket}/{self.name}/{self.generation}", "generation": str(self.generation),
            "metageneration": "1", "etag": str(self.generation), "contentType": self.content_type,
            "metadata": self.metadata, "timeCreated": when, "updated": when, "crc32c": self.crc32c(),
        }  # fmt: skip

    def crc32c(self) -> str:
        import google_crc32c

        return base64.b64encode(struct.pack(">I", google_crc32c.value(self.data))).decode()


class Objects:
    """All buckets of one service; safe from any thread."""

    def __init__(self, buckets: tuple[str, ...]) -> None:
        self.history = History()
        self.listing_delay_s = 0.0
        """Seconds until listings show an object written or deleted to others than the process that did it."""
        self.write_interval_s = 0.0
        """Minimum seconds between two writes of one object; an earlier one is answered 429."""
        self._recent: dict[tuple[str, str], list[tuple[float, Stored | None, object]]] = {}
        """(bucket, name) -> (when, state from then on, writer) of what is not listed yet, after what is."""
        self._lock = threading.RLock()
        self._of: dict[str, dict[str, Stored]] = {bucket: {} for bucket in buckets}
        self._generations = itertools.count(int(time.time() * 1e6))
        self.read_only: set[str] = set()
        """Buckets that answer 403 to whoever writes."""

    def names(self, bucket: str) -> list[str]:
        with self._lock:
            return sorted(self._in(bucket), key=str.encode)

    def _in(self, bucket: str) -> dict[str, Stored]:
        if bucket not in self._of:
            raise Refusal(404, "The specified bucket does not exist.")
        return self._of[bucket]

    def _for_writing(self, bucket: str) -> dict[str, Stored]:
        found = self._in(bucket)
        if bucket in self.read_only:
            raise Refusal(403, "does not have storage.objects.create access")
        return found

    def make_bucket(self, bucket: str) -> None:
        with self._lock:
            self._of.setdefault(bucket, {})

    def put(self, bucket: str, name: str, data: bytes, condition: Mapping[str, str], **more: Any) -> Stored:
        """Write an object where the condition (``ifGenerationMatch`` and the like) holds, else 412."""
        with self._lock:
            before, metadata = self._of.get(bucket, {}).get(name), more.get("metadata") or {}
            try:
                objects = self._for_writing(bucket)
                _check(before, condition)
                if before and time.time() - before.written < self.write_interval_s:
                    raise Refusal(429, "rateLimitExceeded")
            except Refusal as refusal:
                self._record(bucket, name, bytes(data), before, condition, metadata=metadata, status=refusal.status)
                raise
            objects[name] = made = Stored(bucket, name, bytes(data), next(self._generations), **more)
            self._record(bucket, name, made.data, before, condition, metadata=metadata, after=made.generation)
            self._appear(bucket, name, before, made)
            return made

    def get(self, bucket: str, name: str, condition: Mapping[str, str]) -> Stored:
        with self._lock:
            found = self._in(bucket).get(name)
            _check(found, condition)
            if found is None or condition.get("generation", str(found.generation)) != str(found.generation):
                raise Refusal(404, f"No such object: {bucket}/{name}")
            return found

    def compose(
        self, bucket: str, name: str, sources: Sequence[Mapping[str, Any]], condition: Mapping[str, str]
    ) -> Stored:
        """Write the contents of up to 32 objects, in the generations that are asked for, one after another."""
        if not 1 <= len(sources) <= 32:
            raise Refusal(400, "The number of source components must be between 1 and 32.")
        with self._lock:
            asked = [{**_generation(source), **source.get("objectPreconditions", {})} for source in sources]
            parts = [self.get(bucket, str(one["name"]), if_).data for one, if_ in zip(sources, asked, strict=True)]
            return self.put(bucket, name, b"".join(parts), condition)

    def delete(self, bucket: str, name: str, condition: Mapping[str, str]) -> None:
        with self._lock:
            before = self._of.get(bucket, {}).get(name)
            try:
                self.get(bucket, name, condition)
                del self._for_writing(bucket)[name]
            except Refusal as refusal:
                self._record(bucket, name, None, before, condition, status=refusal.status)
                raise
            self._record(bucket, name, None, before, condition)
            self._appear(bucket, name, before, None)

    def _record(
        self,
        bucket: str,
        name: str,
        data: bytes | None,
        before: Stored | None,
        condition: Mapping[str, str],
        **more: Any,
    ) -> None:
        was = before.generation if before else 0
        old = before.data if before else None
        self.history.add(f"{bucket}/{name}", data, old, before=was, condition=dict(condition), **more)

    def _appear(self, bucket: str, name: str, before: Stored | None, now: Stored | None) -> None:
        if self.listing_delay_s:
            states = self._recent.setdefault((bucket, name), [(0.0, before, None)])
            states.append((time.monotonic(), now, self.history.client.process))

    def _listed(self, bucket: str) -> dict[str, Stored]:
        """Objects of a bucket as listings show them, by name in order."""
        out = dict(self._in(bucket))
        until = time.monotonic() - self.listing_delay_s
        for (there, name), states in list(self._recent.items()):
            while len(states) > 1 and states[1][0] <= until:
                states.pop(0)
            if len(states) == 1:
                del self._recent[there, name]
            elif there == bucket and states[-1][2] != self.history.client.process:
                out.pop(name, None)
                out |= {name: states[0][1]} if states[0][1] else {}
        return dict(sorted(out.items(), key=lambda item: item[0].encode()))

    def listing(self, bucket: str, asked: Mapping[str, str]) -> dict[str, Any]:
        """One page: objects under a prefix, with a delimiter also what would be folders."""
        prefix, cut = asked.get("prefix", ""), asked.get("delimiter", "")
        first, end = asked.get("startOffset", ""), asked.get("endOffset", "")
        last_seen, limit = asked.get("pageToken", ""), int(asked.get("maxResults") or 1000)
        items: list[dict[str, Any]] = []
        folders: list[str] = []
        page = {"kind": "storage#objects", "items": items, "prefixes": folders}
        with self._lock:
            for name, stored in self._listed(bucket).items():
                if not name.startswith(prefix) or name < first or (end and name >= end):
                    continue
                inner, found, _ = name[len(prefix) :].partition(cut) if cut else (name, "", "")
                key = prefix + inner + cut if found else name
                if key <= last_seen or key in folders:
                    continue
                if len(items) + len(folders) == limit:
                    page["nextPageToken"] = before  # noqa: F821  # the loop has been round once
                    break
                if found:
                    folders.append(key)
                else:
                    items.append(stored.described())
                before = key  # noqa: F841
        return page


def _generation(source: Mapping[str, str]) -> dict[str, str]:
    return {"generation": str(source["generation"])} if "generation" in source else {}


def _check(found: Stored | None, condition: Mapping[str, str]) -> None:
    now = found.generation if found else 0
    if "ifGenerationMatch" in condition and int(condition["ifGenerationMatch"]) != now:
        raise Refusal(412, "conditionNotMet")
    if "ifGenerationNotMatch" in condition and int(condition["ifGenerationNotMatch"]) == now:
        raise Refusal(304 if found else 404, "notModified")
