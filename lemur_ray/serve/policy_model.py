"""A model that is to be served here for a policy: all that it lacks, and what it bears, before anything is started.

Reads no weights. Knows nothing of benchmarks.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from lemur_ray.doctor.devices import Devices, machine_devices
from lemur_ray.doctor.machine import Machine
from lemur_ray.serve.config import ServeJob
from lemur_ray.serve.needs import NotServed, look_first
from lemur_ray.text.chat_template import Chat, TemplateError, TemplateMissing, TemplateUnusable
from lemur_ray.text.templates.template_files import template_of, template_source, with_template
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.weights.model_faults import inspect_model

_ELSEWHERE = " (flags of jobs/serve.py: serve it with them, and ask it with --policy openai:URL)"


@dataclass(frozen=True)
class PolicyModel:
    """``context``: tokens of a prompt and its reply together."""

    context: int
    tokenizer: Tokenizer

    def num_tokens(self, text: str) -> int:
        """Of a text; what a chat template writes around it comes on top."""
        return len(self.tokenizer.encode(text))


@lru_cache(maxsize=8)
def look_at_model(model: str, chat_template: str, chats: bool) -> PolicyModel:
    """``model``: as ``weights.open_model`` takes it. ``chat_template``: as --chat-template. ``chats``: whether it is
    asked for turns of a conversation, so that it needs a template.

    Raises NotServed.
    """
    lacking: list[str] = []
    context, tokenizer = 0, None
    try:
        shape = look_first(model, ServeJob(model=model, chat_template=chat_template), _devices())
        context, tokenizer = shape.config.max_seq_len, shape.tokenizer
    except NotServed as error:
        lacking += [f"{said}{_ELSEWHERE if '--' in said else ''}" for said in error.said]
        tokenizer = _tokenizer_of(model)
    source = None
    try:
        source = template_source(chat_template)
    except TemplateUnusable as error:
        lacking.append(str(error))
    if tokenizer is not None and source is not None:
        lacking += _of_template(tokenizer, source, chats)
    if lacking or tokenizer is None:
        raise NotServed(model, lacking)
    return PolicyModel(context, tokenizer)


def _tokenizer_of(model: str) -> Tokenizer | None:
    """Of a model that lacks something else: its template is looked at, too."""
    return inspect_model(model).tokenizer


def _of_template(tokenizer: Tokenizer, source: str, chats: bool) -> list[str]:
    try:
        template = template_of(with_template(tokenizer, source) if source else tokenizer)
        template.render([Chat([{"role": "user", "content": "Hello."}], add_generation_prompt=True)])
    except TemplateMissing as error:
        return [str(error)] if chats else []
    except TemplateUnusable as error:
        return [str(error)]
    except TemplateError:  # it may take other conversations
        return []
    except ValueError as error:
        return [str(error)]
    return []


def _devices() -> Devices:
    """Of this machine, where no other cluster is named; what others have is known only where Ray runs."""
    if os.environ.get("RAY_ADDRESS"):
        return Devices(float("inf"), 2**20, 2**20, in_cluster=True)
    return machine_devices(Machine(Path(__file__).resolve().parents[2]))
