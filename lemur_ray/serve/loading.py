"""From the name of a model to an engine that is warm.

Knows nothing of HTTP or of where the app is hosted.
"""

from __future__ import annotations

from lemur_ray.model.load import load_model
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine import Engine
from lemur_ray.serve.front import Front


def open_front(spec: str, options: EngineOptions | None = None, name: str = "") -> Front:
    """Load a model (spec as in ``model.load``) and start its engine; returns when it is warm.

    name: of the model in requests, by default its own. Raises what ``load_model`` raises, and EngineClosed.
    """
    model = load_model(spec)
    engine = Engine(model.params, model.config, options).start()
    return Front(engine, model.tokenizer, name or model.name, model.version)
