"""Settings common to the Django sites: one SQLite file, no cache, no mail, no requests to other machines."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

FOLDER = Path(os.environ["SITE_FOLDER"])
SECRET_KEY = (FOLDER / "key").read_text()
DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1", "localhost"]
DATABASES = {
    "default": {"ENGINE": "django.db.backends.sqlite3", "NAME": str(FOLDER / "db.sqlite3"), "OPTIONS": {"timeout": 20}}
}
# A cache in the process would outlive a restore of the database.
CACHES = {"default": {"BACKEND": "django.core.cache.backends.dummy.DummyCache"}}
# Faster than Django's default, which protects passwords that are public here anyway.
PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
EMAIL_BACKEND = "django.core.mail.backends.dummy.EmailBackend"
DEFAULT_AUTO_FIELD = "django.db.models.AutoField"
SESSION_COOKIE_AGE = 20 * 365 * 86400
STATIC_URL, MEDIA_URL = "/static/", "/media/"
MEDIA_ROOT = str(FOLDER / "media")
TIME_ZONE, USE_TZ, LANGUAGE_CODE = "UTC", True, "en-gb"
SITE_ID = 1
FORMS_URLFIELD_ASSUME_HTTPS = True
LOGGING = {"version": 1, "disable_existing_loggers": True}

DJANGO = [
    "django.contrib.admin", "django.contrib.auth", "django.contrib.contenttypes", "django.contrib.sessions",
    "django.contrib.messages", "django.contrib.sites", "django.contrib.staticfiles",
]  # fmt: skip
BEFORE = [
    "strip_public_hosts.WithoutPublicHosts",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]
CONTEXT = [
    "django.template.context_processors.debug",
    "django.template.context_processors.request",
    "django.contrib.auth.context_processors.auth",
    "django.contrib.messages.context_processors.messages",
    "django.template.context_processors.static",
]


class NoMigrations:
    """Makes Django create tables from the current models and not by migrations: seconds instead of minutes."""

    def __contains__(self, app: object) -> bool:
        return True

    def __getitem__(self, app: str) -> None:
        return None


def templates(
    *processors: str, folders: tuple[str, ...] = (), texts: Mapping[str, str] | None = None
) -> list[dict[str, object]]:
    """Return Django's template settings with further context processors and folders. ``texts``: templates by name."""
    of = "django.template.loaders"
    loaders = [(f"{of}.locmem.Loader", dict(texts or {})), f"{of}.filesystem.Loader", f"{of}.app_directories.Loader"]
    options = {"context_processors": [*CONTEXT, *processors], "loaders": [(f"{of}.cached.Loader", loaders)]}
    backend = "django.template.backends.django.DjangoTemplates"
    return [{"BACKEND": backend, "DIRS": list(folders), "APP_DIRS": False, "OPTIONS": options}]
