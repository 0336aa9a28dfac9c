"""Golden copies: applications filled with content and logged in to once, stored, and copied for each running site.

Stored under ``$LEMUR_HOME/webarena-sites``, one folder per application, content and version of its programs. Login
sessions are rows of the database, so they are valid again after each restore."""

import base64
import hashlib
import http.cookiejar
import json
import re
import secrets
import shutil
import subprocess
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from envs.webarena.site_set import SitesLost
from envs.webarena.sites.content import content_of
from envs.webarena.sites.restoring import copy
from envs.webarena.sites.running_site import RunningSite, last_lines, new_folder, start_program
from envs.webarena.sites.software import PASSWORD, Software, accounts, interpreter, missing, programs
from lemur_ray.host.file_lock import hold
from lemur_ray.host.home import lemur_home

BUILD_S = 900.0
"""Seconds a build may take, and another process may wait for it."""
STATES = "states.json"
"""File in a golden copy with the storage states of its logged-in users."""


@dataclass(frozen=True)
class Golden:
    """A stored golden copy: an application's folder in its initial state. ``states``: Playwright's storage state of the
    logged-in user, by site name in records."""

    folder: Path
    states: Mapping[str, Mapping[str, Any]]


def golden_of(software: Software, seed: int) -> Golden:
    """Return the golden copy of an application, built by one process if it does not exist yet. Raises SitesLost if
    something is not installed or the build fails."""
    if reason := missing(software):
        raise SitesLost(reason)
    root = lemur_home() / "webarena-sites"
    root.mkdir(parents=True, exist_ok=True)
    folder = root / f"{software.name}-{_digest(software, seed)}"
    if not folder.is_dir():
        with hold(root / f"{software.name}.lock", wait_s=BUILD_S):
            if not folder.is_dir():
                _build(software, seed, folder)
    return Golden(folder, json.loads((folder / STATES).read_text(encoding="utf-8")))


def _content(seed: int) -> str:
    return json.dumps({**asdict(content_of(seed)), "accounts": accounts(seed)}, sort_keys=True)


def _digest(software: Software, seed: int) -> str:
    """Hash what a build depends on: content, login page and form, site programs, and versions of installed Python
    packages (not DokuWiki's system packages)."""
    parts = [_content(seed), repr(software.form), software.login]
    folder = programs()
    assert folder is not None  # ``missing`` has been called before
    own = [path for path in sorted(folder.rglob("*.py")) if _is_input(path.relative_to(folder).parts[0], software)]
    parts += [path.read_text(encoding="utf-8") for path in own]
    installed = interpreter().parent.parent.glob("lib/python3*/site-packages/*.dist-info") if software.module else ()
    parts += sorted(path.name for path in installed)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _is_input(name: str, software: Software) -> bool:
    """Whether a build of ``software`` reads this file or folder of the site programs."""
    shared = ("shared_settings.py", software.program[0])
    return name in shared or name.startswith(f"{software.name}_")


def _build(software: Software, seed: int, folder: Path) -> None:
    """Seed the application in a temporary folder, log users in, rename it to ``folder``. Raises SitesLost."""
    work = new_folder()
    try:
        (work / "key").write_text(secrets.token_urlsafe(48))
        (work / "content.json").write_text(_content(seed), encoding="utf-8")
        program = start_program(software, work, "build", str(work))
        try:
            if program.wait(BUILD_S):
                raise SitesLost(f"{software.title} could not be built: {last_lines(work)}")
        finally:
            program.kill()
            program.communicate()
        site = RunningSite(software, work)
        try:
            states = {
                role.site: storage_state(site.base, software.login, software.form, role.user, PASSWORD)
                for role in software.roles
            }
        except (LoginFailed, OSError) as error:
            raise SitesLost(f"{software.title}: nobody could log in: {error}; {last_lines(work)}") from error
        (work / STATES).write_text(json.dumps(states), encoding="utf-8")
        part = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        site.stop()
        copy(work, part)
        for name in ("log", "content.json"):
            (part / name).unlink(missing_ok=True)
        part.rename(folder)
    except subprocess.TimeoutExpired as error:
        raise SitesLost(f"{software.title} was not built within {BUILD_S:g} s: {last_lines(work)}") from error
    finally:
        shutil.rmtree(work, ignore_errors=True)


TIMEOUT_S = 60.0
AGENT = "Mozilla/5.0"
_HIDDEN = re.compile(r"<input\b[^>]*type=[\"']hidden[\"'][^>]*>", re.I)
_ATTRIBUTE = re.compile(r"\b(name|value)=[\"']([^\"']*)[\"']", re.I)


class LoginFailed(Exception):
    """Raised if a site does not accept a user's name and password in its login form."""


def storage_state(base: str, path: str, form: Mapping[str, str] | None, user: str, password: str) -> dict[str, Any]:
    """Log in to ``base + path`` and return the cookies as a Playwright storage state. ``form`` has the field names of
    ``user`` and ``password``, and other fields with their values; None is HTTP basic authentication. Raises LoginFailed
    if a form is not accepted, OSError if the request fails."""
    jar = http.cookiejar.CookieJar()
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}), urllib.request.HTTPCookieProcessor(jar))
    opener.addheaders = [("User-Agent", AGENT)]
    if form is None:
        header = {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}
        opener.open(urllib.request.Request(base + path, headers=header), timeout=TIMEOUT_S)
        return {"cookies": [_playwright(cookie) for cookie in jar], "origins": []}
    page = opener.open(base + path, timeout=TIMEOUT_S).read().decode("utf-8", "replace")
    before = {cookie.value for cookie in jar}
    others = {name: value for name, value in form.items() if name not in ("user", "password")}
    fields = {**_hidden(page), **others, form["user"]: user, form["password"]: password}
    request = urllib.request.Request(base + path, urllib.parse.urlencode(fields).encode(), {"Referer": base + path})
    answer = opener.open(request, timeout=TIMEOUT_S).read().decode("utf-8", "replace")
    if {cookie.value for cookie in jar} <= before or f'name="{form["password"]}"' in answer:
        raise LoginFailed(f"{base}{path}: the account {user!r} is not let in")
    return {"cookies": [_playwright(cookie) for cookie in jar], "origins": []}


def _hidden(page: str) -> dict[str, str]:
    """Return the hidden fields of a page's forms with their values, CSRF tokens among them."""
    fields = [dict(_ATTRIBUTE.findall(tag)) for tag in _HIDDEN.findall(page)]
    return {one["name"]: one.get("value", "") for one in fields if "name" in one}


def _playwright(cookie: http.cookiejar.Cookie) -> dict[str, Any]:
    return {
        "name": cookie.name,
        "value": cookie.value or "",
        "domain": "127.0.0.1",
        "path": cookie.path,
        "expires": float(cookie.expires) if cookie.expires else -1,
        "httpOnly": cookie.has_nonstandard_attr("HttpOnly"),
        "secure": False,
        "sameSite": "Lax",
    }
