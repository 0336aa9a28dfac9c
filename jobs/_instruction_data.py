"""Conversations for instruction tuning (expert games, questions about code), and their words for the demo's corpus."""

import _path  # noqa: F401

import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from envs.alfworld.expert import demonstrations
from envs.alfworld.games.catalogue import class_names
from lemur_ray.host.home import resolve_out
from lemur_ray.instruct.readers.code_chats import code_chats, standard_library
from lemur_ray.instruct.conversation import Conversation, read_conversations


def conversations(games: int, chats: int, files: Sequence[str] = ()) -> Iterator[Conversation]:
    """Yield ``games`` expert games, ``chats`` questions about standard library functions, then those of ``files``."""
    yield from (Conversation("alfworld", name, messages) for name, messages in demonstrations(games))
    yield from itertools.islice(code_chats(standard_library()), chats)
    yield from itertools.chain.from_iterable(read_conversations(resolve_out(file, "")) for file in files)


def instruction_table(job: Any, out: str, init_from: str) -> str:
    """Build the instruction table of a job from its ``sets``, or from games, questions and files. Returns its
    folder."""
    from lemur_ray.instruct.chat_tokens import with_chat_format
    from lemur_ray.instruct.config import SET_NAMES
    from lemur_ray.instruct.pipeline import build_sets
    from lemur_ray.instruct.table import build_table
    from lemur_ray.instruct.epochs import whole_epochs
    from lemur_ray.train.pod.placement import batch_parts
    from lemur_ray.weights.open_model import load_tokenizer

    shelf = resolve_out(f"{out}/table" if "://" in out else f"instruct/{job.recipe.name}", "")
    recipe, tokenizer = job.recipe, with_chat_format(load_tokenizer(init_from), job.chat_template)
    shape = {"seq_len": recipe.data.seq_len, "num_rows": whole_epochs(recipe, batch_parts(recipe.mesh))}
    if job.sets.files:
        files = {name: getattr(job.sets, name) for name in (*SET_NAMES, "decontaminate")}
        found = {name: tuple(resolve_out(file, "") for file in listed) for name, listed in files.items()}
        return str(build_sets(replace(job.sets, **found), tokenizer, shelf, **shape)[0])
    talks = conversations(job.games, job.chats, job.conversations)
    folder, manifest = build_table(talks, tokenizer, shelf, **shape)
    print(f"conversations: {json.dumps(manifest['counts'])}", flush=True)
    return str(folder)


def demo_corpus(config: Any) -> dict[str, Any]:
    """Keywords of ``corpus.build`` for the demo's corpus, with agents' texts, and numbers as separate tokens."""
    return {"config": replace(config, word_pattern=config.word_pattern or "numbered"), "extra_texts": agent_texts()}


def agent_texts(games: int = 300, chats: int = 100) -> list[str]:
    """Texts of expert games and questions about code, and the games' nouns equally often, so that each becomes a token:
    a small model copies an object's name from a list much better if it need not spell it."""
    code = (chat.messages for chat in itertools.islice(code_chats(standard_library()), chats))
    talks = [*(messages for _, messages in demonstrations(games)), *code]
    texts = [text for talk in talks for message in talk for text in (f"{message.role}\n", message.content)]
    return texts + [", ".join(f"a {name} 1" for name in class_names())] * games
