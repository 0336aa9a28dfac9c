"""Loads models into warm engines, and updates weights of running ones. Knows nothing of HTTP or hosting."""

import contextlib
import logging
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import replace

from lemur_ray.config import ModelConfig
from lemur_ray.model.compile_cache import cache_folder, use_compile_cache
from lemur_ray.serve.compute.devices import minimum_of_processes, present
from lemur_ray.serve.compute.lockstep import Group
from lemur_ray.serve.compute.on_devices import OnDevices
from lemur_ray.serve.compute.wire import Line
from lemur_ray.serve.config import BY_MACHINE, EngineOptions
from lemur_ray.serve.engine.engine import Engine
from lemur_ray.serve.engine.errors import EngineClosed
from lemur_ray.serve.planning.machine_defaults import TILE, chosen
from lemur_ray.serve.planning.machines import attached_machine, smallest_count
from lemur_ray.serve.text_engine import TextEngine
from lemur_ray.text.chat_template import Chat, TemplateError, TemplateMissing, TemplateUnusable
from lemur_ray.text.templates.template_files import template_of, with_template
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.weights.open_model import MODEL_ERRORS, open_chat_model, open_model
from lemur_ray.weights.param_slices import Source

log = logging.getLogger(__name__)

MOST_ATTEMPTS = 3
"""Attempts to load one version of the weights, each of which reads all of them; faults are seldom temporary."""


def load_text_engine(
    spec: str,
    options: EngineOptions | None = None,
    name: str = "",
    follow_s: float = 0.0,
    followers: Sequence[Line] = (),
    template: str = "",
    weights: tuple[str, str] = ("", ""),
) -> TextEngine:
    """Load a model (spec as in ``weights.open_model``) and start its engine; returns when it is warm.
    name: of the model in requests, by default its own. follow_s: seconds between checks for newer weights of the same
    spec, which are then loaded; 0: never. followers: other processes of a group that this one leads
    (``on_ray.host_group``). template: chat template, instead of the model's own. weights: spec and version of other
    weights of this model, with which to start. Raises RuntimeError with the reason if the model cannot be served, also
    if there are weights of another version."""
    try:
        model = open_chat_model(spec)
        options = options_here(model.source.config, options or BY_MACHINE)
        tokenizer = with_template(model.tokenizer, template) if template else model.tokenizer
        check_template(tokenizer)
        other, expected = weights
        first = open_chat_model(other) if other else model
        version = served_version(first.version, options)
        if expected and version != expected:
            raise ValueError(
                f"{other} has the weights {version} by now, not {expected}: put those back, or deploy anew"
            )
        group = Group(list(followers), first.version) if followers else None
        engine = open_engine(first.source, options, version, group)
    except MODEL_ERRORS as error:
        raise RuntimeError(str(error)) from error
    use_compile_cache(cache_folder())
    engine.start()
    if follow_s:
        threading.Thread(target=_follow, args=(engine, spec, follow_s), name="follow", daemon=True).start()
    return TextEngine(engine, tokenizer, name or model.name)


def options_here(config: ModelConfig, options: EngineOptions) -> EngineOptions:
    """The options with what they leave open chosen for this process's devices. Raises ValueError for too little memory,
    or float64 elsewhere than on CPUs. On accelerators the log says what serves."""
    devices, count = present(options.tensor_parallel)
    if options.float64 and devices[0].platform != "cpu":
        raise ValueError(f"float64 on {devices[0].platform}: expected CPUs (JAX_PLATFORMS=cpu)")
    machine = attached_machine(devices, count, minimum_of_processes)
    if options.tensor_parallel < 0 and len(devices) == count:
        num = 1 if machine.platform == "cpu" else smallest_count(config, options, machine)
        machine = replace(machine, num_devices=num)
    options = chosen(options, config, machine)
    if machine.platform != "cpu":
        log.warning(
            "serving in %s on %d device(s): %.1f GiB of cache, sequences of up to %d tokens, %d prompt tokens a step",
            options.dtype, machine.num_devices, options.cache_bytes / 2**30, options.context,
            options.prefill_tiles * TILE,
        )  # fmt: skip
    return options


