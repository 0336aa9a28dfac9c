"""Golden copies: an application with all its content and everybody logged in, built once and copied from then on.

Kept under ``$LEMUR_HOME/webarena-sites``, one folder for each application, content and version of what builds it. The
sessions of whoever is logged in are in the database, so they are valid again after each restoring. Knows no task.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.webarena.site_set import SitesLost
from envs.webarena.sites.content import content_of
from envs.webarena.sites.login import LoginFailed, storage_state
from envs.webarena.sites.restoring import copied
from envs.webarena.sites.running_site import RunningSite, last_lines, new_folder, started
from envs.webarena.sites.software import APPS, PASSWORD, Software, accounts, interpreter, missing
from lemur_ray.host.file_lock import hold
from lemur_ray.host.home import lemur_home

BUILD_S = 900.0
STATES = "states.json"


@dataclass(frozen=True)
class Golden:
    """``states``: site, as a record calls it -> storage state of who is logged in there."""

    folder: Path
    states: Mapping[str, Mapping[str, Any]]


def golden_of(software: Software, seed: int) -> Golden:
    """Built where it is not there yet; of several processes one builds. Raises SitesLost, with what is missing."""
    if said := missing(software):
        raise SitesLost(said)
    root = lemur_home() / "webarena-sites"
    root.mkdir(parents=True, exist_ok=True)
    folder = root / f"{software.name}-{_digest(software, seed)}"
    if not folder.is_dir():
        with hold(root / f"{software.name}.lock", wait_s=BUILD_S):
            if not folder.is_dir():
                _build(software, seed, folder)
    return Golden(folder, json.loads((folder / STATES).read_text(encoding="utf-8")))


def _content(seed: int) -> str:
    return json.dumps({**content_of(seed).to_json(), "accounts": accounts(seed)}, sort_keys=True)


def _digest(software: Software, seed: int) -> str:
    """Of everything that decides what is built."""
    parts = [_content(seed), repr(software.form), software.login]
    own = [path for path in sorted(APPS.rglob("*.py")) if _decides(path.relative_to(APPS).parts[0], software)]
    parts += [path.read_text(encoding="utf-8") for path in own]
    installed = interpreter().parent.parent.glob("lib/python3*/site-packages/*.dist-info") if software.module else ()
    parts += sorted(path.name for path in installed)
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def _decides(name: str, software: Software) -> bool:
    """Whether a file or folder of the programs has a part in what is built."""
    shared = ("shared_settings.py", Path(software.program[0]).name)
    return name in shared or name.startswith(f"{software.name}_")


def _build(software: Software, seed: int, folder: Path) -> None:
    made = new_folder()
    try:
        (made / "key").write_text(secrets.token_urlsafe(48))
        (made / "content.json").write_text(_content(seed), encoding="utf-8")
        program = started(software, made, "build", str(made))
        try:
            if program.wait(BUILD_S):
                raise SitesLost(f"{software.title} could not be built: {last_lines(made)}")
        finally:
            program.kill()
            program.communicate()
        site = RunningSite(software, made)
        try:
            states = {
                role.site: storage_state(site.base, software.login, software.form, role.user, PASSWORD)
                for role in software.roles
            }
        except (LoginFailed, OSError) as error:
            raise SitesLost(f"{software.title}: nobody could log in: {error}; {last_lines(made)}") from error
        (made / STATES).write_text(json.dumps(states), encoding="utf-8")
        part = folder.with_name(f"{folder.name}.part")
        shutil.rmtree(part, ignore_errors=True)
        site.stop()
        copied(made, part)
        for name in ("log", "content.json"):
            (part / name).unlink(missing_ok=True)
        part.rename(folder)
    except subprocess.TimeoutExpired as error:
        raise SitesLost(f"{software.title} was not built within {BUILD_S:g} s: {last_lines(made)}") from error
    finally:
        shutil.rmtree(made, ignore_errors=True)
