"""Metrics of several replicas on one page, with a ``replica`` label on each series and counters that never decrease.

Any replica may answer a request for the page, and any may end. So every replica stores the newest page of every other
one, and they exchange all pages before one is shown: a counter that was shown is not lost while one replica lives. The
last counters of an ended replica stay on the page; its gauges are removed. Knows nothing of Ray."""

from collections.abc import Collection, Mapping
from types import SimpleNamespace
from typing import Any, NamedTuple

from prometheus_client.core import Metric
from prometheus_client.parser import text_string_to_metric_families

from lemur_ray.serve.http.metrics import rendered

MOST_GONE = 32
"""Ended replicas that stay on the page: those with the newest pages."""


class Page(NamedTuple):
    """The metrics page of one replica, as it was at one time."""

    number: int
    """Nanoseconds since 1970 on its host, increasing with every page of a replica"""
    text: str


Pages = Mapping[str, Page]
"""Pages by name of the replica"""


def newest(*known: Pages) -> dict[str, Page]:
    """The newest page of every replica in any of ``known``."""
    pages = (page for pages in known for page in pages.items())
    return dict(sorted(pages, key=lambda page: page[1].number))


def without_oldest(known: Pages, alive: Collection[str]) -> dict[str, Page]:
    """The pages of the replicas ``alive``, and of the MOST_GONE (32) ended replicas with the newest pages. known:
    newest page by name of the replica."""
    gone = sorted((page.number, replica) for replica, page in known.items() if replica not in alive)
    last = {*alive, *(replica for _, replica in gone[-MOST_GONE:])}
    return {replica: page for replica, page in known.items() if replica in last}


def merged(pages: Mapping[str, str], alive: Collection[str] | None = None) -> str:
    """One page in Prometheus' format with the series of all pages, each with a label ``replica``. pages: text by
    replica. alive: replicas whose gauges are shown; None: all."""
    families: dict[str, Metric] = {}
    for replica, page in sorted(pages.items()):
        for family in text_string_to_metric_families(page):
            if family.type == "gauge" and alive is not None and replica not in alive:
                continue
            whole = families.setdefault(family.name, Metric(family.name, family.documentation, family.type))
            whole.samples.extend(s._replace(labels={**s.labels, "replica": replica}) for s in family.samples)
    registry: Any = SimpleNamespace(collect=families.values)
    return rendered(registry)
