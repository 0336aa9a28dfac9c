"""What an operator wants to see, as Prometheus text.

Knows nothing of requests' contents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from lemur_ray.serve.engine.engine import Engine

_BUCKETS_S = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)


class Histogram:
    """Cumulative counts of durations in seconds."""

    def __init__(self) -> None:
        self.counts = [0] * len(_BUCKETS_S)
        self.total, self.sum_s = 0, 0.0

    def add(self, duration_s: float) -> None:
        self.total += 1
        self.sum_s += duration_s
        for i, limit in enumerate(_BUCKETS_S):
            self.counts[i] += duration_s <= limit

    def lines(self, name: str) -> Iterator[str]:
        yield f"# TYPE {name} histogram"
        for limit, count in zip(_BUCKETS_S, self.counts, strict=True):
            yield f'{name}_bucket{{le="{limit:g}"}} {count}'
        yield f'{name}_bucket{{le="+Inf"}} {self.total}'
        yield f"{name}_sum {self.sum_s:.6f}"
        yield f"{name}_count {self.total}"


class Metrics:
    """Gauges and counters of an engine, and what the protocol adds to them."""

    def __init__(self, engine: Engine):
        self._engine = engine
        self._first_token, self._between_tokens, self._request = Histogram(), Histogram(), Histogram()
        self._ignored: Counter[str] = Counter()
        self._refused: Counter[int] = Counter()

    def first_token(self, duration_s: float) -> None:
        """A streamed request has its first token."""
        self._first_token.add(duration_s)

    def more_tokens(self, count: int, duration_s: float) -> None:
        """So many more tokens of a streamed reply came so long after the ones before."""
        if count:
            self._between_tokens.add(duration_s / count)

    def refused(self, status: int) -> None:
        """A request was answered with an error."""
        self._refused[status] += 1

    def served(self, duration_s: float) -> None:
        """A request is answered."""
        self._request.add(duration_s)

    def ignored(self, names: Iterable[str]) -> None:
        """Parameters that a request had and nobody knows. Names come from outside: the list of them is bounded."""
        for name in names:
            known = name in self._ignored or len(self._ignored) < 100
            self._ignored[name if known and name.isidentifier() else "other"] += 1

    def render(self) -> str:
        """The page."""
        stats, engine = self._engine.stats, self._engine
        gauges = {"active": stats.active, "queued": stats.queued, "slots": engine.num_slots, "context": engine.context}
        gauges |= {
            "batch_invariant": int(stats.batch_invariant),
            "padded_to_one_shape": int(stats.padded),
            "blocks": stats.blocks,
            "blocks_held": stats.blocks_held,
            "blocks_pinned": stats.blocks_pinned,
            "devices": engine.num_devices,
        }
        counters = {
            "requests": stats.requests,
            "prompt_tokens": stats.prompt_tokens,
            "cached_tokens": stats.cached_tokens,
            "prefill_tokens": stats.prefill_tokens,
            "preemptions": stats.preemptions,
            "recomputed_tokens": stats.recomputed_tokens,
            "generated_tokens": stats.generated_tokens,
            "decode_steps": stats.decode_steps,
            "decode_rows": stats.decode_rows,
            "padding_rows": stats.padding_rows,
            "recompiles_after_warmup": stats.recompiles_after_warmup,
        }
        lines = [f"# TYPE lemur_{name} gauge\nlemur_{name} {value}" for name, value in gauges.items()]
        lines += [f"# TYPE lemur_{name}_total counter\nlemur_{name}_total {value}" for name, value in counters.items()]
        lines.append(f"# TYPE lemur_warmup_seconds gauge\nlemur_warmup_seconds {stats.warmup_s:.3f}")
        lines.append("# TYPE lemur_finished_total counter")
        lines += [f'lemur_finished_total{{reason="{r}"}} {n}' for r, n in sorted(stats.finished.items())]
        lines.append("# TYPE lemur_ignored_parameters_total counter")
        lines += [f'lemur_ignored_parameters_total{{name="{p}"}} {n}' for p, n in sorted(self._ignored.items())]
        lines.append("# TYPE lemur_refused_total counter")
        lines += [f'lemur_refused_total{{status="{s}"}} {n}' for s, n in sorted(self._refused.items())]
        lines += self._first_token.lines("lemur_first_token_seconds")
        lines += self._between_tokens.lines("lemur_between_tokens_seconds")
        lines += self._request.lines("lemur_request_seconds")
        return "\n".join(lines) + "\n"
