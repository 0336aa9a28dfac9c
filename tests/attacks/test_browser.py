"""Row 35: what a model writes, shown to a person in a real Chromium: the chat page and the report.

Those are the places where a browser meets a model's text today; the environment in which a model leads a browser brings
the rest of the row (its proxy, its contexts, its sites). No sandbox takes part, so there is one run for both backends.
"""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from lemur_ray.agents.trajectory import Outcome
from lemur_ray.report.pages.whole_page import render_run
from tests.report.report_samples import episode, write_ledger
from tests.serve.browser import Browser, Page, chromium, found
from tests.serve.scripted import Script, scripted

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(found() is None, reason="no Chromium here: apt-get install -y chromium"),
]


class Elsewhere(http.server.BaseHTTPRequestHandler):
    """A site that is not ours: whoever comes here was led off."""

    visited: list[str] = []  # noqa: RUF012 - one server, one list

    def do_GET(self) -> None:
        self.visited.append(self.path)
        self.send_response(200)
        self.end_headers()

    do_POST = do_GET

    def log_message(self, *words: object) -> None:
        pass


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with chromium(tmp_path_factory.mktemp("chromium")) as opened:
        yield opened


@pytest.fixture
def elsewhere() -> Iterator[str]:
    Elsewhere.visited.clear()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def hostile(site: str) -> str:
    """Every way of the row to act, each as HTML, as a Markdown link and bare."""
    targets = ["javascript:alert(1)", "data:text/html,<script>alert(1)</script>", "file:" + "///etc/passwd"]
    targets += ["vbscript:msgbox(1)", " java\tscript:alert(1)"]
    acts = ["document.title='owned'", f"fetch('{site}/fetched')", f"window.open('{site}/popup')"]
    acts += ["for(;;)alert(1)", "navigator.serviceWorker.register('/x.js')", f"location='{site}/moved'"]
    tags = [f'<script>{act}</script><img src=x onerror="{act}"><svg onload="{act}">' for act in acts]
    tags += [f'<a href="{target}" id=led>x</a> [led]({target}) ![led]({target}) <{target}>' for target in targets]
    tags += [
        f"<meta http-equiv=refresh content=0;url={site}/refreshed><base href={site}/based>",
        f"<iframe src={site}/framed></iframe><link rel=stylesheet href={site}/style><object data={site}/object>",
        f"<form action={site}/posted><input autofocus onfocus=this.form.submit()></form>",
        f"<a href={site}/file download ping={site}/ping>x</a><video autoplay src={site}/video>",
        f"![picture]({site}/picture.png) <style>@import '{site}/import';</style>",
    ]
    return "\n\n".join(tags)


def holds_still(page: Page, title: str) -> None:
    """Nothing of it acted: no dialog, no other page, no element that could, no request to the other site."""
    assert page.value("document.title") == title
    able = "iframe, object, embed, form[action], base, meta[http-equiv=refresh], [onerror], [onload], [ping], video"
    assert page.value(f"document.querySelectorAll({able!r}).length") == 0
    led = page.value("[...new Set([...document.querySelectorAll('a')].map(a => new URL(a.href, location).protocol))]")
    assert set(led) <= {"http:", "https:"}
    events = [event["method"] for event in page._browser.events]
    assert "Page.javascriptDialogOpening" not in events
    assert "Page.windowOpen" not in events
    assert "Page.downloadWillBegin" not in events


@pytest.fixture
def script() -> Iterator[Script]:
    with scripted() as answering:
        yield answering


def test_row_35_a_reply_on_the_chat_page_is_text(browser: Browser, script: Script, elsewhere: str) -> None:
    script.text = hostile(elsewhere)
    page = browser.page(f"{script.root}/")
    page.until("document.querySelector('#model option')")
    title = page.value("document.title")
    page.value("document.querySelector('#input').focus()")
    page.type("Go on.")
    page.key("Enter")
    page.until("document.querySelectorAll('.reply .facts button').length === 1")
    holds_still(page, title)
    assert Elsewhere.visited == []
    assert "<script>" in page.text(".reply .text"), "it can be read"


def test_row_35_an_episode_in_the_report_is_text(browser: Browser, elsewhere: str, tmp_path: Path) -> None:
    text = hostile(elsewhere) + "x" * 300_000
    write_ledger(tmp_path, [episode(text[:200], Outcome.FAILED, reply=text, observation=text, category=text[:500])])
    render_run(tmp_path, {"note": text[:2000]})
    quiet = functools.partial(QuietFiles, directory=tmp_path)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        page = browser.page(f"http://127.0.0.1:{server.server_port}/index.html")
        title = page.value("document.title")
        page.value("[...document.querySelectorAll('details')].map(part => { part.open = true; }).length")
        holds_still(page, title)
        server.shutdown()
    assert Elsewhere.visited == []
    assert len(page.value("document.documentElement.outerHTML")) < 200_000, "a huge text is cut"


class QuietFiles(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words: object) -> None:
        pass
