"""Games and chats of the agents: what a model is tuned on, and what the demo's corpus knows of them."""

import _path  # noqa: F401

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from envs.alfworld.demonstrations import demonstrations
from envs.alfworld.games.catalogue import class_names
from lemur_ray.home import resolve_out
from lemur_ray.instruct.readers.code_chats import code_chats, standard_library
from lemur_ray.instruct.conversation import Conversation, read_conversations


def conversations(games: int, chats: int, files: Sequence[str] = ()) -> Iterator[Conversation]:
    """Expert games, questions about functions of the standard library, then what JSON lines files hold."""
    for name, messages in demonstrations(games):
        yield Conversation("alfworld", name, messages)
    yield from itertools.islice(code_chats(standard_library()), chats)
    for file in files:
        yield from read_conversations(resolve_out(file, ""))


def instruction_table(job: Any, shelf: str, tokenizer: Any) -> Path | str:
    """The table of a job, in ``shelf``: of its sets, else of games, questions and files; rows for whole passes."""
    from lemur_ray.instruct.config import SET_NAMES
    from lemur_ray.instruct.pipeline import build_sets
    from lemur_ray.instruct.table import build_table
    from lemur_ray.instruct.epochs import whole_epochs
    from lemur_ray.train.pod.placement import batch_parts

    seq_len, rows = job.recipe.data.seq_len, whole_epochs(job.recipe, batch_parts(job.recipe.mesh))
    if job.sets.files:
        if job.conversations:
            raise ValueError("--conversations joins the games and chats: leave it out with --oasst1 and the other sets")
        names = (*SET_NAMES, "decontaminate")
        found = {name: tuple(resolve_out(file, "") for file in getattr(job.sets, name)) for name in names}
        return build_sets(replace(job.sets, **found), tokenizer, shelf, seq_len=seq_len, num_rows=rows)[0]
    talks = conversations(job.games, job.chats, job.conversations)
    folder, manifest = build_table(talks, tokenizer, shelf, seq_len=seq_len, num_rows=rows)
    print(f"conversations: {json.dumps(manifest['counts'])}", flush=True)
    return folder


def demo_corpus(config: Any) -> dict[str, Any]:
    """The demo's corpus for ``corpus.build``: in a game's words a thing and its number are two tokens."""
    return {"config": replace(config, word_pattern=config.word_pattern or "numbered"), "extra_texts": agent_texts()}


def agent_texts(games: int = 300, chats: int = 100) -> list[str]:
    """Chat headers and contents of expert games and questions about code, and the games' nouns, rare ones as often: a
    small model finds a thing in a list much sooner if it need not spell it."""
    talks = [messages for _, messages in demonstrations(games)]
    talks += [chat.messages for chat in itertools.islice(code_chats(standard_library()), chats)]
    texts = [text for talk in talks for message in talk for text in (f"{message.role}\n", message.content)]
    return texts + [", ".join(f"a {name} 1" for name in class_names())] * games
