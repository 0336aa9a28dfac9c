"""Encoding of chats as token ids: prompts, training conversations, and dialogues with known ids of the model.

Training, serving and evaluation share it: the chat template renders the whole chat, and the tokenizer encodes the text
once, as ``transformers`` does. Special tokens spelled in a message are ordinary text. If no template is passed, that of
the tokenizer is used."""

import bisect
import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tokenizers import Encoding

from lemur_ray.agents.messages import Message
from lemur_ray.text.chat_template import Chat, ChatTemplate, Span, TemplateError
from lemur_ray.text.marked_text import Disguise, iter_texts, marked_text
from lemur_ray.text.templates.template_files import template_of
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.text.tool_results import sort_results_by_call
from lemur_ray.text.tools_in_words import arguments_of, describe_tools, spell_out_calls, tool_function


def encode_chat(
    tokenizer: Tokenizer,
    messages: Sequence[Message],
    max_tokens: int | None = None,
    tools: Sequence[Mapping[str, Any]] = (),
) -> tuple[list[int], list[bool]]:
    """(token ids of a training conversation, whether each is trained), both cut on the right at ``max_tokens`` (None:
    not cut). The assistant's messages are trained, except those with weight 0. tools: the offered tools, as in
    ``Chat``. Raises TemplateError if the template cannot render the conversation, and as ``template_of``."""
    template = template_of(tokenizer)
    marked, chat = marked_text(tokenizer), training_chat(template, messages, tools)
    disguise = marked.disguise(iter_texts([chat.messages, chat.tools]))
    text, spans = template.render_with_spans(_disguised(chat, disguise), disguise.characters)
    spans = _trained_spans(spans, messages)
    encoding = marked.encode(text, disguise)
    return encoding.ids[:max_tokens], _overlaps(encoding, spans)[:max_tokens]


class Prompt:
    """A chat rendered as text; ``ids`` encodes it, ``least_tokens`` is a lower bound of their number."""

    def __init__(self, tokenizer: Tokenizer, chat: Chat, template: ChatTemplate | None = None):
        """Render ``chat``. Raises TemplateError if the template rejects the chat."""
        self._marked = marked_text(tokenizer)
        self._disguise = self._marked.disguise(iter_texts([chat.messages, chat.tools, chat.documents, chat.options]))
        template = template or template_of(tokenizer)
        (self._text,) = template.render([_disguised(chat, self._disguise)], self._disguise.characters)

    def least_tokens(self, longest: int) -> int:
        """Lower bound on the number of ids. longest: maximum bytes of text of an ordinary token."""
        return self._marked.least_tokens(self._text, self._disguise, longest)

    def ids(self) -> list[int]:
        return self._marked.encode(self._text, self._disguise).ids


