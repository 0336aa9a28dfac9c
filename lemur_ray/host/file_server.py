"""HTTP server of the files in a folder, for viewing pages on this machine."""

import functools
import http.server
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

Change = Callable[[], Callable[[bytes], bytes]]
"""Called before an HTML file is read; returns a function from its content to what is sent."""


class Files(http.server.SimpleHTTPRequestHandler):
    """HTTP request handler that sends files of a folder, without logging and with caching disabled."""

    def __init__(self, *args: Any, change: Change | None = None, **options: Any) -> None:
        self.change = change
        super().__init__(*args, **options)

    def do_GET(self) -> None:
        """Send the requested file; HTML is first passed through the function that ``change()`` returns, if set."""
        path = Path(self.translate_path(self.path))
        path = path / "index.html" if path.is_dir() else path
        if self.change is None or path.suffix != ".html" or not path.is_file():
            super().do_GET()
            return
        change = self.change()
        content = change(path.read_bytes())
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def end_headers(self) -> None:
        self.send_header("Cache-Control", "no-store")
        super().end_headers()

    def list_directory(self, path: Any) -> None:
        """Answer 404: folders are not listed."""
        self.send_error(404)

    def log_message(self, format: str, *args: Any) -> None:
        """Do nothing: requests are not logged."""


class _Server(http.server.ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore browsers that disconnect before the end of a page; report other errors."""
        if not isinstance(sys.exc_info()[1], ConnectionError):
            super().handle_error(request, client_address)


def server(folder: Path, host: str, port: int, change: Change | None = None) -> http.server.ThreadingHTTPServer:
    """An HTTP server of the files in ``folder`` that already listens; call ``serve_forever``. Port 0: any free one.
    ``change``: applied to HTML files; None: no change. Raises OSError if the port is taken."""
    handler = functools.partial(Files, directory=str(folder), change=change)
    return _Server((host, port), handler)
