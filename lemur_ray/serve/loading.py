"""From the name of a model to an engine that is warm, and from a newer checkpoint to the engine that runs.

Knows nothing of HTTP or of where the app is hosted.
"""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Sequence

from lemur_ray.model.compile_cache import cache_folder, use_compile_cache
from lemur_ray.serve.compute.lockstep import Group
from lemur_ray.serve.compute.on_devices import OnDevices
from lemur_ray.serve.compute.wire import Line
from lemur_ray.serve.config import EngineOptions
from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.engine.errors import EngineClosed
from lemur_ray.serve.text_engine import TextEngine
from lemur_ray.text.chat_template import Chat, TemplateError, TemplateMissing, TemplateUnusable
from lemur_ray.text.templates.template_files import template_of, with_template
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.weights.open_model import MODEL_ERRORS, open_chat_model, open_model
from lemur_ray.weights.param_slices import Source

log = logging.getLogger(__name__)

MOST_ATTEMPTS = 3
"""To take over one version of the weights: each reads them all, and what is wrong with them seldom changes."""


def load_text_engine(
    spec: str,
    options: EngineOptions | None = None,
    name: str = "",
    follow_s: float = 0.0,
    followers: Sequence[Line] = (),
    template: str = "",
) -> TextEngine:
    """Load a model (spec as in ``weights.open_model``) and start its engine; returns when it is warm.

    name: of the model in requests, by default its own. follow_s: look that often for newer weights of the same spec and
    take them over; 0: never. followers: other processes of a group that this one leads (``on_ray.host_group``).
    template: of chats, in the place of the model's own. Raises RuntimeError where the model cannot be served; it says
    why.
    """
    options = options or EngineOptions()
    try:
        model = open_chat_model(spec)
        tokenizer = with_template(model.tokenizer, template) if template else model.tokenizer
        look_at_template(tokenizer)
        group = Group(list(followers), model.version) if followers else None
        version = served_version(model.version, options)
        engine = open_engine(model.source, options, version, group)
    except MODEL_ERRORS as error:
        raise RuntimeError(str(error)) from error
    use_compile_cache(cache_folder())
    engine.start()
    if follow_s:
        threading.Thread(target=_follow, args=(engine, spec, follow_s), name="follow", daemon=True).start()
    return TextEngine(engine, tokenizer, name or model.name)


def look_at_template(tokenizer: Tokenizer) -> None:
    """Raises TemplateUnusable for one that no chat could be shown by; says what a good one does not do."""
    try:
        template = template_of(tokenizer)
        template.render([Chat([{"role": "user", "content": "Hello."}], add_generation_prompt=True)])
    except TemplateUnusable:
        raise
    except TemplateMissing as error:
        log.warning("%s; until then requests for chats are refused, completions are not", error)
    except TemplateError as error:
        log.warning("a chat of one user turn: %s", error)
    else:
        if not template.quick and not template.knows_tools:
            log.warning("the chat template knows no tools: they are described in the system turn")


def open_engine(
    source: Source, options: EngineOptions | None = None, version: str = "", group: Group | None = None
) -> Engine:
    """An engine on the devices of this process, to be started. Arguments and errors as those of ``OnDevices``."""
    return Engine(OnDevices(source, options, group), version)


def update_weights(engine: Engine, spec: str) -> str:
    """Take over the weights of a model of the same shape; returns their version once every later reply has them.

    Raises RuntimeError where that is not possible; it says why, and the old weights go on.
    """
    try:
        model = open_chat_model(spec)
        version = served_version(model.version, engine.options)
        with engine.compute.staged(spec, model.version):
            engine.update(model.source, version).result()
    except (*MODEL_ERRORS, EngineClosed) as error:
        raise RuntimeError(f"{spec}: {error}") from error
    return version


def served_version(version: str, options: EngineOptions) -> str:
    """Version of weights as an engine serves them: rounded ones give other answers, so they have another name."""
    if options.quantization != "none":
        return f"{version}-{options.quantization}"
    return version if options.dtype == "float32" else f"{version}-{options.dtype}"


def _follow(engine: Engine, spec: str, every_s: float) -> None:
    """As long as the engine takes requests. What cannot be read is looked for again: it may be going away just now."""
    waiting = threading.Event()
    attempts: Counter[str] = Counter()
    while not waiting.wait(every_s) and engine.accepting:
        found = ""
        try:
            found = served_version(open_model(spec).version, engine.options)
            if found != engine.version and attempts[found] < MOST_ATTEMPTS:
                log.warning("weights are now those of %s", update_weights(engine, spec))
        except (RuntimeError, *MODEL_ERRORS) as error:
            attempts[found] += 1
            if not found:
                log.warning("newer weights could not be looked for: %s", error)
                continue
            last = attempts[found] >= MOST_ATTEMPTS
            after = f"the weights stay those of {engine.version} until there are others" if last else "trying again"
            log.warning("newer weights could not be taken over, %s: %s", after, error)