def check_template(tokenizer: Tokenizer) -> None:
    """Raise TemplateUnusable if the tokenizer's chat template renders no chat; log a warning if there is none, or if it
    knows no tools."""
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
    """Make an engine on this process's devices, without starting it. source: the weights, which are read at once;
    version: of the weights, in replies; group: other processes that compute a part of every step. Raises ValueError if
    the devices cannot share the model, and what reading the source raises."""
    return Engine(OnDevices(source, options, group), version)


def update_weights(engine: Engine, spec: str) -> str:
    """Switch to the weights of a model of the same shape; returns their version once every later reply uses them.
    Raises RuntimeError with the reason if that is impossible; the old weights stay, unless the engine ended."""
    return commit_weights(engine, spec, stage_weights(engine, spec))


def stage_weights(engine: Engine, spec: str) -> str:
    """Check the weights of a model for ``commit_weights``; returns their version. Raises RuntimeError if they cannot be
    opened or do not fit the served model."""
    with _refusals(spec):
        model = open_chat_model(spec)
        version = served_version(model.version, engine.options)
        if version != engine.version:
            engine.stage(model.source, version, (spec, model.version))
    return version


def commit_weights(engine: Engine, spec: str, version: str) -> str:
    """Switch to the weights of that version, which ``stage_weights`` has checked; returns the version.
    Checks them now if others are staged by now, or none. Raises RuntimeError as ``update_weights``, also if the weights
    of the spec are of another version."""
    with _refusals(spec):
        done: Future[None] | None = None
        while done is None and engine.version != version:
            if engine.staged_version != version and (current := stage_weights(engine, spec)) != version:
                raise ValueError(f"these weights are {current} by now, not {version}")
            try:
                done = engine.commit(version)
            except ValueError:
                log.warning("another update staged or dropped weights: those of %s are checked again", version)
        if done is not None:
            done.result()
    return version


@contextlib.contextmanager
def _refusals(spec: str) -> Iterator[None]:
    """Context in which faults of a model and the end of the engine are raised as RuntimeError with the reason."""
    try:
        yield
    except (*MODEL_ERRORS, EngineClosed) as error:
        raise RuntimeError(f"{spec}: {error}") from error


def served_version(version: str, options: EngineOptions) -> str:
    """``version`` with the quantization or the reduced dtype appended (``V-int8``, ``V-bfloat16``), because rounded
    weights give other replies. Not for float64, whose weights are the same."""
    if options.quantization != "none":
        return f"{version}-{options.quantization}"
    return version if options.dtype == "float32" else f"{version}-{options.dtype}"


def _follow(engine: Engine, spec: str, every_s: float) -> None:
    """Load newer weights of ``spec`` while the engine accepts requests; those that somebody chose meanwhile stay until
    there are newer ones. Read errors are retried: a checkpoint may be deleted."""
    waiting, followed = threading.Event(), engine.version
    attempts: Counter[str] = Counter()
    while not waiting.wait(every_s) and engine.accepting:
        version = ""
        try:
            version = served_version(open_model(spec).version, engine.options)
            if version != followed and attempts[version] < MOST_ATTEMPTS:
                followed = update_weights(engine, spec)
                log.warning("weights are now those of %s", followed)
        except (RuntimeError, *MODEL_ERRORS) as error:
            attempts[version] += 1
            if not version:
                log.warning("newer weights could not be looked for: %s", error)
                continue
            last = attempts[version] >= MOST_ATTEMPTS
            after = f"the weights stay those of {engine.version} until there are others" if last else "trying again"
            log.warning("newer weights could not be taken over, %s: %s", after, error)
