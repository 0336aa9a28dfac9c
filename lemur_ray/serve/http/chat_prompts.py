"""The prompt of a conversation in a request, as the model's chat template renders it.

A template that knows tools gets them, calls and results as they are; for others, calls are written as text and tools
are described in the system turn. Knows nothing of tokens."""

from dataclasses import replace

from lemur_ray.serve.http.error_answers import errors_about
from lemur_ray.serve.openai.checked_requests import Conversation
from lemur_ray.serve.openai.tools import Toolbox
from lemur_ray.serve.text_engine import TextEngine
from lemur_ray.text.chat import template_messages
from lemur_ray.text.chat_template import Chat
from lemur_ray.text.tools_in_words import spell_out_calls


def template_input(served: TextEngine, conversation: Conversation) -> Chat:
    """A request's conversation in the form that the model's chat template renders: for a template that knows no tools,
    calls become text and the tools a part of the system turn. Raises TemplateMissing if the model has no template,
    TemplateUnusable if it is invalid."""
    body, messages, toolbox = conversation.body, conversation.messages, conversation.tools
    tools = toolbox.raw if toolbox else ()
    if not served.template.knows_tools:
        messages, tools = spell_out_calls(messages), ()
        messages = toolbox.described(messages) if toolbox else messages
    endings = body.add_generation_prompt, body.continue_final_message
    return Chat(template_messages(messages), tools, tuple(body.documents), *endings, body.chat_template_kwargs)


def reply_tools(served: TextEngine, tools: Toolbox | None) -> Toolbox | None:
    """``tools``, marked ``bare`` if the template shows tools without tags around calls; None stays None. Raises
    TemplateMissing if the model has no template, TemplateUnusable if it is invalid."""
    return replace(tools, bare=True) if tools and served.calls_are_bare else tools


async def chat_prompt(served: TextEngine, conversation: Conversation) -> tuple[int, ...]:
    """Token ids of a conversation's prompt. Raises ApiError: 400 if the template cannot render it or it exceeds the
    context, 500 for a broken template."""
    with errors_about("messages"):
        return await served.prompt(template_input(served, conversation))
