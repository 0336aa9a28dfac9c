"""Why the engine does not answer a request. Knows nothing of HTTP."""

from __future__ import annotations


class EngineError(RuntimeError):
    """The engine did not take a request or lost it."""


class QueueFull(EngineError):
    """Too many requests wait already; ``retry_after_s`` is an estimate from the rate at which they are finished."""

    def __init__(self, waiting: int, retry_after_s: int):
        super().__init__(f"{waiting} requests are waiting already: try again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


class EngineClosed(EngineError):
    """The engine is draining, was closed, or died."""


class RequestFailed(EngineError):
    """The engine gave up one request, whose computation raised an error; the others go on."""


class RequestRefused(EngineError):
    """What the request asks for cannot be met, as turned out while it was answered."""


class ContextExceeded(EngineError):
    """Prompt and reply do not fit the context."""

    def __init__(self, prompt_tokens: int, max_tokens: int, context: int, *, at_least: bool = False):
        """at_least: the prompt was too long to be worth counting, it has prompt_tokens or more."""
        bound = "at least " if at_least else ""
        super().__init__(
            f"This model's maximum context length is {context} tokens. However, you requested {bound}"
            f"{prompt_tokens + max_tokens} tokens ({prompt_tokens} in the prompt, {max_tokens} in the completion)."
        )
