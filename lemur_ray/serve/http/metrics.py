"""Metrics of a server in Prometheus' text format.

Every server has a registry of its own, so several engines in one process do not add up. Knows nothing of requests'
contents."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import fields

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.engine.events import Stats

BUCKETS_S = (0.0005, 0.001, 0.002, 0.003, 0.005, 0.01, 0.02, 0.03, 0.05, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
"""Histogram bounds, from half a millisecond per token (a small model on an accelerator) to the longest replies."""
_MOST_NAMES = 100


class Metrics:
    """Metrics of one engine and of its HTTP requests, in a registry of their own."""

    def __init__(self, engine: Engine):
        self._registry = registry = _WithoutTimes(auto_describe=False)
        registry.register(_EngineCollector(engine))
        self._ignored = Counter("lemur_ignored_parameters", "Parameters nobody knows", ["name"], registry=registry)
        self._refused = Counter(
            "lemur_refused", "Requests that were answered with an error", ["status"], registry=registry
        )
        self._known: set[str] = set()

        def durations(name: str, about: str) -> Histogram:
            return Histogram(f"lemur_{name}_seconds", about, buckets=BUCKETS_S, registry=registry)

        self.first_token = durations("first_token", "Until the first token of a stream").observe
        """Record the seconds from a request to the first token of its streamed reply"""
        self._between_tokens = durations("between_tokens", "From a token of a stream to the next one")
        self.served = durations("request", "Until the end of a reply").observe
        """Record the duration of a complete reply, in seconds"""

    def more_tokens(self, count: int, duration_s: float) -> None:
        """Record ``count`` further tokens of a streamed reply, which came ``duration_s`` seconds after the previous
        ones; 0 tokens record nothing."""
        if count:
            self._between_tokens.observe(duration_s / count)

    def refused(self, status: int) -> None:
        """Count a request that was answered with an error of this HTTP status."""
        self._refused.labels(status).inc()

    def ignored(self, names: Iterable[str]) -> None:
        """Count unknown parameters of a request by name. Clients choose the names, so after 100 different ones, and for
        names that are no identifiers, the count is that of "other"."""
        for name in names:
            if name.isidentifier() and (name in self._known or len(self._known) < _MOST_NAMES):
                self._known.add(name)
                self._ignored.labels(name).inc()
            else:
                self._ignored.labels("other").inc()

    def render(self) -> str:
        """The text of /metrics, in Prometheus' format."""
        return rendered(self._registry)


def rendered(registry: CollectorRegistry) -> str:
    """The text of a registry in Prometheus' format, with integers written without a fraction."""
    return re.sub(r"\.0$", "", generate_latest(registry).decode(), flags=re.MULTILINE)


class _WithoutTimes(CollectorRegistry):
    """A registry without the ``_created`` series that would double their number."""

    def collect(self) -> Iterator[Metric]:
        for metric in super().collect():
            metric.samples = [sample for sample in metric.samples if not sample.name.endswith("_created")]
            yield metric


class _EngineCollector:
    """Collector of the engine's own counters and gauges, read at each scrape."""

    def __init__(self, engine: Engine):
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        engine, stats = self._engine, self._engine.stats
        for name, about in _declared("gauge"):
            yield GaugeMetricFamily(f"lemur_{name}", about, value=getattr(stats, name))
        others = {
            "slots": ("Sequences that can be computed at once", engine.num_slots),
            "context": ("Longest sequence in tokens", engine.context),
            "padded_to_one_shape": ("Whether every step is padded to one shape", stats.padded),
            "devices": ("Devices that share the model", engine.num_devices),
            "warmup_seconds": ("What the start took", round(stats.warmup_s, 3)),
        }
        for name, (about, value) in others.items():
            yield GaugeMetricFamily(f"lemur_{name}", about, value=value)
        for name, about in _declared("counter"):
            yield CounterMetricFamily(f"lemur_{name}", about, value=getattr(stats, name))
        finished = CounterMetricFamily("lemur_finished", "Requests that ended, by how they did", labels=["reason"])
        for reason, count in sorted(stats.finished.items()):
            finished.add_metric([reason], count)
        yield finished


def _declared(kind: str) -> list[tuple[str, str]]:
    """(name, description) of the engine's gauges or counters."""
    return [(field.name, field.metadata[kind]) for field in fields(Stats) if kind in field.metadata]
