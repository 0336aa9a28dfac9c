"""Questions and reference answers of every benchmark that can be played here, for the decontamination of a corpus."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable

from lemur_ray.benchmarks.contract import Benchmark, EvaluationRequest
from lemur_ray.benchmarks.discovery import offers
from lemur_ray.host.home import outside_data
from lemur_ray.host.json_files import strings_in


def benchmark_texts(say: Callable[[str], None]) -> dict[str, list[str]]:
    """Questions and reference answers of each benchmark by its name, with the downloaded data of ``$LEMUR_DATA`` if
    that is set. ``say``: called with a message for each benchmark that cannot be loaded, which is left out."""
    data = outside_data(os.environ.get("LEMUR_DATA", ""))
    texts: dict[str, list[str]] = {}
    missing = []
    for offer in offers():
        try:
            if offer.benchmark is None:
                raise ValueError(offer.why)
            texts[offer.name] = _texts(offer.benchmark, EvaluationRequest(data))
        except (Exception, SystemExit) as error:  # an installed package may raise anything
            missing.append(offer.name)
            say(f"decontamination: {offer.name} is left out: {' '.join(str(error).split())[:200]}")
    say(f"decontamination: {len(texts)} benchmarks, {len(missing)} left out")
    return texts


def _texts(benchmark: Benchmark[object], request: EvaluationRequest) -> list[str]:
    limit = benchmark.default_limit or None
    texts: dict[str, None] = {}
    for task in itertools.islice(benchmark.load(benchmark.options(), request), limit):
        texts[benchmark.details.opening(task)] = None
        texts |= dict.fromkeys(strings_in(dict(task.options)))
    return list(texts)
