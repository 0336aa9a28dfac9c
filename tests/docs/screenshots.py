"""Makes the screenshots of the documentation from made-up results: ``python -m tests.docs.screenshots``.

Needs Chromium. Pictures are WebP files in docs/pictures, each below 100 kB.
"""

from __future__ import annotations

import base64
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lemur_ray.agents.messages import ChatReply, ChatRequest, Sampling
from lemur_ray.agents.trajectory import EpisodeKey, Outcome
from lemur_ray.report.ledgers.stored_episodes import anchor_of
from lemur_ray.report.pages.live_server import live_server
from lemur_ray.report.pages.whole_page import render_report
from lemur_ray.rollout.attempt import EpisodeLimits, EpisodeSpec
from lemur_ray.rollout.episode import run_episode
from lemur_ray.rollout.evaluation_folder import RUNNING
from tests.report.report_samples import alfworld, episode, write_ledger
from tests.rollout.toy import toy_task
from tests.serve.browser import Browser, Page, chromium
from tests.serve.scripted import scripted
from tests.source_tree import ROOT

PICTURES = ROOT / "docs" / "pictures"
NAMES = ("demo", "report", "running", "chat")
MAX_BYTES = 100_000
WIDTH, HEIGHT, DEMO_HEIGHT = 1000, 680, 1080
_REPLY = """A prime has **two** divisors, 1 and itself:

```python
def is_prime(n):
    return n > 1 and all(n % d for d in range(2, n))
```"""


DEMO = {"nano-chat": (10, 17, 15, 18, 18, 13), "random": (1, 0, 0, 0, 0, 0), "expert": (20,) * 6}
"""Policy -> solved games of 20 of each kind, in the demo run that README describes."""
KINDS = ("look at obj in light", "pick and place simple", "pick clean then place in recep",
         "pick cool then place in recep", "pick heat then place in recep", "pick two obj and place")  # fmt: skip


@contextmanager
def _played_until_turn_3(folder: Path) -> Iterator[str]:
    """An episode that waits in its fourth turn; yields its id."""
    over, turns = threading.Event(), iter(range(99))

    class Policy:
        name = "nano-chat"

        def reply(self, request: ChatRequest) -> ChatReply:
            if next(turns) == 3:
                over.wait()
            return ChatReply("right")

    key = EpisodeKey("toy", "walk-to-the-door", "nano-chat", "r")
    spec = EpisodeSpec(key, toy_task(length=9), Sampling(), EpisodeLimits(), turns=str(folder))
    thread = threading.Thread(target=run_episode, args=(spec, Policy()), kwargs={"clock": time.monotonic})
    thread.start()
    try:
        yield anchor_of(key)
    finally:
        over.set()
        thread.join()


def _save(page: Page, name: str, folder: Path) -> None:
    data = page.call("Page.captureScreenshot", format="webp", quality=60)["data"]
    content = base64.b64decode(data)
    assert len(content) < MAX_BYTES, f"{name}: {len(content)} bytes"
    (folder / f"{name}.webp").write_bytes(content)


def _of_demo(browser: Browser, work: Path, folder: Path) -> None:
    """The report of episodes that are as many, and solved as often, as those of the demo run."""
    ledgers = []
    for policy, solved in DEMO.items():
        ends = [(kind, i, Outcome.SOLVED if i < n else Outcome.TURN_LIMIT)
                for kind, n in zip(KINDS, solved, strict=True) for i in range(20)]  # fmt: skip
        played = [episode(f"{kind} {i}", end, category=kind, policy=policy) for kind, i, end in ends]
        ledgers.append(write_ledger(work / policy, played))
    render_report(work / "demo", runs=[], episodes=ledgers, corpus=None, title="alfworld/text: a demo run")
    page = browser.page((work / "demo" / "index.html").as_uri(), WIDTH, DEMO_HEIGHT)
    _save(page, "demo", folder)


def _of_results(browser: Browser, work: Path, folder: Path) -> None:
    runs = [write_ledger(work / name, alfworld(name, rate, seed)) for seed, (name, rate) in
            enumerate({"nano-chat": 0.7, "expert": 0.95}.items())]  # fmt: skip
    with live_server(runs, "127.0.0.1", 0, every_s=0.2) as address:
        page = browser.page(f"{address}index.html", WIDTH, HEIGHT)
        _save(page, "report", folder)
        with _played_until_turn_3(runs[0] / RUNNING) as anchor:
            page = browser.page(f"{address}running.html#{anchor}", WIDTH, HEIGHT)
            page.until(f"document.querySelectorAll('#{anchor} .turn').length === 3")
            _save(page, "running", folder)


def _of_chat(browser: Browser, folder: Path) -> None:
    with scripted() as script:
        script.text = _REPLY
        page = browser.page(f"{script.root}/", WIDTH, HEIGHT)
        page.until("document.querySelector('#model option')")
        page.tab_to("textarea")
        page.type("How do I test whether a number is prime?")
        page.key("Enter")
        page.until("document.querySelector('.text pre')")
        _save(page, "chat", folder)


def make(folder: Path) -> None:
    """Write the pictures of ``NAMES`` into ``folder``."""
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as work, chromium(Path(work) / "profile") as browser:
        _of_demo(browser, Path(work), folder)
        _of_results(browser, Path(work), folder)
        _of_chat(browser, folder)


if __name__ == "__main__":
    sys.exit(make(PICTURES))
