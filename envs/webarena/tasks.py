"""WebArena's tasks: the 812 records, their placeholders, who must be logged in.

Upstream: web-arena-x/webarena f62e0b9, config_files/test.raw.json. Starts nothing and knows no browser.
"""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from envs.webarena.evaluators.rubric import check_rubric, is_address
from envs.webarena.site_set import Record
from lemur_ray.outside_data.source import Source

SITES = ("SHOPPING", "SHOPPING_ADMIN", "REDDIT", "GITLAB", "WIKIPEDIA", "MAP", "HOMEPAGE")
"""Placeholders without their underscores."""
LOGGED_IN_AT = ("shopping", "shopping_admin", "reddit", "gitlab")
"""As records name them; the other sites know no accounts."""
_PLACEHOLDER = re.compile(r"__([A-Z]+(?:_[A-Z]+)*)__")
TABS = " |AND| "
"""Between the addresses of several tabs that a task starts with."""
FILE = Source(
    "webarena/test.raw.json.gz",
    "git:web-arena-x/webarena@f62e0b99bc7d9e0cd996d0cf5ebb2225780ec279/config_files/test.raw.json",
    "7b50386fd69163dbc05d615d834df4c6ed2c35596e97a1b10d17451c02537652",
    880_776,
    "Apache-2.0",
    stored="gzip",
    seen_in=1,
)


def read_records(file: Path) -> list[dict[str, Any]]:
    """The records of a file in WebArena's format, packed with gzip or not. Raises ValueError, OSError."""
    content = file.read_bytes()
    try:
        found = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{file}: no JSON: {error}") from error
    if not isinstance(found, list):
        raise ValueError(f"{file}: a {type(found).__name__}, expected a list of tasks")
    for place, record in enumerate(found):
        try:
            check(record)
            _check_sites(record)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{file}: task {place}: no WebArena task: {type(error).__name__}: {error}") from error
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error
    return found


def check(record: Record) -> None:
    """Raises ValueError, KeyError, TypeError for a record that no episode could be begun with or scored by."""
    for name in ("task_id", "sites", "start_url", "intent", "eval"):
        if name not in record:
            raise ValueError(f"task {record.get('task_id')}: without {name}")
    check_rubric(record)
    for url in start_urls(record):
        if not is_address(url):
            raise ValueError(f"task {record['task_id']}: start_url {url[:80]!r}: expected an address")


def _check_sites(record: Record) -> None:
    """Raises ValueError for a site that is none of WebArena's."""
    if unknown := sorted(sites_named(record) - set(SITES)):
        raise ValueError(f"task {record['task_id']}: unknown site {unknown[0]}: expected some of {', '.join(SITES)}")
    if unknown := [site for site in logged_in(record) if site not in LOGGED_IN_AT]:
        raise ValueError(
            f"task {record['task_id']}: storage_state names {unknown[0]!r}, where nobody logs in: expected some of "
            f"{', '.join(LOGGED_IN_AT)}"
        )


def filled(record: Record, urls: Mapping[str, str]) -> dict[str, Any]:
    """The record with addresses in the place of placeholders, wherever they stand.

    Raises ValueError where one of them has no address: what stands there could not be gone to, or found.
    """
    text = json.dumps(record)
    for name, url in urls.items():
        text = text.replace(f"__{name}__", json.dumps(url.rstrip("/"))[1:-1])
    found: dict[str, Any] = json.loads(text)
    if lacking := sorted(placeholders(found)):
        raise ValueError(
            f"task {record['task_id']} has to do with {', '.join(lacking)}, whose address is not configured"
        )
    return found


def placeholders(record: Record) -> frozenset[str]:
    """Names of placeholders, without underscores: WebArena's wherever they stand, others in addresses alone, since
    elsewhere they may be words."""
    text = json.dumps(record)
    targets = record["eval"].get("program_html") or ()
    addresses = [record["start_url"], record["eval"].get("reference_url") or "", *(one["url"] for one in targets)]
    others = (name for address in addresses for name in _PLACEHOLDER.findall(address))
    return frozenset(name for name in SITES if f"__{name}__" in text).union(others)


def sites_named(record: Record) -> frozenset[str]:
    """Placeholders, without underscores, of all sites that a record has to do with."""
    return placeholders(record) | {site.upper() for site in record["sites"]}


def logged_in(record: Record) -> tuple[str, ...]:
    """The sites at which somebody must be logged in, as the name of the storage state says."""
    state = record.get("storage_state")
    return tuple(PurePosixPath(state).name.removesuffix("_state.json").split(".")) if state else ()


def start_urls(record: Record) -> list[str]:
    """Of each tab, the current one first."""
    return [url.strip() for url in record["start_url"].split(TABS.strip())]
