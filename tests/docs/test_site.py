"""The documentation site: built without a warning, complete, and nothing in it from elsewhere."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

import lemur_ray
from lemur_ray.host import documentation
from lemur_ray.host.commands import COMMANDS
from lemur_ray.host.file_server import server as serve_files
from tests.docs import screenshots
from tests.serve.browser import chromium, found
from tests.source_tree import ROOT


def test_links_that_leave_the_docs_become_names_and_lists_may_follow_a_line() -> None:
    text = "See [Kubernetes](../../cluster/README.md) and [corpus](corpus.md#x).\n- one\n- two\n\n```\na\n- b\n```\n"
    expected = "See Kubernetes (`cluster/README.md`) and [corpus](corpus.md#x).\n\n- one\n- two\n\n```\na\n- b\n```\n"
    assert documentation.on_page_markdown(text) == expected
    assert documentation.on_page_markdown("[a](../decisions/007-x.md)") == "[a](../decisions/007-x.md)"


def test_a_folder_with_other_files_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "letter.txt").write_text("dear")
    with pytest.raises(documentation.DocumentationError, match="holds other files, which the site would replace"):
        documentation.build(tmp_path)
    assert (tmp_path / "letter.txt").read_text() == "dear"


def test_a_missing_package_and_a_missing_checkout_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documentation.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(documentation.DocumentationError, match=r"pip install 'lemur-ray\[docs\]'"):
        documentation.build(tmp_path)
    monkeypatch.setattr(documentation, "is_checkout", lambda: False)
    with pytest.raises(documentation.DocumentationError, match="the pages are in the repository"):
        documentation.build(tmp_path)


@pytest.mark.slow
@pytest.mark.skipif(found() is None, reason="no Chromium here: apt-get install -y chromium")
def test_every_picture_of_the_pages_is_small_and_made_by_the_script(tmp_path: Path) -> None:
    screenshots.make(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == sorted(path.name for path in screenshots.PICTURES.iterdir())
    pages = (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"))
    shown = [name for page in pages for name in re.findall(r"!\[.+\]\((?:docs/)?pictures/(.+)\)", page.read_text())]
    assert sorted(shown) == names


@pytest.mark.slow
def test_the_site_is_built_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    """A port that is taken is refused before the build."""
    job = [sys.executable, ROOT / "jobs" / "docs.py"]
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = subprocess.run(
            [*job, "--port", str(taken.getsockname()[1])], capture_output=True, text=True, timeout=100
        )
    assert refused.returncode == 1
    assert re.search(r"docs: .* port \d+: somebody listens there already; choose another", refused.stderr)
    environment = os.environ | {"NO_COLOR": "1"}
    built = subprocess.run([*job, "--out", tmp_path], capture_output=True, text=True, timeout=500, env=environment)
    assert built.returncode == 0, built.stderr[-3000:]
    pages = {str(path.parent.relative_to(tmp_path)): path.read_text() for path in tmp_path.rglob("index.html")}
    assert {f"reference/commands/{name}" for name in COMMANDS} < pages.keys()
    for folder in ("guides", "decisions", "log"):
        assert {f"{folder}/{path.stem}" for path in (ROOT / "docs" / folder).glob("*.md")} < pages.keys()
    assert "usage: lemur eval" in pages["reference/commands/eval"]
    headings = re.findall(r'<h2 id="lemur_ray\.(\w+)"', pages["reference/python"])
    assert sorted(headings) == sorted(lemur_ray.__all__)
    loaded = r'<(?:script|img|iframe)[^>]+src="(?:https?:)?//|<link[^>]+href="(?:https?:)?//'
    assert not [name for name, page in pages.items() if re.search(loaded, page)]
    index = json.loads((tmp_path / "search" / "search_index.json").read_text())
    assert len(index["docs"]) > len(pages)
    if found() is not None:
        look_at(tmp_path)


def look_at(site: Path) -> None:
    """Search in a browser: the script and the index are the site's own."""
    with serve_files(site, "127.0.0.1", 0) as server, chromium(site.parent / "profile") as browser:
        thread = threading.Thread(target=server.serve_forever, args=(0.05,))
        thread.start()
        try:
            page = browser.page(f"http://127.0.0.1:{server.server_address[1]}/", width=1400)
            page.value("document.querySelector('.md-search__input').focus()")
            page.type("preflight")
            page.until("document.querySelectorAll('.md-search-result__item').length > 1")
            sources = "[...performance.getEntriesByType('resource')].map(e => new URL(e.name).hostname)"
            assert set(page.value(sources)) == {"127.0.0.1"}
            assert not page.complaints()
        finally:
            server.shutdown()
            thread.join()
