"""All tasks of the stand-in suite for a content seed: their WebArena records, and the steps that solve them."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from envs.webarena.sites.content import SEED, content_of
from envs.webarena.sites.software import SITES
from envs.webarena.sites.suite import dashboard, forum, herbs, news, shopping, tickets
from envs.webarena.sites.suite.steps import Step
from envs.webarena.sites.suite.task_definition import SuiteTask

PARTS = (shopping, dashboard, tickets, forum, news, herbs)


@lru_cache(maxsize=4)
def definitions(seed: int = SEED) -> tuple[SuiteTask, ...]:
    """The definitions of all tasks, with content of ``seed``; the position is the task id, from 0."""
    content = content_of(seed)
    return tuple(one for part in PARTS for one in part.tasks(content))


def records(seed: int = SEED) -> list[dict[str, Any]]:
    """All tasks of the suite as records in WebArena's format, numbered from 0. ``seed``: of the sites' content."""
    templates = list(dict.fromkeys(one.template for one in definitions(seed)))
    return [one.record(number, templates.index(one.template)) for number, one in enumerate(definitions(seed))]


def plan_of(task_id: int, seed: int = SEED) -> Sequence[Step]:
    """Return the steps that solve a task, with placeholders in URLs."""
    return definitions(seed)[task_id].plan


def software_of(record: dict[str, Any]) -> list[str]:
    """Return the names of the applications on which a task is played, sorted."""
    return sorted({SITES[site].name for site in record["sites"]})
