"""Files of documents in every form, read whole or in parts, and a server of one that fails as it is told."""

from __future__ import annotations

import gzip
import io
import json
import random
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from lemur_ray.corpus.sources.file_refs import FileRef
from lemur_ray.corpus.sources.texts import read_texts
from lemur_ray.outside_data.byte_stream import ReadFailure

POSITIONS = 20
TEXTS = [f"document {i} " + "".join(random.Random(i).choices("abcdefgh \n", k=i % 900)) for i in range(400)]
LINES = b"".join(json.dumps({"text": text}).encode() + b"\n" for text in TEXTS)


def zstd(data: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(data, asbytes=True))


def parquet(data: bytes) -> bytes:
    out = io.BytesIO()
    texts = [json.loads(line)["text"] for line in data.splitlines()]
    pq.write_table(pa.table({"text": texts}), out, row_group_size=80, write_page_checksum=True)
    return out.getvalue()


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "jsonl": lambda data: data,
    "jsonl.gz": lambda data: gzip.compress(data[: len(data) // 2]) + gzip.compress(data[len(data) // 2 :]),
    "jsonl.zst": lambda data: zstd(data[: len(data) // 2]) + zstd(data[len(data) // 2 :]),
    "parquet": parquet,
}


def positions(size: int) -> list[int]:
    return sorted(random.Random(size).sample(range(size), POSITIONS))


def outcome(path: Path, size: int, **more: object) -> list[str] | ReadFailure:
    """All texts of a file, or of a part of it, or why it cannot be read."""
    try:
        return texts_of(str(path), size, **more)
    except ReadFailure as error:
        return error


def texts_of(path: str, size: int, name: str = "a", **more: object) -> list[str]:
    return [item.text for item in read_texts(FileRef(path, size, name=name, **more))]  # type: ignore[arg-type]


class FaultyServer:
    """Serves one file with ranges; ``faults`` are used up in order, one a request."""

    def __init__(self, data: bytes) -> None:
        self.data, self.faults, self.requests = data, list[str](), 0
        self.ranges = self.has_length = True
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True

            def log_message(self, format: str, *args: object) -> None:
                pass

            def do_GET(self) -> None:
                server.requests += 1
                fault = server.faults.pop(0) if server.faults else ""
                if fault.isdigit():
                    self.send_response(int(fault))
                    self.send_header("Retry-After", "7")
                    self.send_header("Content-Length", "0")
                    self.end_headers()
                    return
                first, _, last = self.headers.get("Range", "bytes=0-").removeprefix("bytes=").partition("-")
                data = server.data + b"!" if fault == "changed" else server.data
                if not data:
                    self.send_error(416)
                    return
                body = data[int(first) : int(last) + 1] if server.ranges else data
                self.send_response(206 if server.ranges else 200)
                total = "*" if fault == "no size" else len(data)
                begin = int(first) + (fault == "other range")
                if server.ranges:
                    self.send_header("Content-Range", f"bytes {begin}-{begin + len(body) - 1}/{total}")
                if server.has_length:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body[: len(body) // 2] if fault == "cut" else body)
                self.close_connection = fault == "cut" or not server.has_length

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.daemon_threads = True
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}/data"

    def close(self) -> None:
        self._http.shutdown()
        self._http.server_close()
