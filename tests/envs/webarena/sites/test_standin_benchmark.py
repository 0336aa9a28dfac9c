"""The stand-in suite as a benchmark: its tasks as JSON values, what is left out, what it says of itself."""

from __future__ import annotations

import json

import pytest

from envs.webarena.sites.benchmark_standin import STANDIN, StandinOptions
from envs.webarena.sites.suite.records import records
from lemur_ray.benchmarks.contract import EvaluationRequest


def test_the_benchmark_leaves_out_what_it_is_told_to() -> None:
    tasks = list(STANDIN.load(StandinOptions(), EvaluationRequest()))
    assert [task.id for task in tasks] == [str(one["task_id"]) for one in records()]
    fewer = list(STANDIN.load(StandinOptions(without="wiki,cms"), EvaluationRequest()))
    assert {task.category for task in fewer} == {"shopping", "shopping_admin", "gitlab", "reddit"}
    assert json.loads(json.dumps(tasks[0].options)) == tasks[0].options
    with pytest.raises(ValueError, match="--without wikis: expected names of shop, trac, forum, cms, wiki"):
        StandinOptions(without="wikis")
    with pytest.raises(ValueError, match="--site-copies 0: expected 1 or more"):
        StandinOptions(site_copies=0)
