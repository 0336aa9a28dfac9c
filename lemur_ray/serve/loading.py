"""From the name of a model to an engine that is warm.

Knows nothing of HTTP or of where the app is hosted.
"""

from __future__ import annotations

from lemur_ray.model.load import MODEL_ERRORS, load_model
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine import Engine
from lemur_ray.serve.front import Front


def open_front(spec: str, options: EngineOptions | None = None, name: str = "") -> Front:
    """Load a model (spec as in ``model.load``) and start its engine; returns when it is warm.

    name: of the model in requests, by default its own. Raises RuntimeError where that is not possible; it says why.
    """
    try:
        model = load_model(spec)
    except MODEL_ERRORS as error:
        raise RuntimeError(str(error)) from error
    engine = Engine(model.params, model.config, options, model.version).start()
    return Front(engine, model.tokenizer, name or model.name)
