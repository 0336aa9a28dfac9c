"""lemur-ray: from raw code and text to a chat model, and from the chat model to a scored agent, on one Ray cluster.

``import lemur_ray as lr`` is light: it brings in neither jax nor ray. ``lr.evaluate``, ``lr.load_model`` and the other
names of ``__all__`` load what they need when they are used; their meaning changes only with the major version.
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

if _TYPE_CHECKING:
    from lemur_ray.agents.messages import ChatReply, ChatRequest, Message, Policy
    from lemur_ray.evaluation.library import Evaluation, evaluate, list_benchmarks, load_evaluation
    from lemur_ray.serve.local_model import LocalModel, load_model
    from lemur_ray.text.tokenizer_folder import load_path as load_tokenizer

__version__ = "0.1.0"
__all__ = [
    "ChatReply",
    "ChatRequest",
    "Evaluation",
    "LocalModel",
    "Message",
    "Policy",
    "evaluate",
    "list_benchmarks",
    "load_evaluation",
    "load_model",
    "load_tokenizer",
]  # fmt: skip

_MODULES = {
    "agents.messages": ("ChatReply", "ChatRequest", "Message", "Policy"),
    "evaluation.library": ("Evaluation", "list_benchmarks", "evaluate", "load_evaluation"),
    "serve.local_model": ("LocalModel", "load_model"),
    "text.tokenizer_folder": ("load_path",),
}
_PLACES = {name: (module, name) for module, names in _MODULES.items() for name in names}
_PLACES["load_tokenizer"] = _PLACES.pop("load_path")

from lemur_ray.host import renamed_modules as _renamed_modules  # noqa: E402

_renamed_modules.install()


def __getattr__(name: str) -> _Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'lemur_ray' has no attribute {name!r}")
    module, attribute = _PLACES[name]
    return getattr(_import_module(f"lemur_ray.{module}"), attribute)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
