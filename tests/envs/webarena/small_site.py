"""A small web application and its tasks: a shop of three articles with a basket, and pages that misbehave."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from envs.webarena.site_set import Chain, Lease, Record, SitesLost

ARTICLES = {"pen": "$1.50", "ink": "$7.25", "paper": "$3.00"}
PAGES: Mapping[str, str] = {
    "/alerts": "<script>setInterval(() => alert('again'), 1)</script><h1>Alerts</h1>",
    "/prompts": "<script>while (prompt('Name?') === null) {}</script><h1>Prompts</h1>",
    "/busy": "<h1>Busy</h1><script>setTimeout(() => { while (true) {} }, 100)</script>",
    "/popups": "<button onclick='for (let i = 0; i < 30; i++) window.open(\"/?\" + i)'>More</button>",
    "/download": "<a href='/file'>File</a>",
    "/outside": "<img src='http://127.0.0.1:{other}/tracker'><a href='http://127.0.0.1:{other}/'>Away</a>",
    "/unicode": "<p>日本語 😀 \u202e control</p><textarea aria-label=Text></textarea>",
    "/vanishing": "<button onclick='this.remove()'>Gone</button>",
    "/many": "<div></div><script>document.body.innerHTML = '<p>x</p>'.repeat(200000)</script>",
    "/shadow": "<div></div><script>document.querySelector('div').attachShadow({mode: 'open'})"
    ".innerHTML = '<p>x</p>'.repeat(200000)</script>",
    "/texts": "<p></p><script>const texts = new DocumentFragment(); for (let i = 0; i < 200000; i++) {"
    "texts.append('x ', document.createComment('')) }; document.querySelector('p').append(texts)</script>",
    "/strange/stringify": "<button>Here</button><script>JSON.stringify = () => 5</script>",
    "/strange/prototype": "<button>Here</button><script>Array.prototype.toJSON = () => 'none'</script>",
    "/strange/screen": "<button>Here</button>"
    "<script>Object.defineProperty(window, 'screen', {value: {width: 0, height: 0}})</script>",
    "/strange/names": "<img name=querySelectorAll><img name=title><img name=createRange><button>Here</button>",
    "/strange/boxes": "<button>Here</button><textarea>Text</textarea>"
    "<script>Element.prototype.getBoundingClientRect = Range.prototype.getBoundingClientRect = () => ({x: 'a'})"
    "</script>",
    "/strange/halves": "<button>Here</button><script>document.title = 'cut \\ud83d'</script>",
    "/calling": "<link rel=dns-prefetch href='//prefetched.outside.test'><script>fetch('http://outside.test/');"
    "const call = new RTCPeerConnection({iceServers: [{urls: 'stun:outside.test:3478'}]});"
    "call.createDataChannel('x'); call.createOffer().then(offer => call.setLocalDescription(offer))</script>",
    "/unsaved": "<div contenteditable role=textbox aria-label=Letter style='height: 50px; width: 300px'></div>"
    "<script>const letter = document.querySelector('div'); let changed = false; letter.oninput = () => changed = true;"
    "addEventListener('beforeunload', e => { if (changed) { e.preventDefault(); e.returnValue = 'x'; } })</script>",
    "/form": "<input aria-label=Field oninput='document.title = this.value.length'>",
}

STATUSES = {"/nothing": 204, "/starting": 502}


class SmallSite:
    """Runs until it is closed. ``basket``: what was put in it, by cookie."""

    def __init__(self, other_port: int = 1) -> None:
        self.baskets: dict[str, list[str]] = {}
        self.asked: list[str] = []
        self.closed = threading.Event()
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                parts = urlsplit(self.path)
                site.asked.append(self.path)
                basket = site.baskets.setdefault(self.headers.get("Cookie", ""), [])
                if parts.path == "/add":
                    basket.append(parse_qs(parts.query)["article"][0])
                    self._say(302, "", Location="/basket")
                elif parts.path == "/away":
                    self._say(302, "", Location=f"http://127.0.0.1:{other_port}/")
                elif parts.path == "/hanging":
                    site.closed.wait(20)
                elif parts.path == "/babble":
                    self.wfile.write(b"SSH-2.0-x\r\n")
                elif parts.path in STATUSES:
                    self._say(STATUSES[parts.path], "")
                elif parts.path == "/error":
                    self._say(500, "<h1>Internal error</h1>")
                elif parts.path == "/file":
                    self._say(200, "x" * 1000, **{"Content-Disposition": "attachment; filename=x.bin"})
                else:
                    self._say(200, self._page(parts.path, basket))

            def _page(self, path: str, basket: list[str]) -> str:
                if path == "/basket":
                    items = "".join(f"<li>{one}</li>" for one in basket)
                    return f"<title>Basket</title><h1>Basket</h1><ul id=basket>{items}</ul><a href=/>Back</a>"
                if path in PAGES:
                    return f"<title>{path[1:]}</title>{PAGES[path].replace('{other}', str(other_port))}"
                rows = "".join(
                    f"<li>{name} {price} <a href='/add?article={name}'>Add {name}</a></li>"
                    for name, price in ARTICLES.items()
                )
                return f"<title>Shop</title><h1>Shop</h1><ul>{rows}</ul><input aria-label=Search>"

            def _say(self, status: int, body: str, **headers: str) -> None:
                content = body.encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.send_header("Content-Type", "text/html; charset=utf-8")
                for name, value in headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(content)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    def close(self) -> None:
        self.closed.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class SmallSites:
    """The site set of one small site; counts leases."""

    def __init__(self, site: SmallSite) -> None:
        self.site, self.alive = site, True
        self.leased = self.released = 0

    @property
    def urls(self) -> Mapping[str, str]:
        return {"SHOPPING": self.site.url}

    def lease(self, record: Record, chain: Chain | None = None) -> Lease:
        if not self.alive:
            raise SitesLost("closed")
        self.leased += 1
        return Lease(self.urls, name="small", token=self.leased)

    def release(self, lease: Lease) -> None:
        self.released += 1
        self.site.baskets.clear()

    def is_alive(self, lease: Lease) -> bool:
        return self.alive

    def close(self) -> None:
        pass


def record(task_id: int = 1, start: str = "/", **rubric: Any) -> dict[str, Any]:
    """A task that is solved by the answer "$7.25" unless told otherwise."""
    answer = {"eval_types": ["string_match"], "reference_answers": {"exact_match": "$7.25"}}
    empty = {"reference_url": "", "program_html": []}
    return {
        "sites": ["shopping"],
        "task_id": task_id,
        "require_login": False,
        "storage_state": None,
        "start_url": " |AND| ".join(f"__SHOPPING__{one}" for one in start.split()),
        "geolocation": None,
        "intent": "How much is the ink?",
        "intent_template_id": task_id % 3,
        "eval": {**empty, **(rubric or answer)},
    }
