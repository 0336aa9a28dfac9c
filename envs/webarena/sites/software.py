"""The web applications that replace WebArena's sites: programs, users, login forms, and what must be installed.

django-oscar replaces the shop and its admin pages, Trac GitLab, django-machina Reddit, DokuWiki Wikipedia; Wagtail (a
CMS) is an addition."""

import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from envs.webarena.sites.content import CUSTOMER, MEMBER, STAFF, content_of

APPS = Path(__file__).parent / "apps"
"""Folder of the site programs in a checkout. They are not in lemur-ray's wheel, but a distribution of their own."""
DISTRIBUTION, INSTALLED_AS = "lemur-ray-webarena-sites", "lemur_webarena_sites"
"""Name of that distribution, and of its package in the sites' environment."""
PACKAGE = "apt-get install -y --no-install-recommends php-cli php-xml php-mbstring dokuwiki"
DOKUWIKI = Path(os.environ.get("DOKUWIKI", "/usr/share/dokuwiki"))
PASSWORD = "harbour-lamp-17"


@dataclass(frozen=True)
class Role:
    """One site that an application replaces: ``site`` is its name in records, ``placeholder`` that in their URLs."""

    site: str
    placeholder: str
    path: str
    """Path below the application's base URL."""
    user: str
    """Account that tasks on this site are logged in as."""


@dataclass(frozen=True)
class Software:
    """One web application. Its program takes ``build [NAME] FOLDER`` and ``serve [NAME] FOLDER PORT``."""

    name: str
    title: str
    program: tuple[str, ...]
    """File in the folder of site programs, and the NAME it takes, if any."""
    roles: tuple[Role, ...]
    probe: str
    """Path that answers 200 once the application serves."""
    login: str
    """Path of the login page."""
    database: str = ""
    """SQLite file in the site's folder, restored in place. Empty if the application stores plain files only."""
    form: Mapping[str, str] | None = None
    """Login form: field names for ``user`` and ``password``, and other fields with their values. None: HTTP basic."""
    module: str = ""
    """Python module that must be installed in the sites' environment. Empty for the system package DokuWiki."""


def _django(name: str, title: str, module: str, *roles: Role, probe: str, login: str, **fields: str) -> Software:
    form = {"user": "username", "password": "password", **fields}
    return Software(name, title, ("run_django.py", name), roles, probe, login, "db.sqlite3", form, module)


_EMAIL = {name: f"{name.split()[0].lower()}@example.test" for name in (CUSTOMER, STAFF)}
SOFTWARE: Mapping[str, Software] = {
    one.name: one
    for one in (
        _django(
            "shop", "django-oscar", "oscar",
            Role("shopping", "SHOPPING", "", _EMAIL[CUSTOMER]),
            Role("shopping_admin", "SHOPPING_ADMIN", "/dashboard", _EMAIL[STAFF]),
            probe="/accounts/login/", login="/accounts/login/", user="login-username", password="login-password",
            login_submit="Log In",
        ),
        Software(
            "trac", "Trac", ("run_trac.py",), (Role("gitlab", "GITLAB", "", MEMBER),), "/about", "/login",
            "env/db/trac.db", None, "trac",
        ),
        _django(
            "forum", "django-machina", "machina", Role("reddit", "REDDIT", "", MEMBER), probe="/login/", login="/login/"
        ),
        _django("cms", "Wagtail", "wagtail", Role("cms", "CMS", "", "odo"), probe="/", login="/admin/login/"),
        Software(
            "wiki", "DokuWiki", ("run_wiki.py",), (Role("wikipedia", "WIKIPEDIA", "/doku.php", MEMBER),),
            "/doku.php", "/doku.php?id=start&do=login", "", {"user": "u", "password": "p", "r": "1"},
        ),
    )
}  # fmt: skip
SITES: Mapping[str, Software] = {role.site: one for one in SOFTWARE.values() for role in one.roles}
"""Application of each site name in records."""


def accounts(seed: int) -> dict[str, list[dict[str, object]]]:
    """Return the accounts to create in each application, by its name: authors of content, and users who log in."""
    people = content_of(seed).people
    shop = [
        {"name": name, "user": _EMAIL.get(name, f"{name.split()[0].lower()}@example.test"), "staff": name == STAFF}
        for name in (CUSTOMER, STAFF, *people)
    ]
    members = [MEMBER, *(name.split()[0].lower() for name in people)]
    users: dict[str, list[dict[str, object]]] = {
        "shop": shop,
        "trac": [{"name": MEMBER, "user": MEMBER}],
        "forum": [{"name": name, "user": name} for name in members],
        "cms": [{"name": STAFF, "user": "odo"}],
        "wiki": [{"name": MEMBER, "user": MEMBER}],
    }
    return {name: [{**one, "password": PASSWORD} for one in rows] for name, rows in users.items()}


def interpreter() -> Path:
    """Return the Python of the sites' environment: ``PREFIX-sites``, if PREFIX is the environment of this process."""
    return Path(f"{sys.prefix}-sites") / "bin" / "python"


def programs() -> Path | None:
    """Return the folder of the site programs: in a checkout, else in the sites' environment. None without either."""
    folders = [APPS, *(folder / INSTALLED_AS for folder in _site_packages())]
    return next((folder for folder in folders if (folder / "run_django.py").is_file()), None)


def missing(one: Software) -> str:
    """Return what must be installed before an application can start, with the command; empty if nothing is missing."""
    if not one.module and not (shutil.which("php") and (DOKUWIKI / "doku.php").is_file()):
        return f"DokuWiki and PHP: {PACKAGE}"
    if programs() is None or (one.module and not any((folder / one.module).is_dir() for folder in _site_packages())):
        return f"{one.title}: the distribution {DISTRIBUTION}, in an environment of its own: {_install_command()}"
    return ""


def _install_command() -> str:
    if APPS.is_dir():
        return "make sites"
    environment = interpreter().parent.parent
    return f"python3 -m venv {environment} && {environment}/bin/pip install {DISTRIBUTION}"


@cache
def _site_packages() -> tuple[Path, ...]:
    folders = interpreter().parent.parent.glob("lib/python3*/site-packages")
    return tuple(folders) if interpreter().is_file() else ()
