"""ChatML: messages to ids, and which of them are trained (paper A.2; the serving side uses the same function).

Each turn is ``<|im_start|>role\\n``, the stripped content, ``<|im_end|>\\n``; BOS once in front. Trained are the
assistant's content, its ``<|im_end|>`` and the newline after it. Every segment is tokenised by itself, so no boundary
depends on what stands beside it. Knows nothing of models or of data sets.
"""

from __future__ import annotations

from collections.abc import Sequence

from lemur_ray.agents.messages import Message
from lemur_ray.text.tokenizer import Tokenizer

TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + (message['content'] | trim) + "
    "'<|im_end|>' + '\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
"""The same template in Jinja, for exported tokenizers."""


def encode_chat(
    tokenizer: Tokenizer, messages: Sequence[Message], max_tokens: int | None = None
) -> tuple[list[int], list[bool]]:
    """Ids of a conversation and, per id, whether it is trained; cut on the right at ``max_tokens``."""
    ids, trained = [tokenizer.bos_id], [False]
    for message in messages:
        head = _header(tokenizer, message.role)
        body = [*tokenizer.encode(message.content.strip()), *_end(tokenizer)]
        ids += head + body
        trained += [False] * len(head) + [message.role == "assistant"] * len(body)
    return ids[:max_tokens], trained[:max_tokens]


def encode_prompt(tokenizer: Tokenizer, messages: Sequence[Message]) -> list[int]:
    """Ids of a conversation that asks for the next assistant turn."""
    return encode_chat(tokenizer, messages)[0] + _header(tokenizer, "assistant")


def encode_dialogue(tokenizer: Tokenizer, turns: Sequence[Message | Sequence[int]]) -> list[int]:
    """``encode_prompt`` where some turns are ids: the content of an assistant turn as the model itself generated it."""
    ids = [tokenizer.bos_id]
    for turn in turns:
        role, content = (
            (turn.role, tokenizer.encode(turn.content.strip())) if isinstance(turn, Message) else ("assistant", turn)
        )
        ids += [*_header(tokenizer, role), *content, *_end(tokenizer)]
    return ids + _header(tokenizer, "assistant")


def render(messages: Sequence[Message]) -> str:
    """The conversation as text, without BOS."""
    return "".join(f"<|im_start|>{m.role}\n{m.content.strip()}<|im_end|>\n" for m in messages)


def _header(tokenizer: Tokenizer, role: str) -> list[int]:
    return [tokenizer.im_start_id, *tokenizer.encode(f"{role}\n")]


def _end(tokenizer: Tokenizer) -> list[int]:
    return [tokenizer.im_end_id, *tokenizer.encode("\n")]
