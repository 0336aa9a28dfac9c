"""Serves the report of results folders while runs go on: pages are written again when a ledger has grown.

Pages lie in a temporary folder, so of the results folders only that of running episodes is written. An open page asks
for the version of the report and loads itself again once there is a newer one, unless an episode is open on it; then it
offers a link. Knows nothing of the content of pages."""

import contextlib
import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

from lemur_ray.host.file_server import server
from lemur_ray.report.pages.live_page import PAGES, SHARE
from lemur_ray.report.pages.markup import page
from lemur_ray.report.pages.running_page import RunningEpisodes
from lemur_ray.report.pages.whole_page import render_report
from lemur_ray.rollout.evaluation_folder import LEDGER, evaluation_folders

VERSION = "version.json"
_NO_CONNECTIONS, _OWN_CONNECTIONS = b"default-src 'none';", b"default-src 'none'; connect-src 'self';"
_SCRIPT = """<script>
(() => {{const seen = {version}, main = document.querySelector("main");
const ask = async () => {{
  if (document.hidden || location.pathname === "/running.html") return;
  const running = await fetch("/running.json").then(answer => answer.json()).catch(() => null);
  let line = document.getElementById("running");
  if (running && !line) {{
    line = document.createElement("p"); line.id = "running";
    line.append(document.createElement("a")); line.firstChild.href = "/running.html"; main.prepend(line)}}
  if (running) {{
    line.firstChild.textContent = `Episodes being played: ${{running.episodes}}`;
    line.hidden = !running.episodes}}
  if (document.getElementById("newer")) return;
  const answer = await fetch("/version.json").catch(() => null);
  if (!answer || !answer.ok || (await answer.json()) === seen) return;
  if (!document.querySelector("details[open], #pair")) return location.reload();
  const note = document.createElement("p"), link = document.createElement("a");
  note.id = "newer"; note.className = "warn"; link.href = ""; link.textContent = "There are newer results: load them.";
  link.onclick = event => {{event.preventDefault(); location.reload()}};
  note.append(link); main.prepend(note);
}}; setInterval(ask, {poll_ms}); ask()}})()
</script></body>"""


class LiveReport:
    """The report pages of results folders, written to ``out``. A folder may be a suite's, whose benchmarks begin one
    after the other, and need not have episodes yet."""

    def __init__(self, folders: Sequence[Path], out: Path) -> None:
        self._folders, self._out = folders, out
        self._sizes: tuple[int, ...] = ()
        self.version = 0
        """Number of times that the pages were written."""

    def refresh(self) -> bool:
        """Write the pages again if a ledger has grown since the last call. Returns whether they were written. Raises
        ReportError, LedgerError (also for a ledger of a newer version)."""
        ledgers = [folder / LEDGER for folder in evaluation_folders([str(folder) for folder in self._folders])]
        sizes = tuple(path.stat().st_size if path.is_file() else 0 for path in ledgers)
        if sizes == self._sizes or not any(sizes):
            return False
        with_episodes = [path.parent for path, size in zip(ledgers, sizes, strict=True) if size]
        title = ", ".join(folder.name for folder in self._folders)
        render_report(self._out, runs=[], episodes=with_episodes, corpus=None, title=title)
        self._sizes, self.version = sizes, self.version + 1
        (self._out / VERSION).write_text(json.dumps(self.version))
        return True

    def with_script(self, poll_ms: int = 2000) -> Callable[[bytes], bytes]:
        """A function that adds to the HTML of a page the script that reloads it when there is a newer version; the
        script asks every ``poll_ms`` milliseconds."""
        script = _SCRIPT.format(version=self.version, poll_ms=poll_ms).encode()

        def change(html: bytes) -> bytes:
            head, end, rest = html.rpartition(b"</body>")
            return head.replace(_NO_CONNECTIONS, _OWN_CONNECTIONS, 1) + script + rest if end else html

        return change


@contextlib.contextmanager
def live_server(
    folders: Sequence[Path], host: str, port: int, every_s: float = 2.0, say: Callable[[str], None] = print
) -> Iterator[str]:
    """Context manager that serves the report of the folders in a thread; yields its address. Folders may have no
    episode yet; turns of running episodes are shown, too. ``every_s``: seconds between two checks of the ledgers;
    ``say``: prints a message. Raises OSError for a taken port, ReportError or LedgerError for broken files."""
    over = threading.Event()
    with tempfile.TemporaryDirectory(prefix=f"{PAGES}{os.getpid()}-") as pages:
        report, running = LiveReport(folders, Path(pages)), RunningEpisodes(folders, Path(pages))
        waiting = page("waiting", '<p class="lede">No episode has ended yet.</p>')
        (Path(pages) / VERSION).write_text("0")
        (Path(pages) / "index.html").write_text(waiting)
        with server(Path(pages), host, port, report.with_script) as listening:
            report.refresh()
            running.refresh()
            threads = [
                threading.Thread(target=listening.serve_forever, args=(0.1,), daemon=True),
                threading.Thread(target=_refresh_until, args=(report.refresh, every_s, over, say), daemon=True),
                threading.Thread(target=_refresh_until, args=(running.refresh, every_s / 2, over, say), daemon=True),
            ]
            for thread in threads:
                thread.start()
            try:
                yield f"http://{host}:{listening.server_address[1]}/"
            finally:
                over.set()
                listening.shutdown()
                for thread in threads:
                    thread.join()
                running.close()


def _refresh_until(
    refresh: Callable[[], object], every_s: float, over: threading.Event, say: Callable[[str], None]
) -> None:
    pause, complaint = every_s, ""
    while not over.wait(pause):
        began = time.monotonic()
        try:
            refresh()
        except Exception as error:  # a file that is being replaced, or what a plug-in shows; read again later
            if str(error) != complaint:
                complaint = str(error)
                say(complaint or type(error).__name__)
        pause = max(every_s, (time.monotonic() - began) * (1 / SHARE - 1))


def main() -> int:
    """``FOLDER PORT``: serve a run's report until standard input ends, which it does when the run's process is gone."""
    os.nice(5)  # less than the run; at 19 it would answer late on a busy machine
    folder, port = sys.argv[1:]
    with live_server([Path(folder)], "127.0.0.1", int(port), say=partial(print, file=sys.stderr)) as address:
        print(f"{address} shows this run while it goes on", file=sys.stderr, flush=True)
        sys.stdin.read()
    return 0


if __name__ == "__main__":
    sys.exit(main())
