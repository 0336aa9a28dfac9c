"""Old import paths of renamed modules: each still imports, with a DeprecationWarning, for one release.

Plug-ins and scripts written for an earlier release keep working."""

import importlib
import sys
import warnings
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, cast

RENAMED = {
    "lemur_ray.benchmarks.about": "lemur_ray.benchmarks.run_notes",
    "lemur_ray.benchmarks.takes": "lemur_ray.benchmarks.resource_request",
    "lemur_ray.benchmarks.views": "lemur_ray.benchmarks.episode_artifacts",
    "lemur_ray.agents.without_model": "lemur_ray.agents.baselines",
    "lemur_ray.agents.keys": "lemur_ray.agents.api_keys",
    "lemur_ray.agents.leases": "lemur_ray.agents.task_leases",
    "lemur_ray.agents.outside": "lemur_ray.agents.external_calls",
    "lemur_ray.bundles": "lemur_ray.storage.bundles",
    "lemur_ray.checkpoints": "lemur_ray.weights.checkpoints",
    "lemur_ray.corpus.decontaminate": "lemur_ray.corpus.cleaning.decontaminate",
    "lemur_ray.corpus.filters": "lemur_ray.corpus.cleaning.filters",
    "lemur_ray.corpus.bucket_build": "lemur_ray.corpus.destinations.bucket_build",
    "lemur_ray.corpus.locations": "lemur_ray.corpus.destinations.locations",
    "lemur_ray.corpus.stages": "lemur_ray.corpus.steps.stages",
    "lemur_ray.corpus.step_files": "lemur_ray.corpus.destinations.step_files",
    "lemur_ray.corpus.tokenise": "lemur_ray.corpus.steps.tokenise",
    "lemur_ray.demo": "lemur_ray.cluster.demo",
    "lemur_ray.gold_check": "lemur_ray.evaluation.gold_check",
    "lemur_ray.home": "lemur_ray.host.home",
    "lemur_ray.json_files": "lemur_ray.host.json_files",
    "lemur_ray.ports": "lemur_ray.host.ports",
    "lemur_ray.preflight": "lemur_ray.evaluation.preflight",
    "lemur_ray.report.pages.mixture_figure": "lemur_ray.report.pages.pretraining.mixture_figure",
    "lemur_ray.report.pages.mixture_page": "lemur_ray.report.pages.pretraining.mixture_page",
    "lemur_ray.solved_export": "lemur_ray.evaluation.solved_export",
    "lemur_ray.suites": "lemur_ray.evaluation.suites",
    "lemur_ray.train.opening": "lemur_ray.train.initial_state",
}
"""Old dotted path -> new one. A package stands for all modules in it."""


class RenamedModules:
    """A finder and loader of ``sys.meta_path`` that imports the new module for an old path. It has no base class of
    ``importlib.abc``, whose import takes longer than all else in this package."""

    def __init__(self) -> None:
        self._specs: dict[str, ModuleSpec | None] = {}
        """Old path -> the module's original spec, which the import by the old path replaces until ``exec_module``."""

    def find_spec(self, name: str, path: Sequence[str] | None, target: ModuleType | None = None) -> ModuleSpec | None:
        """A spec, with this object as loader, if ``name`` is an old path or in a renamed package; else None."""
        return ModuleSpec(name, cast(Any, self)) if _new_path(name) else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        """Import the module at the new path, with a DeprecationWarning; it is then known under both paths."""
        new = _new_path(spec.name)
        warnings.warn(f"{spec.name} is now {new}: import that one", DeprecationWarning, stacklevel=2)
        module = importlib.import_module(new)
        self._specs[spec.name] = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        """Give the module its original spec back; it was executed when it was imported by its new path."""
        own = self._specs.pop(module.__spec__.name, None) if module.__spec__ else None
        if own:
            module.__spec__, module.__loader__ = own, own.loader


def install() -> None:
    """Make old paths importable in this process. Safe to call twice."""
    if not any(isinstance(finder, RenamedModules) for finder in sys.meta_path):
        # First, because a renamed package's own path would find its modules a second time under the old name.
        sys.meta_path.insert(0, RenamedModules())


def _new_path(name: str) -> str:
    for old, new in RENAMED.items() if name.startswith("lemur_ray.") else ():
        if name == old or name.startswith(f"{old}."):
            return new + name.removeprefix(old)
    return ""
