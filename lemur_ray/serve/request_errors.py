"""How each error of a request is answered, over HTTP and by Ray handle. Knows nothing of where errors are raised."""

from typing import Literal, NamedTuple

from lemur_ray.serve.engine import errors
from lemur_ray.serve.engine.errors import EngineError
from lemur_ray.text.chat_template import TemplateError, TemplateMissing, TemplateUnusable


class ErrorForm(NamedTuple):
    """The form of the answer to an error, whose text is the message: over HTTP (``status``, ``kind``, ``code``) and by
    Ray handle (``refusal``)."""

    refusal: Literal["context", "busy", "closed", "invalid"]
    """Field ``refused`` of the answer by Ray handle"""
    status: int
    """HTTP status; ``kind`` and ``code`` are ``type`` and ``code`` of OpenAI's error object"""
    kind: str = "invalid_request_error"
    code: str | None = "invalid_value"


_FORMS: dict[type[Exception], ErrorForm] = {
    errors.ContextExceeded: ErrorForm("context", 400, code="context_length_exceeded"),
    errors.QueueFull: ErrorForm("busy", 429, "rate_limit_error", "rate_limit_exceeded"),
    errors.RequestRefused: ErrorForm("invalid", 400),
    errors.RequestFailed: ErrorForm("closed", 500, "server_error", None),
    errors.EngineClosed: ErrorForm("closed", 503, "server_error", "service_unavailable"),
    TemplateUnusable: ErrorForm("invalid", 500, "server_error", "chat_template_unusable"),
    TemplateMissing: ErrorForm("invalid", 400, code="chat_template_missing"),
    TemplateError: ErrorForm("invalid", 400, code="chat_template_error"),
    ValueError: ErrorForm("invalid", 400),
}
REQUEST_ERRORS = (EngineError, ValueError)


def error_form(error: EngineError | ValueError) -> ErrorForm:
    """Form of the answer to an error: that of its class, or of the nearest base class that has one."""
    return next(_FORMS[kind] for kind in type(error).__mro__ if kind in _FORMS)
