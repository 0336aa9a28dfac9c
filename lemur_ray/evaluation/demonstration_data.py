"""Instruction data of an expert's games and questions about code, and the inputs of corpora that need it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from lemur_ray.benchmarks.discovery import find
from lemur_ray.evaluation.benchmark_texts import benchmark_texts
from lemur_ray.host.home import resolve_out
from lemur_ray.instruct.conversation import Conversation, read_conversations
from lemur_ray.instruct.readers.code_chats import code_chats, standard_library

GAMES = "alfworld/text"


def conversations(games: int, chats: int, files: Sequence[str] = ()) -> Iterator[Conversation]:
    """Yield ``games`` expert games, ``chats`` questions about standard library functions, then those of ``files``."""
    expert = find(GAMES).details.demonstrations(games)
    yield from (Conversation("alfworld", name, tuple(messages)) for name, messages in expert)
    yield from itertools.islice(code_chats(standard_library()), chats)
    yield from itertools.chain.from_iterable(read_conversations(resolve_out(file, "")) for file in files)


def corpus_inputs(config: Any, say: Callable[[str], None] = print) -> dict[str, Any]:
    """Keywords of ``corpus.build``: the demo's without sources of the user; with the benchmarks' texts if asked for."""
    inputs = {"config": config} if config.specs() else demo_corpus(config)
    return {**inputs, "benchmarks": benchmark_texts(say)} if config.decontaminate else inputs


def demo_corpus(config: Any) -> dict[str, Any]:
    """Keywords of ``corpus.build`` for the demo's corpus, with agents' texts, and numbers as separate tokens."""
    return {"config": replace(config, word_pattern=config.word_pattern or "numbered"), "extra_texts": agent_texts()}


def agent_texts(games: int = 300, chats: int = 100) -> list[str]:
    """Texts of expert games and questions about code, and the games' nouns equally often, so that each becomes a token:
    a small model copies an object's name from a list much better if it need not spell it."""
    talks = [talk.messages for talk in conversations(games, chats)]
    texts = [text for talk in talks for message in talk for text in (f"{message.role}\n", message.content)]
    return texts + [", ".join(f"a {name} 1" for name in find(GAMES).details.vocabulary())] * games
