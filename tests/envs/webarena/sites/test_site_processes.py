"""A site begins when it answers, ends with whoever started it, and says what it printed where it does not begin."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from envs.webarena.site_set import SitesLost
from envs.webarena.sites import software as declared
from envs.webarena.sites.content import content_of
from envs.webarena.sites.restoring import copy, restore
from envs.webarena.sites.running_site import RunningSite, new_folder
from envs.webarena.sites.software import APPS, SITES, SOFTWARE, Software, missing

SITE = f"""
import http.server, sys
sys.path.insert(0, {str(APPS)!r})
from parent_watch import end_with_input
what, folder, port = sys.argv[1:]
if not (__import__("pathlib").Path(folder) / "page").exists():
    sys.exit("no page in the folder")
end_with_input(folder)
import os
os.chdir(folder)
http.server.ThreadingHTTPServer(("127.0.0.1", int(port)), http.server.SimpleHTTPRequestHandler).serve_forever()
"""
HOLDER = """
import sys, threading, time
from pathlib import Path
from envs.webarena.sites.running_site import RunningSite, new_folder
from envs.webarena.sites.software import Software
made = []
software = Software("x", "X", (sys.argv[1],), (), "/page", "")
starter = threading.Thread(target=lambda: made.append(RunningSite(software, Path(sys.argv[2]))))
starter.start()
starter.join()
print(made[0].pid, made[0].base, flush=True)
time.sleep(600)
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "site.py"
    path.write_text(textwrap.dedent(SITE))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    made.mkdir()
    (made / "page").write_text("well")
    return made


@pytest.fixture
def site(program: Path, folder: Path) -> Iterator[RunningSite]:
    running = RunningSite(Software("x", "X", (str(program),), (), "/page", ""), folder)
    yield running
    running.close()


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def until(met: Callable[[], bool], seconds: float = 60.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if met():
            return True
        time.sleep(0.02)
    return False


def test_a_site_is_there_when_its_constructor_returns_and_gone_with_its_folder_when_closed(
    site: RunningSite, folder: Path
) -> None:
    assert site.is_alive()
    site.close()
    site.close()
    assert gone(site.pid)
    assert not folder.exists()


def test_a_site_that_was_killed_is_not_alive(site: RunningSite) -> None:
    os.kill(site.pid, signal.SIGKILL)
    assert until(lambda: not site.is_alive())


def test_a_site_that_does_not_begin_says_what_it_printed(program: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(SitesLost, match="X did not start: no page in the folder"):
        RunningSite(Software("x", "X", (str(program),), (), "/page", ""), empty)


def test_a_site_ends_with_its_starter_that_was_killed_although_the_thread_that_started_it_ended_before(
    program: Path, folder: Path
) -> None:
    starter = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(program), str(folder)], stdout=subprocess.PIPE, text=True
    )
    assert starter.stdout is not None
    pid = int(starter.stdout.readline().split()[0])
    assert not gone(pid)
    starter.kill()
    starter.wait()
    starter.stdout.close()
    assert until(lambda: gone(pid) and not folder.exists())


def test_restoring_puts_rows_back_under_an_open_connection_and_files_as_they_were(tmp_path: Path) -> None:
    golden, live = tmp_path / "golden", tmp_path / "live"
    (golden / "pages").mkdir(parents=True)
    (golden / "pages" / "a").write_text("first")
    (golden / "pages" / "b").write_text("second")
    with sqlite3.connect(golden / "db") as made:
        made.execute("create table basket (what text)")
    made.close()
    copy(golden, live)
    opened = sqlite3.connect(live / "db")
    with opened:
        opened.execute("insert into basket values ('lamp')")
    node = (live / "db").stat().st_ino
    (live / "pages" / "a").write_text("other")
    (live / "pages" / "b").unlink()
    (live / "pages" / "new").mkdir()
    (live / "pages" / "new" / "c").write_text("third")
    restore(golden, live, "db")
    assert opened.execute("select * from basket").fetchall() == []
    opened.close()
    assert (live / "db").stat().st_ino == node
    found = {str(path.relative_to(live)): path.read_text() for path in (live / "pages").rglob("*") if path.is_file()}
    assert found == {"pages/a": "first", "pages/b": "second"}


def test_content_is_a_function_of_its_seed() -> None:
    script = "from envs.webarena.sites.content import content_of; print(repr(content_of(3)))"
    seen = set()
    for hashed in ("1", "2"):
        known = {**os.environ, "PYTHONHASHSEED": hashed}
        done = subprocess.run([sys.executable, "-c", script], env=known, capture_output=True, text=True, check=True)
        seen.add(done.stdout)
    assert len(seen) == 1
    assert content_of(3) != content_of(4)
    for seed in range(20):
        made = content_of(seed)
        assert len({one.title for one in made.products}) == len(made.products) == 36
        assert len({one.upc for one in made.products}) == 36
        assert len({one.summary for one in made.tickets}) == len(made.tickets)
        assert len({one.slug for one in made.articles}) == len(made.articles)


def test_every_site_of_a_record_belongs_to_one_application() -> None:
    assert {role.site for one in SOFTWARE.values() for role in one.roles} == set(SITES)
    assert len({role.placeholder for one in SOFTWARE.values() for role in one.roles}) == len(SITES)


def test_what_is_not_installed_is_named_with_the_command(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(declared, "interpreter", lambda: tmp_path / "bin" / "python")
    monkeypatch.setattr(declared, "DOKUWIKI", tmp_path)
    declared._site_packages.cache_clear()
    try:
        assert {name: missing(one).partition(": ")[2] for name, one in SOFTWARE.items()} == {
            **dict.fromkeys(
                SOFTWARE, "the distribution lemur-ray-webarena-sites, in an environment of its own: make sites"
            ),
            "wiki": "apt-get install -y --no-install-recommends php-cli php-xml php-mbstring dokuwiki",
        }
    finally:
        declared._site_packages.cache_clear()


def test_folders_of_processes_that_are_long_gone_are_taken_away(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    own = new_folder()
    gone, recent = tmp_path / "lemur-site-4194999-a", tmp_path / "lemur-site-4194999-b"
    for folder in (gone, recent):
        folder.mkdir()
    for folder in (gone, own):
        os.utime(folder, (1, 1))
    assert new_folder().is_dir()
    assert (own.exists(), recent.exists(), gone.exists()) == (True, True, False)
