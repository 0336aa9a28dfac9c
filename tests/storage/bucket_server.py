"""A service like Google's storage for tests, in a thread: what gcsfs and tensorstore ask of it, and troubles to order.

``with google_service() as service`` gives one; ``service.environment`` is what clients need to go there. Its history of
writes is checked at the end (``tests.faults.history_rules``).
"""

from __future__ import annotations

import contextlib
import json
import re
import select
import socket
import threading
import time
from collections import Counter
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from tests.faults.history import Client, History, process_at
from tests.faults.history_rules import check
from tests.faults.service_faults import Entrance, Trouble
from tests.storage.stored_objects import Objects, Refusal, Stored


class Service:
    """Objects, troubles and counts of one server."""

    def __init__(self, buckets: tuple[str, ...]) -> None:
        self.objects = Objects(buckets)
        self.troubles: list[Trouble] = []
        self.asked: Counter[str] = Counter()
        """Requests by ``METHOD kind``."""
        self.bytes_in = 0
        """Of the bodies of requests."""
        self.bytes_out = 0
        """Of objects. A client that gave up may still ask for a listing, even in the next test."""
        self.uploads: dict[str, dict[str, Any]] = {}
        self.lock = threading.Lock()
        self.ended = threading.Event()
        self.entrances: list[Entrance] = []
        self._servers = contextlib.ExitStack()

    @property
    def history(self) -> History:
        return self.objects.history

    @property
    def url(self) -> str:
        return self.entrances[0].url

    @property
    def environment(self) -> dict[str, str]:
        return self.entrances[0].environment

    def entrance(self, name: str, host: str = "127.0.0.1") -> Entrance:
        """Open one more address, on a free port."""
        entrance = Entrance(name)
        handler = type("Handler", (_Handler,), {"service": self, "entrance": entrance})
        server = self._servers.enter_context(_Server((host, 0), handler))
        entrance.url = f"http://{host}:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        self._servers.callback(thread.join)
        self._servers.callback(server.shutdown)
        entrance.mend()
        self.entrances.append(entrance)
        return entrance

    def close(self) -> None:
        self.ended.set()
        for entrance in self.entrances:
            entrance.mend()
        self._servers.close()

    def trouble(self, **what: Any) -> Trouble:
        """Order one more trouble."""
        self.troubles.append(Trouble(**what))
        return self.troubles[-1]

    def trouble_of(self, request: str) -> Trouble:
        with self.lock:
            for trouble in self.troubles:
                if trouble.times > 0 and re.search(trouble.match, request):
                    if trouble.skip > 0:
                        trouble.skip -= 1
                        continue
                    trouble.times -= 1
                    return trouble
        return Trouble()


