"""Errors of the engine: reasons why a request is not answered. Knows nothing of HTTP."""


class EngineError(RuntimeError):
    """Base of the engine's errors: a request was not accepted, or could not be completed."""


class QueueFull(EngineError):
    """The queue is full; ``retry_after_s`` is an estimate from the rate of finished requests."""

    def __init__(self, waiting: int, retry_after_s: int):
        super().__init__(f"{waiting} requests are waiting already: try again in {retry_after_s} s")
        self.retry_after_s = retry_after_s


class EngineClosed(EngineError):
    """The engine is draining, has been closed, or has died."""


class WeightsNotReplaced(EngineError, ValueError):
    """New weights could not be read when they were to be used; the old ones are whole and in use."""


class RequestFailed(EngineError):
    """The computation of this request raised an error; the other requests go on."""


class RequestRefused(EngineError):
    """The request proved impossible while its reply was generated, for example by an unsatisfiable constraint."""


class ContextExceeded(EngineError):
    """Prompt and reply together are longer than the model's context."""

    def __init__(self, prompt_tokens: int, max_tokens: int, context: int, *, at_least: bool = False):
        """Counts in tokens. at_least: prompt_tokens is a lower bound, because a prompt that is far too long is not
        tokenised to its end."""
        bound = "at least " if at_least else ""
        super().__init__(
            f"This model's maximum context length is {context} tokens. However, you requested {bound}"
            f"{prompt_tokens + max_tokens} tokens ({prompt_tokens} in the prompt, {max_tokens} in the completion)."
        )
