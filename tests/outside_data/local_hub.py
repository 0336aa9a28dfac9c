"""A Hub on this machine: serves data sets and GitHub's files as they do, and fails on request.

Every request is written down. A fault belongs to one path and is used up in order, one a GET (``Fault.head``: one a
HEAD): a list says how often a server fails before it serves.
"""

from __future__ import annotations

import json
import random
import re
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from fnmatch import fnmatch
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

from lemur_ray.outside_data.source import Source

COMMIT = "c" * 40
CONTENT = random.Random(0).randbytes(200_000)
HUB, GIT = f"hub:them/set@{COMMIT}/", f"git:them/set@{COMMIT}/"


@dataclass(frozen=True)
class Fault:
    """``after``: bytes of the body that still come before the connection is cut, or stalls."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    after: int = -1
    stall: bool = False
    head: bool = False
    size: int | None = None
    """What a HEAD says instead of the size."""


class LocalHub:
    """``files``: by (repository, commit, name)."""

    def __init__(self) -> None:
        self.files: dict[tuple[str, str, str], bytes] = {}
        self.archives: dict[tuple[str, str], bytes] = {}
        self.gated: set[str] = set()
        self.token = "hf_good"
        self.ranges = True
        self.commit_header = ""
        """What is said of every file instead of its commit."""
        self.faults: defaultdict[str, list[Fault]] = defaultdict(list)
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.served = threading.Event()
        self.ending = threading.Event()
        self.url = ""

    def put(self, name: str, content: bytes, repo: str = "them/set", commit: str = COMMIT) -> None:
        self.files[repo, commit, name] = content

    def gets(self, name: str) -> list[dict[str, str]]:
        """Headers of every GET of a file."""
        return [headers for method, path, headers in self.requests if method == "GET" and path.endswith(name)]

    def fault_of(self, name: str, head: bool) -> Fault | None:
        for path, faults in self.faults.items():
            for fault in faults:
                if name.endswith(path) and fault.head == head:
                    faults.remove(fault)
                    return fault
        return None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    hub: LocalHub

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self._serve()

    def do_GET(self) -> None:
        self._serve()

    def do_POST(self) -> None:
        asked = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        path = self._noted()
        if found := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)/paths-info/([^/]+)", path):
            names = [unquote(value) for key, _, value in (p.partition("=") for p in asked.split("&")) if key == "paths"]
            names = names or json.loads(asked or "{}").get("paths", [])
            self._json(self._tree(found[1], found[2], names))
        else:
            self._error(404)

    def _noted(self) -> str:
        path = unquote(urlsplit(self.path).path)
        self.hub.requests.append((self.command, path, dict(self.headers)))
        return path

    def _serve(self) -> None:
        path = self._noted()
        if found := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)(/revision/([^/]+))?", path):
            self._info(found[1], COMMIT if found[3] in (None, "main") else found[3])
        elif found := re.fullmatch(r"/api/datasets/([^/]+/[^/]+)/tree/([^/]+)/?(.*)", path):
            self._json(self._tree(found[1], found[2], [f"{found[3]}/*" if found[3] else "*"]))
        elif found := re.fullmatch(r"/datasets/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._file(path, self.hub.files.get((found[1], found[2], found[3])), repo=found[1], commit=found[2])
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/tar.gz/([^/]+)", path):
            self._file(path, self.hub.archives.get((found[1], found[2])))
        elif found := re.fullmatch(r"/([^/]+/[^/]+)/([0-9a-f]{40})/(.+)", path):
            self._file(path, self.hub.files.get((found[1], found[2], found[3])))
        else:
            self._error(404)

    def _info(self, repo: str, commit: str) -> None:
        if self._refused(repo):
            return
        siblings = [{"rfilename": name} for r, c, name in self.hub.files if (r, c) == (repo, commit)]
        if not siblings:
            known = any(r == repo for r, _, _ in self.hub.files)
            self._error(404, {"X-Error-Code": "RevisionNotFound" if known else "RepoNotFound"})
            return
        self._json({"id": repo, "sha": commit, "siblings": siblings, "private": False, "tags": [], "downloads": 0})

    def _tree(self, repo: str, commit: str, patterns: list[str]) -> list[dict[str, object]]:
        files = [
            {"type": "file", "path": name, "size": len(content), "oid": sha256(content).hexdigest()[:40]}
            for (r, c, name), content in self.hub.files.items()
            if (r, c) == (repo, commit) and any(fnmatch(name, pattern) for pattern in patterns)
        ]
        folders = {parent for r, c, name in self.hub.files if (r, c) == (repo, commit) for parent in _parents(name)}
        return files + [
            {"type": "directory", "path": one, "oid": "0" * 40}
            for one in folders
            if any(fnmatch(one, pattern) for pattern in patterns)
        ]

    def _refused(self, repo: str) -> bool:
        if repo not in self.hub.gated:
            return False
        told = self.headers.get("Authorization")
        if told == f"Bearer {self.hub.token}":
            return False
        said = {"X-Error-Code": "GatedRepo", "X-Error-Message": "Access to dataset is restricted."}
        self._error(403 if told else 401, said)
        return True

    def _file(self, path: str, content: bytes | None, repo: str = "", commit: str = "") -> None:
        hub = self.hub
        if repo and self._refused(repo):
            return
        fault = hub.fault_of(path, self.command == "HEAD") or Fault()
        if fault.status:
            self._error(fault.status, fault.headers)
            return
        if content is None:
            known = {c for r, c, _ in hub.files if r == repo}
            code = "EntryNotFound" if commit in known else "RevisionNotFound" if known else "RepoNotFound"
            self._error(404, {"X-Error-Code": code} if repo else {})
            return
        asked = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")) if hub.ranges else None
        first = int(asked[1]) if asked else 0
        body = content[first : int(asked[2]) + 1 if asked and asked[2] else None]
        self.send_response(206 if asked else 200)
        if asked:
            self.send_header("Content-Range", f"bytes {first}-{first + len(body) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(body) if fault.size is None else fault.size))
        self.send_header("ETag", f'"{sha256(content).hexdigest()}"')
        if repo:
            self.send_header("X-Repo-Commit", hub.commit_header or commit)
        self.end_headers()
        if self.command == "HEAD":
            return
        self.wfile.write(body if fault.after < 0 else body[: fault.after])
        self.wfile.flush()
        hub.served.set()
        if fault.stall:
            hub.ending.wait(30)
        if fault.after >= 0:
            self.close_connection = True

    def _json(self, value: object) -> None:
        body = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _error(self, status: int, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", "0")
        self.end_headers()


def _parents(name: str) -> list[str]:
    parts = name.split("/")[:-1]
    return ["/".join(parts[: n + 1]) for n in range(len(parts))]


@contextmanager
def serve() -> Iterator[LocalHub]:
    """A hub with no file, until the block ends."""
    hub = LocalHub()
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": hub}))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hub
    finally:
        hub.ending.set()
        server.shutdown()
        server.server_close()


def source(url: str = f"{HUB}a.bin", content: bytes = CONTENT, **given: object) -> Source:
    fields: dict[str, object] = {
        "path": "set/a.bin", "url": url, "sha256": sha256(content).hexdigest(), "size": len(content),
        "licence": "MIT", **given,
    }  # fmt: skip
    return Source(**fields)  # type: ignore[arg-type]
