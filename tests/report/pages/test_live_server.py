"""``lemur view``: the report of results folders behind a port, followed in a real Chromium while a ledger grows."""

from __future__ import annotations

import importlib
import json
import socket
import urllib.request
from pathlib import Path

import pytest

from lemur_ray.agents.trajectory import Episode, Outcome
from lemur_ray.report.pages.live_server import LiveReport, live_server
from lemur_ray.rollout.ledger import LedgerError
from tests.conftest import ROOT
from tests.report.report_samples import episode, write_ledger
from tests.serve.browser import chromium, found


def played(number: int, policy: str = "nano-chat") -> list[Episode]:
    return [episode(f"t{n}", Outcome.SOLVED if n % 2 else Outcome.FAILED, policy=policy) for n in range(number)]


def fetched(address: str) -> str:
    with urllib.request.urlopen(address, timeout=60) as answer:
        return answer.read().decode()


def test_pages_are_written_again_when_a_ledger_has_grown(tmp_path: Path) -> None:
    report = LiveReport([tmp_path / "run"], tmp_path / "pages")
    assert not report.refresh(), "nothing has ended yet"
    write_ledger(tmp_path / "run", played(2))
    assert report.refresh()
    assert not report.refresh()
    write_ledger(tmp_path / "run", played(3))
    assert report.refresh()
    assert report.version == 2
    before = sorted(path.name for path in (tmp_path / "run").iterdir())
    assert before == ["episodes.jsonl"], "results are only read"


def test_benchmarks_of_a_suite_appear_as_they_begin(tmp_path: Path) -> None:
    report = LiveReport([tmp_path / "suite"], tmp_path / "pages")
    (tmp_path / "pages").mkdir()
    assert not report.refresh()
    for number, name in enumerate(("one", "two"), 1):
        write_ledger(tmp_path / "suite" / name, played(1, name))
        assert report.refresh()
        assert report.version == number


def test_a_page_is_served_with_its_script_and_nothing_else_is(tmp_path: Path) -> None:
    write_ledger(tmp_path / "run", played(2))
    with live_server([tmp_path / "run"], "127.0.0.1", 0) as address:
        page = fetched(address)
        assert "connect-src 'self'" in page
        assert page.count("</body>") == 1
        assert json.loads(fetched(f"{address}version.json")) == 1
        with pytest.raises(OSError, match="404"):
            fetched(f"{address}transcripts/")
        with pytest.raises(OSError, match="404"):
            fetched(f"{address}../../../../etc/hostname")


def test_a_taken_port_and_a_ledger_of_a_newer_version_are_one_sentence(
    tmp_path: Path, lemur_home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "jobs"))
    job = importlib.import_module("view")
    folder = write_ledger(tmp_path / "run", played(1))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert job.main([str(folder), "--port", str(taken.getsockname()[1])]) == 1
    assert "somebody listens there already; choose another with --port" in capsys.readouterr().err
    assert job.main([str(tmp_path / "nowhere")]) == 1
    assert "no such folder; give one that" in capsys.readouterr().err
    record = json.loads((folder / "episodes.jsonl").read_text())
    (folder / "episodes.jsonl").write_text(json.dumps({**record, "outcome": "dreamt"}) + "\n")
    assert job.main([str(folder), "--port", "0"]) == 1
    assert "If a newer version of lemur-ray wrote it, use that" in capsys.readouterr().err
    with pytest.raises(LedgerError, match="dreamt"):
        LiveReport([folder], tmp_path / "pages").refresh()


@pytest.mark.slow
@pytest.mark.skipif(found() is None, reason="no Chromium here: apt-get install -y chromium")
def test_a_list_in_a_browser_follows_two_runs_and_keeps_what_was_chosen(tmp_path: Path) -> None:
    folders = [write_ledger(tmp_path / name, played(2, name)) for name in ("first", "second")]
    with live_server(folders, "127.0.0.1", 0, every_s=0.2) as address, chromium(tmp_path / "profile") as browser:
        page = browser.page(f"{address}episodes.html#q=solved&sort=task")
        page.until("document.querySelector('#count').textContent.startsWith('2 of 4 episodes')")
        write_ledger(folders[0], played(6, "first"))
        page.until("document.querySelector('#count')?.textContent.startsWith('4 of 8 episodes')")
        assert page.value("document.querySelector('#q').value") == "solved", "the address keeps the filter"
        matrix = browser.page(f"{address}episodes.html#view=matrix&a=0&b=1")
        beside = "[...document.querySelectorAll('#rows a')].find(a => a.textContent === 'side by side')"
        pair = browser.page(str(matrix.value(f"{beside}.href")))
        pair.until("document.querySelector('#pair')")
        write_ledger(folders[1], played(6, "second"))
        pair.until("document.querySelector('#newer a')")
        assert pair.value("Boolean(document.querySelector('#pair'))"), "what is being read stays"
        assert not page.complaints() + matrix.complaints() + pair.complaints()


@pytest.mark.sweep
@pytest.mark.skipif(found() is None, reason="no Chromium here: apt-get install -y chromium")
def test_fifty_thousand_episodes_are_listed_searched_and_followed(tmp_path: Path) -> None:
    folder = write_ledger(tmp_path / "run", played(50_000))
    with live_server([folder], "127.0.0.1", 0, every_s=0.2) as address, chromium(tmp_path / "profile") as browser:
        page = browser.page(f"{address}episodes.html")
        page.until("document.querySelector('#count').textContent.startsWith('50,000 of 50,000')")
        page.value("document.querySelector('#q').focus()")
        page.type("t49999")
        page.until("document.querySelectorAll('#rows tr').length === 1")
        one = browser.page(str(page.value("document.querySelector('#rows a').href")))
        one.until("document.querySelector('details[open]')")
        assert not page.complaints() + one.complaints()