_OBJECT = re.compile(r"(?:/download)?/storage/v1/b/([^/]+)/o/([^/]+)$")
_COPY = re.compile(r"/storage/v1/b/([^/]+)/o/([^/]+)/(copyTo|rewriteTo)/b/([^/]+)/o/([^/]+)$")
_COMPOSE = re.compile(r"/storage/v1/b/([^/]+)/o/([^/]+)/compose$")
_LISTING = re.compile(r"/storage/v1/b/([^/]+)/o$")
_BUCKET = re.compile(r"/storage/v1/b(?:/([^/]+))?$")
_UPLOAD = re.compile(r"/upload/storage/v1/b/([^/]+)/o$")


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # or each answer waits for what the client acknowledges late
    service: Service
    entrance: Entrance
    client: Client | None = None
    """Of this connection, once it has asked for a write."""

    def log_message(self, *_: object) -> None:
        """Quiet."""

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        self.query = dict(parse_qsl(parts.query, keep_blank_values=True))
        self.body = self._read_body()
        with self.service.lock:
            self.service.bytes_in += len(self.body)
        self.is_content = False
        self.entrance.is_open.wait()
        if self._client_left():
            self.close_connection = True
            return
        reads = self.command in ("GET", "HEAD") and not self.service.objects.listing_delay_s
        if self.client is None and not reads:
            pid = process_at(*self.client_address)
            agent = self.headers.get("User-Agent") or ""
            self.client = Client(self.entrance.name, self.client_address[0], pid, agent)
        self.trouble = self.service.trouble_of(f"{self.command} {self.path}")
        time.sleep(self.trouble.slow_s)
        if self.trouble.stop:
            self.service.ended.wait()
        if self.trouble.drop or self.trouble.stop:
            self._hang_up()
            return
        with self.service.history.sent_by(self.client or Client()):
            self._respond(parts.path)

    def _client_left(self) -> bool:
        readable, _, _ = select.select([self.connection], [], [], 0)
        try:
            return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)
        except OSError:
            return True

    def _respond(self, path: str) -> None:
        if self.trouble.status:
            if name := self._written(path):
                self.service.history.add(name, self.body, None, status=self.trouble.status)
            self._refuse(self.trouble.status, "in trouble")
            return
        for pattern, method in (
            (_UPLOAD, self._upload), (_COPY, self._copy), (_COMPOSE, self._compose), (_OBJECT, self._object),
            (_LISTING, self._listing), (_BUCKET, self._bucket),
        ):  # fmt: skip
            if found := pattern.match(path):
                with self.service.lock:
                    self.service.asked[f"{self.command} {method.__name__.strip('_')}"] += 1
                try:
                    method(*(unquote(group or "") for group in found.groups()))
                except Refusal as refusal:
                    self._refuse(refusal.status, refusal.reason)
                return
        self._refuse(404, f"nothing here answers {self.command} {self.path}")

    def _written(self, path: str) -> str:
        """``bucket/name`` of the object that this request would write or delete, empty if none."""
        if upload := _UPLOAD.match(path):
            name = self.query.get("name", "")
            if "upload_id" in self.query:
                name = self.service.uploads[self.query["upload_id"]]["name"]
            elif self.query.get("uploadType") == "multipart":
                name = _two_parts(self.body, self.headers["Content-Type"])[0].get("name") or name
            return f"{upload[1]}/{unquote(name)}"
        if composed := _COMPOSE.match(path):
            return f"{composed[1]}/{unquote(composed[2])}"
        if copy := _COPY.match(path):
            return f"{copy[4]}/{unquote(copy[5])}"
        deleted = _OBJECT.match(path) if self.command == "DELETE" else None
        return f"{deleted[1]}/{unquote(deleted[2])}" if deleted else ""

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = _handle

    def _read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        out = b""
        while size := int(self.rfile.readline().split(b";")[0], 16):
            out += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return out

    def _hang_up(self) -> None:
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)

    def _refuse(self, status: int, reason: str) -> None:
        self._answer(status, {"error": {"code": status, "message": reason, "errors": [{"reason": reason}]}})

    def _answer(self, status: int, body: Any = b"", headers: dict[str, str] | None = None) -> None:
        if self.trouble.lost:
            self._hang_up()
            return
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        data = b"" if status in (204, 304) else data
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **(headers or {})}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        if self.command == "HEAD":
            return
        whole = self.trouble.truncate < 0 or self.trouble.truncate >= len(data)
        sent = data if whole else data[: self.trouble.truncate]
        if self.is_content:
            with self.service.lock:
                self.service.bytes_out += len(sent)
        self.wfile.write(sent)
        if not whole:
            self._hang_up()

    # what can be asked
    def _bucket(self, bucket: str) -> None:
        if self.command == "POST":
            bucket = json.loads(self.body)["name"]
            self.service.objects.make_bucket(bucket)
        if bucket:
            self.service.objects.names(bucket)
        self._answer(200, {"kind": "storage#bucket", "name": bucket, "id": bucket, "location": "US"})

    def _listing(self, bucket: str) -> None:
        self._answer(200, self.service.objects.listing(bucket, self.query))

    def _object(self, bucket: str, name: str) -> None:
        objects = self.service.objects
        if self.command == "DELETE":
            objects.delete(bucket, name, self.query)
            self._answer(204)
            return
        found = objects.get(bucket, name, self.query)
        if self.query.get("alt") == "media" or self.path.startswith("/download"):
            self._content(found)
        else:
            self._answer(200, found.described())

    def _content(self, found: Stored) -> None:
        headers = {
            "Content-Type": found.content_type, "X-Goog-Generation": str(found.generation),
            "X-Goog-Metageneration": "1", "X-Goog-Stored-Content-Length": str(len(found.data)),
            "X-Goog-Hash": f"crc32c={found.crc32c()}",
        }  # fmt: skip
        self.is_content, size = True, len(found.data)
        asked = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers.get("Range") or "")
        if asked is None:
            self._answer(200, found.data, headers)
            return
        first, last = asked.groups()
        start = int(first) if first else max(0, size - int(last))
        end = min(int(last) + 1, size) if first and last else size
        if start >= size:
            self._answer(416, {"error": {"code": 416}}, {"Content-Range": f"bytes */{size}"})
            return
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        self._answer(206, found.data[start:end], headers)

    def _copy(self, bucket: str, name: str, how: str, to_bucket: str, to_name: str) -> None:
        source = self.service.objects.get(bucket, name, {})
        made = self.service.objects.put(to_bucket, to_name, source.data, self.query).described()
        size = made["size"]
        rewritten = {"done": True, "objectSize": size, "totalBytesRewritten": size, "resource": made}
        self._answer(200, rewritten if how == "rewriteTo" else made)

    def _compose(self, bucket: str, name: str) -> None:
        sources = json.loads(self.body)["sourceObjects"]
        self._answer(200, self.service.objects.compose(bucket, name, sources, self.query).described())

    def _upload(self, bucket: str) -> None:
        kind, objects = self.query.get("uploadType"), self.service.objects
        if kind == "media":
            self._answer(200, objects.put(bucket, self.query["name"], self.body, self.query).described())
        elif kind == "multipart":
            told, data = _two_parts(self.body, self.headers["Content-Type"])
            name = told.get("name") or self.query["name"]
            made = objects.put(bucket, name, data, self.query, metadata=told.get("metadata") or {})
            self._answer(200, made.described())
        elif "upload_id" not in self.query:
            told = json.loads(self.body or b"{}")
            with self.service.lock:
                key = f"upload-{len(self.service.uploads)}"
                self.service.uploads[key] = {
                    "name": told.get("name") or self.query["name"], "data": b"", "query": self.query,
                    "metadata": told.get("metadata") or {},
                }  # fmt: skip
            to = f"{self.entrance.url}/upload/storage/v1/b/{bucket}/o?uploadType=resumable&upload_id={key}"
            self._answer(200, {}, {"Location": to})
        else:
            self._continue(bucket, self.service.uploads[self.query["upload_id"]])

    def _continue(self, bucket: str, upload: dict[str, Any]) -> None:
        """A piece of a resumable upload, or the question how far it is."""
        if self.command == "DELETE":
            self._answer(499)
            return
        told = re.match(r"bytes (?:(\d+)-\d+|\*)/(\d+|\*)", self.headers.get("Content-Range") or "")
        if told is None or told[1] is not None:
            start = int(told[1]) if told else 0
            upload["data"] = upload["data"][:start] + self.body
        if told is None or told[2] == str(len(upload["data"])):
            if "made" not in upload:
                asked, metadata = upload["query"], upload["metadata"]
                made = self.service.objects.put(bucket, upload["name"], upload["data"], asked, metadata=metadata)
                upload["made"] = made.described()
            self._answer(200, upload["made"])
            return
        received = {"Range": f"bytes=0-{len(upload['data']) - 1}"} if upload["data"] else {}
        self._answer(308, b"", received)


def _two_parts(body: bytes, content_type: str) -> tuple[dict[str, Any], bytes]:
    """The JSON and the bytes of a multipart upload."""
    boundary = b"--" + content_type.split("boundary=")[1].strip('"').encode()
    _, first, rest = body.split(boundary, 2)
    last = rest.rindex(boundary)
    contents = [re.split(rb"\r?\n\r?\n", part, maxsplit=1)[1] for part in (first, rest[:last])]
    end = b"\r\n" if first.startswith(b"\r\n") else b"\n"  # content itself may end in a carriage return
    return json.loads(contents[0]), contents[1].removesuffix(end)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, *_: object) -> None:
        """A client that goes away is no news."""


@contextlib.contextmanager
def google_service(*buckets: str, host: str = "127.0.0.1") -> Iterator[Service]:
    """A service on a free port of this machine with these buckets ("bucket" where none is named)."""
    service = Service(buckets or ("bucket",))
    service.entrance("", host)
    try:
        yield service
    finally:
        service.close()
    check(service.history)
