"""Reads and checks tasks in WebArena's format, such as its 812: placeholders of site URLs, start pages and logins.

Upstream: web-arena-x/webarena f62e0b9, config_files/test.raw.json."""

import gzip
import json
import re
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from envs.outside_data import SETS
from envs.webarena.evaluators.rubric import check_rubric, is_address
from envs.webarena.site_set import Record

SITES = ("SHOPPING", "SHOPPING_ADMIN", "REDDIT", "GITLAB", "WIKIPEDIA", "MAP", "HOMEPAGE")
"""Placeholders of the sites' URLs in records (__SHOPPING__), without their underscores."""
LOGGED_IN_AT = ("shopping", "shopping_admin", "reddit", "gitlab")
"""Sites with accounts, by their names in records."""
_PLACEHOLDER = re.compile(r"__([A-Z]+(?:_[A-Z]+)*)__")
TABS = " |AND| "
"""Separates the start URLs of a task with several tabs."""
(FILE,) = SETS["webarena/webarena"]


def read_records(file: Path) -> list[dict[str, Any]]:
    """Read and check the records of a file in WebArena's format, gzipped or not. Raises ValueError, with the task, for
    an invalid record, OSError if the file cannot be read."""
    content = file.read_bytes()
    try:
        records = json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)
    except (ValueError, EOFError, OSError) as error:
        raise ValueError(f"{file}: no JSON: {error}") from error
    if not isinstance(records, list):
        raise ValueError(f"{file}: a {type(records).__name__}, expected a list of tasks")
    for place, record in enumerate(records):
        try:
            check(record)
            _check_sites(record)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{file}: task {place}: no WebArena task: {type(error).__name__}: {error}") from error
        except ValueError as error:
            raise ValueError(f"{file}: {error}") from error
    return records


def check(record: Record) -> None:
    """Raise ValueError, KeyError, TypeError or AttributeError for a record that cannot be started or scored."""
    for name in ("task_id", "sites", "start_url", "intent", "eval"):
        if name not in record:
            raise ValueError(f"task {record.get('task_id')}: without {name}")
    check_rubric(record)
    for url in start_urls(record):
        if not is_address(url):
            raise ValueError(f"task {record['task_id']}: start_url {url[:80]!r}: expected an address")


def _check_sites(record: Record) -> None:
    """Raise ValueError if a record uses an unknown site, or a login at a site that has none."""
    if unknown := sorted(sites_named(record) - set(SITES)):
        raise ValueError(f"task {record['task_id']}: unknown site {unknown[0]}: expected some of {', '.join(SITES)}")
    if unknown := [site for site in logged_in(record) if site not in LOGGED_IN_AT]:
        raise ValueError(
            f"task {record['task_id']}: storage_state names {unknown[0]!r}, where nobody logs in: expected some of "
            f"{', '.join(LOGGED_IN_AT)}"
        )


def filled(record: Record, urls: Mapping[str, str]) -> dict[str, Any]:
    """A copy of the record with ``urls`` in place of placeholders. Raises ValueError if a placeholder has no URL."""
    text = json.dumps(record)
    for name, url in urls.items():
        text = text.replace(f"__{name}__", json.dumps(url.rstrip("/"))[1:-1])
    complete: dict[str, Any] = json.loads(text)
    if names := ", ".join(sorted(placeholders(complete))):
        raise ValueError(f"task {record['task_id']} has to do with {names}, whose address is not configured")
    return complete


def placeholders(record: Record) -> frozenset[str]:
    """Return the names of a record's placeholders, without underscores: WebArena's anywhere in the record, others only
    in URLs, since elsewhere they may be words."""
    text = json.dumps(record)
    targets = record["eval"].get("program_html") or ()
    addresses = [record["start_url"], record["eval"].get("reference_url") or "", *(one["url"] for one in targets)]
    others = (name for address in addresses for name in _PLACEHOLDER.findall(address))
    return frozenset(name for name in SITES if f"__{name}__" in text).union(others)


def sites_named(record: Record) -> frozenset[str]:
    """Return the sites that a record uses, as placeholders without underscores: in its texts and in its ``sites``."""
    return placeholders(record) | {site.upper() for site in record["sites"]}


def logged_in(record: Record) -> tuple[str, ...]:
    """Names of the sites where a task needs a login, from its storage state's file name
    (``shopping.reddit_state.json``); possibly none."""
    state = record.get("storage_state")
    return tuple(PurePosixPath(state).name.removesuffix("_state.json").split(".")) if state else ()


def start_urls(record: Record) -> list[str]:
    """Return the start URLs of a record, one per tab; the first tab is the current one."""
    return [url.strip() for url in record["start_url"].split(TABS.strip())]
