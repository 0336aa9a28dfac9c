"""Gates that need a browser: pages of recorded rows are opened, and their observations and scores compared."""

import asyncio
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from envs.webarena.browser.host import BrowserHost
from envs.webarena.browser.last_page import LastTab
from envs.webarena.browser.session import Session
from envs.webarena.conformance.gate import Gate, compared, gate, rows_in
from envs.webarena.evaluators.evaluate import Evaluator
from lemur_ray.host.file_server import server

LIMIT_S = 120.0
FONT = "Liberation Serif"
"""Font of the recorded rows. Other fonts have other heights, so that other elements are in view."""
_SCROLL = "(document.scrollingElement || document.body).scrollTop += window.innerHeight"
_SETTLES_S = 0.2


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the files of a folder over HTTP on this machine, and yield the base URL."""
    with server(folder, "127.0.0.1", 0) as files:
        thread = threading.Thread(target=files.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{files.server_address[1]}"
        finally:
            files.shutdown()
            thread.join()


def browser_gates(folder: Path, host: BrowserHost) -> Iterator[Gate]:
    """Yield the gates whose recorded pages, in ``folder/pages``, are opened in a browser."""
    observations = rows_in(folder, "observations_chromium156.json")
    programs = rows_in(folder, "program_html_scores.json")
    with served(folder / "pages") as base:
        scored = compared(programs, lambda row: _score(row, base, host) == row["score"], lambda row: row["name"])
        yield gate("program_html", scored)
        read = compared(
            observations,
            lambda row: _read(row, base, host) == row["text_ids_normalised"],
            lambda row: f"{row['page']}, scrolled {row['scroll_steps']}",
        )
        yield gate("observation", read, note=fonts())


def fonts() -> str:
    """How this machine's fonts differ from those of the recorded rows, as text; empty if they agree or are unknown."""
    if shutil.which("fc-match") is None:
        return ""
    done = subprocess.run(["fc-match", "Times New Roman"], capture_output=True, text=True, check=False)
    if FONT.split()[0] in done.stdout:
        return ""
    return f"recorded with {FONT}; here is {done.stdout.strip()}: apt-get install -y fonts-liberation"


def _score(row: Mapping[str, Any], base: str, host: BrowserHost) -> float | str:
    record = {"task_id": row["name"], **json.loads(json.dumps({"eval": row["eval"]}).replace("{BASE}", base))}
    with _opened(host, base, row["page"]) as session:
        try:
            page = LastTab(session, _SETTLES_S)
            if row.get("setup_js"):
                page.evaluate(row["setup_js"])
            return Evaluator().score(record, "", page).score
        except Exception as error:  # the recorded result has the class of upstream's exception
            return f"error:{type(error).__name__}"


def _read(row: Mapping[str, Any], base: str, host: BrowserHost) -> str:
    async def look(session: Session) -> str:
        for _ in range(row["scroll_steps"]):
            await (await session.page()).evaluate(_SCROLL)
            await asyncio.sleep(_SETTLES_S)
        return (await session.seen("raw", strict=False)).text

    with _opened(host, base, row["page"]) as session:
        return renumbered(host.run(look(session), LIMIT_S, "reading a page")).replace(base, "{BASE}")


@contextmanager
def _opened(host: BrowserHost, base: str, page: str) -> Iterator[Session]:
    session = Session(host, [base.removeprefix("http://")])

    async def open_() -> None:
        await session.open()
        await session.start([f"{base}/{page}"])

    host.run(open_(), LIMIT_S, "opening a context")
    try:
        yield session
    finally:
        host.run(session.close(), LIMIT_S, "closing a context")


def renumbered(text: str) -> str:
    """Replace the element ids in an observation by numbers in order of appearance, from 1."""
    numbers: dict[str, int] = {}
    return re.sub(r"(?m)^(\t*)\[(\d+)\]", lambda m: f"{m[1]}[{numbers.setdefault(m[2], len(numbers) + 1)}]", text)
