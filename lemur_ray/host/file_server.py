"""A server of the files of a folder, for pages that are looked at on this machine."""

from __future__ import annotations

import functools
import http.server
from collections.abc import Callable
from pathlib import Path
from typing import Any


class Files(http.server.SimpleHTTPRequestHandler):
    """Answers with files, without a log and without caches."""

    change: Callable[[str, bytes], bytes] | None = None
    """Path and content of an HTML file -> the content to send; None: as it is."""

    def __init__(self, *args: Any, change: Callable[[str, bytes], bytes] | None = None, **options: Any) -> None:
        self.change = change
        super().__init__(*args, **options)

    def do_GET(self) -> None:
        """Send a file, an HTML file with its change."""
        path = Path(self.translate_path(self.path))
        path = path / "index.html" if path.is_dir() else path
        if self.change is None or path.suffix != ".html" or not path.is_file():
            super().do_GET()
            return
        content = self.change(self.path, path.read_bytes())
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def list_directory(self, path: Any) -> None:
        """Refuse: only pages are served."""
        self.send_error(404)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing: requests are of no interest to who reads."""


def server(
    folder: Path, host: str, port: int, change: Callable[[str, bytes], bytes] | None = None
) -> http.server.ThreadingHTTPServer:
    """A server that listens already. Raises OSError for a port that is taken. ``change``: of ``Files``."""
    handler = functools.partial(Files, directory=str(folder), change=change)
    return http.server.ThreadingHTTPServer((host, port), handler)
