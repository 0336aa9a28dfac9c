"""From a conversation in a request to what the model's chat template is shown, and from its errors to answers.

A template that knows tools gets them, calls and results as they are; for others calls are written out and tools are
described in the system turn. Knows nothing of tokens.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import replace

from lemur_ray.serve.engine.errors import ContextExceeded
from lemur_ray.serve.openai.checked_requests import Conversation
from lemur_ray.serve.openai.errors import ApiError
from lemur_ray.serve.openai.tools import Toolbox
from lemur_ray.serve.text_engine import TextEngine
from lemur_ray.text.chat import as_values
from lemur_ray.text.chat_template import Chat, TemplateError, TemplateMissing, TemplateUnusable
from lemur_ray.text.tools_in_words import OPEN, in_words


def shown_chat(served: TextEngine, asked: Conversation) -> Chat:
    """Raises TemplateMissing, TemplateUnusable."""
    given = asked.tools.given if asked.tools else ()
    messages = asked.messages
    if not served.template.knows_tools:
        messages, given = in_words(messages), ()
        messages = asked.tools.described(messages) if asked.tools else messages
    return Chat(as_values(messages), given, asked.documents, asked.prompts, asked.goes_on, asked.options)


def as_called(served: TextEngine, tools: Toolbox | None) -> Toolbox | None:
    """The tools of a request as calls of them are read. Raises TemplateMissing, TemplateUnusable."""
    if tools is None or not served.template.knows_tools or OPEN in served.template.source:
        return tools
    return replace(tools, bare=True)


async def prompt_of(served: TextEngine, asked: Conversation) -> tuple[int, ...]:
    """Ids of a conversation. Raises ApiError: 400 for what cannot be shown or cannot fit, 500 for a bad template."""
    with fitting("messages"):
        return await served.prompt(shown_chat(served, asked))


@contextlib.contextmanager
def fitting(param: str) -> Iterator[None]:
    """What does not fit the context, or the template, is a 400 about this parameter."""
    try:
        yield
    except ContextExceeded as error:
        raise ApiError(400, str(error), param=param, code="context_length_exceeded") from error
    except TemplateUnusable as error:
        raise ApiError(500, str(error), kind="server_error", code="chat_template_unusable") from error
    except TemplateMissing as error:
        raise ApiError(400, str(error), param=param, code="chat_template_missing") from error
    except TemplateError as error:
        raise ApiError(400, str(error), param=param, code="chat_template_error") from error
