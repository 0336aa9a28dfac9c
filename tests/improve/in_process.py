"""Backend of improvement runs in this process, without Ray: one learner, one engine, threads that play."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import replace

import numpy as np

from lemur_ray.agents.messages import Policy
from lemur_ray.improve.learner import Committed, Learner, LearnerSpec
from lemur_ray.improve.loop import Served
from lemur_ray.improve.training_rows import Rows
from lemur_ray.rollout.evaluation import EvaluationPlan
from lemur_ray.rollout.threads import Pool, ThreadPool
from lemur_ray.serve.config import BY_MACHINE, EngineOptions
from lemur_ray.serve.loading import update_weights
from lemur_ray.serve.local_model import LocalModel
from lemur_ray.weights.open_model import open_model


class InProcess:
    """Trains, serves and plays in this process (``loop.Backend``). A context manager."""

    def __init__(self, spec: LearnerSpec, options: EngineOptions | None = None) -> None:
        self._learner, self._out = Learner(spec), spec.out
        self._options = replace(options or BY_MACHINE, float64=spec.float64)
        self._model: LocalModel | None = None

    def open(self) -> Committed:
        return self._learner.open()

    def train(self, number: int, rows: Rows, order: np.ndarray, best: int) -> Committed:
        return self._learner.train(number, rows, order, best)

    def serve(self, commit: Committed) -> Served:
        version = open_model(commit.folder).version
        if self._model is None:
            self._model = LocalModel(self._out, self._options)
        if self._model.engine.version != version:
            update_weights(self._model.engine.engine, commit.folder)
        model = self._model
        return Served(version, lambda: model)

    def pool(self, plan: EvaluationPlan, policy: Callable[[], Policy]) -> AbstractContextManager[Pool]:
        return contextlib.closing(ThreadPool(policy(), plan.config.in_flight))

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, *error: object) -> None:
        if self._model is not None:
            self._model.close()
        self._learner.close()