def encode_dialogue(
    tokenizer: Tokenizer,
    turns: Sequence[Message | Sequence[int]],
    template: ChatTemplate | None = None,
    tools: Sequence[Mapping[str, Any]] = (),
) -> list[int]:
    """Token ids of a prompt in which some assistant turns are passed as the ids that the model generated. Those ids are
    inserted unchanged; the text around them is encoded as part of the whole. ``tools``: offered tools; the template
    (None: the tokenizer's) must know tools. Raises TemplateError if it rejects the messages, and as ``template_of``."""
    template, marked = template or template_of(tokenizer), marked_text(tokenizer)
    id_turns = [turn for turn in turns if not isinstance(turn, Message)]
    messages = template_messages([turn if isinstance(turn, Message) else Message("assistant", "") for turn in turns])
    disguise = marked.disguise(iter_texts([messages, tools] if tools else messages), len(id_turns))
    marks = iter(disguise.marks)
    rendered = [
        disguise.apply(message) if isinstance(turn, Message) else {**message, "content": next(marks)}
        for turn, message in zip(turns, messages, strict=True)
    ]
    try:
        around = _texts_around(template, Chat(rendered, disguise.apply(tools), add_generation_prompt=True), disguise)
    except _RenderedDifferently as error:  # fall back to the text of those ids
        turn = Message("assistant", _text(tokenizer, turns[error.number]))  # type: ignore[arg-type]
        return encode_dialogue(tokenizer, [*turns[: error.number], turn, *turns[error.number + 1 :]], template, tools)
    pieces = [around[0]]
    for ids, after in zip(id_turns, around[1:], strict=True):
        pieces += [disguise.apply(_text(tokenizer, ids)), after]
    out: list[int] = []
    for number, part in enumerate(_parts(marked.encode("".join(pieces), disguise), pieces)):
        if number % 2:
            out += id_turns[number // 2]
        else:  # if a token crosses a border, the text around ids is encoded separately
            out += marked.encode(pieces[number], disguise).ids if part is None else part
    return out


def training_chat(template: ChatTemplate, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = ()) -> Chat:
    """Input of ``template`` for a training conversation: tool results are sorted in the order of their calls, and for a
    template that does not support tools, tools and calls become text."""
    messages = sort_results_by_call(messages)
    if not template.knows_tools:
        messages = spell_out_calls(messages)
        messages, tools = describe_tools(messages, list(map(tool_function, tools))) if tools else messages, ()
    return Chat(template_messages(messages), tools)


def template_messages(messages: Iterable[Message]) -> list[dict[str, Any]]:
    """Messages as dicts for a template: arguments of tool calls are parsed if they are JSON objects, and a turn
    that only calls tools has no content."""
    return [_as_value(message) for message in messages]


def _as_value(message: Message) -> dict[str, Any]:
    value = message.to_json()
    value.pop("weight", None)
    for call, written in zip(message.tool_calls, value.get("tool_calls", ()), strict=True):
        if (arguments := arguments_of(call)) is not None:
            written["function"]["arguments"] = arguments
    if message.tool_calls and not message.content:
        del value["content"]
    return value


def _disguised(chat: Chat, disguise: Disguise) -> Chat:
    texts = ("messages", "tools", "documents", "options")
    return replace(chat, **{name: disguise.apply(getattr(chat, name)) for name in texts})


def _trained_spans(spans: list[Span], messages: Sequence[Message]) -> list[Span]:
    """The assistant's spans without those of messages with weight 0. Raises TemplateError if numbers differ."""
    weights = [message.weight for message in messages if message.role == "assistant"]
    if all(weights):
        return spans
    if len(spans) != len(weights):
        raise TemplateError(
            f"the chat template marks {len(spans)} texts as the assistant's in {len(weights)} messages, so those "
            "without a weight cannot be told from the rest"
        )
    return [span for span, weight in zip(spans, weights, strict=True) if weight]


def _overlaps(encoding: Encoding, spans: Sequence[Span]) -> list[bool]:
    """For each token, whether it overlaps one of the spans (character ranges of the text)."""
    begins, ends = [begin for begin, _ in encoding.offsets], [end for _, end in encoding.offsets]
    marks = [False] * len(encoding.ids)
    for begin, end in spans:
        first, behind = bisect.bisect_right(ends, begin), bisect.bisect_left(begins, end)
        marks[first:behind] = [True] * (behind - first)
    return marks


def _text(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    known = range(tokenizer.vocab_size)
    own = (tokenizer.token_bytes(i) for i in ids if i in known and i not in tokenizer.special_ids)
    return b"".join(own).decode(errors="replace")


def _parts(encoding: Encoding, pieces: Sequence[str]) -> list[list[int] | None]:
    """Ids of each of the pieces whose concatenation was encoded; a list of None if a token spans two pieces."""
    begins, cuts = [begin for begin, _ in encoding.offsets], [0]
    for end in itertools.accumulate(map(len, pieces)):
        at = bisect.bisect_left(begins, end)
        if at and encoding.offsets[at - 1][1] > end:
            return [None] * len(pieces)
        cuts.append(at)
    return [encoding.ids[begin:end] for begin, end in itertools.pairwise(cuts)]


class _RenderedDifferently(Exception):
    """The template does not print turn ``number`` (from 0) exactly once, unchanged and in order."""

    def __init__(self, number: int):
        super().__init__(number)
        self.number = number


def _texts_around(template: ChatTemplate, chat: Chat, disguise: Disguise) -> list[str]:
    """Texts that the template prints before, between and after the turns whose content is a mark of ``disguise``.
    Generation starts at the end of a prompt. If the template prints blanks between that position and the text of the
    turn, they are omitted, because the generated ids contain their own."""
    contents = [message.get("content") for message in chat.messages]
    where = {mark: contents.index(mark) for mark in disguise.marks}
    chats = [chat, *(replace(chat, messages=chat.messages[:i]) for i in where.values())]
    text, *prompts = template.render(chats, disguise.characters)
    around, done = [], 0
    for (mark, i), prompt in zip(where.items(), prompts, strict=True):
        at = text.find(mark)
        if at < 0 or text.find(mark, at + 1) >= 0 or at < done:
            raise _RenderedDifferently(i)
        prompt_end = len(prompt)
        blank = text.startswith(prompt) and not text[prompt_end:at].strip()
        around.append(text[done : prompt_end if blank else at])
        done = at + 1
    return [*around, text[done:]]
