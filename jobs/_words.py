"""What the tokenizer of the embedded corpus reads besides it: the agents' games and chats, which must tokenise well."""

import _path  # noqa: F401

import itertools

from envs.alfworld.demonstrations import demonstrations
from lemur_ray.instruct.code_chats import code_chats, standard_library


def agent_texts(games: int = 300, chats: int = 100) -> list[str]:
    """Chat headers and contents of expert games and of questions about code."""
    talks = [messages for _, messages in demonstrations(games)]
    talks += [chat.messages for chat in itertools.islice(code_chats(standard_library()), chats)]
    return [text for messages in talks for message in messages for text in (f"{message.role}\n", message.content)]
