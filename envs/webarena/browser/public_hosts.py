"""Translates the real URLs of sites to public names and back, in the URLs that a model reads and writes.

After libwebarena 0.0.4: a model knows reddit.com and not localhost:9999. The texts of pages keep the real URLs."""

from collections.abc import Mapping
from dataclasses import replace

from envs.webarena.actions.action import Action
from envs.webarena.site_set import place_of

PUBLIC: Mapping[str, str] = {
    "REDDIT": "http://reddit.com",
    "SHOPPING": "http://onestopmarket.com",
    "SHOPPING_ADMIN": "http://luma.com/admin",
    "GITLAB": "http://gitlab.com",
    "WIKIPEDIA": "http://wikipedia.org",
    "MAP": "http://openstreetmap.org",
    "HOMEPAGE": "http://homepage.com",
    "CMS": "http://gazette.test",
}
"""Public URL of each site. The last is for sites started here (``sites``), whose ports change with every run."""


def to_public(text: str, urls: Mapping[str, str]) -> str:
    """Replace real URLs in a text by public ones, the longest first, since one may be the prefix of another."""
    for name in sorted(PUBLIC.keys() & urls.keys(), key=lambda one: -len(urls[one])):
        real = urls[name].rstrip("/")
        text = text.replace(real, PUBLIC[name]).replace(_secure(real), _secure(PUBLIC[name]))
    return text


def to_real(text: str, urls: Mapping[str, str]) -> str:
    """Replace public URLs in a text by real ones."""
    for name in sorted(PUBLIC.keys() & urls.keys(), key=lambda one: -len(PUBLIC[one])):
        real = urls[name].rstrip("/")
        text = text.replace(PUBLIC[name], real).replace(_secure(PUBLIC[name]), real)
    return text


def with_real_urls(action: Action, urls: Mapping[str, str]) -> Action:
    """Return the action with real URLs in place of public ones in its URL, text and answer."""
    url, text, answer = (to_real(each, urls) for each in (action.url, action.text, action.answer))
    return replace(action, url=url, text=text, answer=answer)


def hosts_of(urls: Mapping[str, str]) -> tuple[str, ...]:
    """Return ``host:port`` of every site, sorted and without repetitions. A host alone would allow all of its ports."""
    return tuple(sorted({place_of(url) for url in urls.values()}))


def _secure(url: str) -> str:
    return url.replace("http://", "https://", 1)
