"""Inputs of a corpus build: the demo's texts without sources of the user, the benchmarks' texts if asked for."""

import _path  # noqa: F401

from typing import Any

from _instruction_data import demo_corpus


def corpus_inputs(config: Any) -> dict[str, Any]:
    """Keywords of ``corpus.build``: the demo's without sources of the user; with the benchmarks' texts if asked for."""
    inputs = {"config": config} if config.specs() else demo_corpus(config)
    if config.decontaminate:
        from lemur_ray.evaluation.benchmark_texts import benchmark_texts

        inputs["benchmarks"] = benchmark_texts(print)
    return inputs
