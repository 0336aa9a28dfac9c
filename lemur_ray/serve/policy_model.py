"""Check of a model that will be served for a policy: its faults, or its context and tokenizer.

Reads no weights. Knows nothing of benchmarks."""

import os
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from lemur_ray.doctor.devices import Devices, machine_devices
from lemur_ray.doctor.machine import Machine
from lemur_ray.serve.config import ServeJob
from lemur_ray.serve.needs import NotServed, check_job
from lemur_ray.text.chat_template import Chat, TemplateError, TemplateMissing, TemplateUnusable
from lemur_ray.text.templates.template_files import template_of, template_source, with_template
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.weights.model_faults import inspect_model

_SERVE_HINT = " (flags of jobs/serve.py: serve it with them, and ask it with --policy openai:URL)"


@dataclass(frozen=True)
class PolicyModel:
    """Context and tokenizer of a policy's model. ``context``: maximum number of tokens of a prompt and its reply."""

    context: int
    tokenizer: Tokenizer

    def num_tokens(self, text: str) -> int:
        """Number of tokens of a text, without those that a chat template adds."""
        return len(self.tokenizer.encode(text))


@lru_cache(maxsize=8)
def check_policy_model(model: str, chat_template: str, chats: bool) -> PolicyModel:
    """Check a model that will be served for a policy; returns its context and tokenizer. Raises NotServed with every
    fault. The last eight results are cached. model: as in ``weights.open_model``. chat_template: file or name as of
    --chat-template. chats: whether the policy sends conversations, which need a template."""
    faults: list[str] = []
    context, tokenizer = 0, None
    try:
        opened = check_job(model, ServeJob(model=model, chat_template=chat_template), _devices())
        assert opened is not None, "only vLLM's models have no config"
        context, tokenizer = opened[0].max_seq_len, opened[1]
    except NotServed as error:
        faults += [f"{fault}{_SERVE_HINT if '--' in fault else ''}" for fault in error.faults]
        tokenizer = inspect_model(model).tokenizer  # its template is checked too
    source = None
    try:
        source = template_source(chat_template)
    except TemplateUnusable as error:
        faults.append(str(error))
    if tokenizer is not None and source is not None:
        faults += _template_faults(tokenizer, source, chats)
    if faults or tokenizer is None:
        raise NotServed(model, faults)
    return PolicyModel(context, tokenizer)


def _template_faults(tokenizer: Tokenizer, source: str, chats: bool) -> list[str]:
    try:
        template = template_of(with_template(tokenizer, source) if source else tokenizer)
        template.render([Chat([{"role": "user", "content": "Hello."}], add_generation_prompt=True)])
    except TemplateMissing as error:
        return [str(error)] if chats else []
    except TemplateUnusable as error:
        return [str(error)]
    except TemplateError:  # other conversations may work
        return []
    except ValueError as error:
        return [str(error)]
    return []


def _devices() -> Devices:
    """Devices of this machine; unlimited if RAY_ADDRESS names a cluster, whose devices only Ray knows."""
    if os.environ.get("RAY_ADDRESS"):
        return Devices(float("inf"), 2**20, 2**20, in_cluster=True)
    return machine_devices(Machine(Path(__file__).resolve().parents[2]))
