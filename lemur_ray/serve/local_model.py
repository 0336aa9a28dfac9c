"""A model in this process, for scripts and notebooks: loaded once, asked by a call, and a policy of evaluations."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from lemur_ray.agents.handle_policy import HandlePolicy
from lemur_ray.agents.messages import ChatRequest, Message, Sampling
from lemur_ray.host.home import find_model
from lemur_ray.serve.config import BY_MACHINE, EngineOptions
from lemur_ray.serve.loading import load_text_engine
from lemur_ray.serve.token_requests import converse


class LocalModel(HandlePolicy):
    """A chat model on this process's devices, also a policy for evaluations. Thread-safe; concurrent requests share
    batches. Starts threads, which ``close`` ends."""

    def __init__(self, model: str, options: EngineOptions | None = None, chat_template: str = "") -> None:
        """Load and compile the model, with the arguments and errors of ``load_model``."""
        self.engine = load_text_engine(find_model(model, buckets=True), options, template=chat_template)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="local-model", daemon=True)
        self._thread.start()
        version = self.engine.engine.version  # in the name, so that other weights are another policy
        super().__init__(self._converse, f"{self.engine.name}@{version}" if version else self.engine.name)

    def chat(self, messages: str | Sequence[Mapping[str, Any] | Message], **sampling: Any) -> str:
        """Text of the reply to a conversation, or to one user message given as a str. Blocks until it is complete.
        sampling: fields of ``Sampling`` (max_tokens, by default 256; temperature, top_p, top_k, seed, stop). Raises
        ContextOverflow if the conversation is too long, PolicyUnreachable if the engine has ended."""
        if isinstance(messages, str):
            messages = [Message("user", messages)]
        parsed = tuple(one if isinstance(one, Message) else Message.from_json(one) for one in messages)
        return self.reply(ChatRequest(parsed, Sampling(**{"max_tokens": 256, **sampling}))).text

    def close(self) -> None:
        """Free the model's memory; later requests are refused. Safe to call twice."""
        self.engine.engine.close()
        if self._loop.is_closed():
            return
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _converse(self, request: Mapping[str, Any], timeout_s: float) -> Mapping[str, Any]:
        return asyncio.run_coroutine_threadsafe(converse(self.engine, request), self._loop).result(timeout_s)


def load_model(model: str, *, chat_template: str = "", **options: Any) -> LocalModel:
    """Load a chat model into this process and return it ready (may take minutes). model: a run folder or its name under
    LEMUR_HOME/runs, a Hugging Face folder, or an address in a bucket. options: fields of ``EngineOptions`` (dtype,
    quantization, max_slots, ...), by default chosen for the machine. chat_template: text of the template, "": the
    model's own. Raises RuntimeError with the reason if the model cannot be served, ValueError if there is none."""
    return LocalModel(model, replace(BY_MACHINE, **options), chat_template)
