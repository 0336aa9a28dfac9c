"""Runs DokuWiki on PHP's own server: ``build FOLDER`` creates settings and pages, ``serve FOLDER PORT`` serves them.

The application is the Debian package dokuwiki; settings and pages are in FOLDER, and the machine's own wiki is not
read. Ends when standard input does. Imports nothing of the project."""

from __future__ import annotations

import ctypes
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from parent_watch import end_with_input

PROGRAM = Path(os.environ.get("DOKUWIKI", "/usr/share/dokuwiki"))
OF_THE_PACKAGE = Path("/etc/dokuwiki")
START = 1_709_539_200
"""Modification time of all pages: 4 March 2024."""
_SET_PDEATHSIG = 1
_ROUTES = """<?php
$file = $_SERVER['DOCUMENT_ROOT'] . parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH);
if (is_file($file)) return false;
if (is_dir($file)) { header('Location: /doku.php'); return true; }
http_response_code(404);
"""
_SETTINGS = """<?php
$conf['title'] = 'Herbarium';
$conf['useacl'] = 1;
$conf['superuser'] = 'nobody';
$conf['disableactions'] = 'register,resendpwd,check';
$conf['savedir'] = %s;
$conf['updatecheck'] = 0;
$conf['license'] = '';
$conf['sitemap'] = 0;
$conf['start'] = 'start';
$conf['breadcrumbs'] = 0;
$conf['securecookie'] = 0;
"""


def main() -> None:
    """Run the command line. ``build`` reads the pages and accounts from ``FOLDER/content.json``."""
    what, folder, *port = sys.argv[1:]
    if what == "build":
        build(Path(folder))
    else:
        serve(Path(folder), port[0])


def build(folder: Path) -> None:
    """Create settings, users, pages and the search index in ``folder``."""
    content = json.loads((folder / "content.json").read_text(encoding="utf-8"))
    conf, data = folder / "conf", folder / "data"
    conf.mkdir()
    parts = ("pages", "attic", "media", "media_attic", "media_meta", "meta", "cache", "index", "locks", "tmp", "log")
    for part in parts:
        (data / part).mkdir(parents=True)
    (folder / "sessions").mkdir()
    rows = []
    for account in content["accounts"]["wiki"]:
        hashed = hashlib.md5(account["password"].encode()).hexdigest()  # one of the forms that DokuWiki reads
        rows.append(f"{account['user']}:{hashed}:{account['name']}:{account['user']}@example.test:user\n")
    (conf / "users.auth.php").write_text("# <?php exit()?>\n" + "".join(rows))
    (conf / "acl.auth.php").write_text("# <?php exit()?>\n*\t@ALL\t1\n*\t@user\t8\n")
    shutil.copy(OF_THE_PACKAGE / "plugins.required.php", conf / "plugins.required.php")
    for name in ("plugins.php", "plugins.local.php"):
        (conf / name).write_text("<?php\n")
    for name in ("manifest.json", "wordblock.conf"):
        shutil.copy(OF_THE_PACKAGE / name, conf / name)
    _settings(folder)
    _pages(content["wiki"], data / "pages")
    environ = {**os.environ, "DOKU_CONF_FOLDER": str(conf)}
    command = [*_php(folder), str(PROGRAM / "bin" / "indexer.php"), "-q"]
    subprocess.run(command, env=environ, check=True, stdin=subprocess.DEVNULL)


def _settings(folder: Path) -> None:
    """Write the settings and routes, which are not copied between sites since they contain the folder's path."""
    text = _SETTINGS % json.dumps(str(folder / "data"))
    path = folder / "conf" / "local.php"
    path.write_text(text)
    os.utime(path, (START, START))  # what is cached is older than settings that have just been written
    (folder / "before.php").write_text(
        f"<?php\ndefine('DOKU_CONF', {json.dumps(str(folder / 'conf') + '/')});\ndefine('DOKU_FARM', 'stand-in');\n"
    )
    (folder / "routes.php").write_text(_ROUTES)


def _pages(rows: list[dict[str, Any]], folder: Path) -> None:
    links = "".join(f"  * [[{row['name']}|{row['title']}]]\n" for row in rows)
    texts = {"start": f"====== Herbarium ======\n\nHerbs of the coast, one page each.\n\n{links}"}
    for row in rows:
        facts = "".join(f"^ {name} | {value} |\n" for name, value in row["facts"])
        texts[row["name"]] = f"====== {row['title']} ======\n\n{facts}\n===== Notes =====\n\nNo notes yet.\n"
    for name, text in texts.items():
        path = folder / f"{name.replace(':', '/')}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        os.utime(path, (START, START))


def _php(folder: Path) -> list[str]:
    given = {
        "auto_prepend_file": folder / "before.php",
        "session.save_path": folder / "sessions",
        "session.gc_probability": 0,
        "display_errors": 0,
        "opcache.enable_cli": 0,
    }
    return ["php", *(word for name, value in given.items() for word in ("-d", f"{name}={value}"))]


def serve(folder: Path, port: str) -> None:
    """Serve the wiki in ``folder`` at 127.0.0.1 until standard input or the PHP server ends."""
    _settings(folder)
    libc = ctypes.CDLL(None)
    server = subprocess.Popen(
        [*_php(folder), "-S", f"127.0.0.1:{port}", "-t", str(PROGRAM), str(folder / "routes.php")],
        stdin=subprocess.DEVNULL,
        preexec_fn=lambda: libc.prctl(_SET_PDEATHSIG, signal.SIGKILL),
    )
    ending = end_with_input(str(folder), server.kill)
    code = server.wait()
    if ending.is_set():
        threading.Event().wait()  # until the folder is gone
    sys.exit(code)


if __name__ == "__main__":
    main()
