"""Instruction data of an expert's games and questions about code, and the inputs of corpora that need it."""

import functools
import itertools
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from lemur_ray.benchmarks.contract import Benchmark, EvaluationRequest
from lemur_ray.benchmarks.discovery import find, offers
from lemur_ray.host.home import outside_data, resolve_out
from lemur_ray.host.json_files import strings_in
from lemur_ray.instruct.config import TalksConfig
from lemur_ray.instruct.conversation import Conversation, checked_conversations
from lemur_ray.instruct.readers.code_chats import code_chats, standard_library

GAMES = "alfworld/text"
_MAX_INVALID = 5
"""Invalid rows of chat files that an error names."""
_TEXT_GAMES = 300
"""Games of the demo's corpus."""


def conversations(games: int, chats: int, slips: float = 0.0) -> Iterator[Conversation]:
    """Yield ``games`` games played by an expert, then ``chats`` questions about standard library functions with
    answers. ``slips``: share (0 to 1) of the games' turns with a mistake before them."""
    expert = find(GAMES).details.demonstrations(games, slips)
    yield from (Conversation("alfworld", name, tuple(messages)) for name, messages in expert)
    yield from itertools.islice(code_chats(standard_library()), chats)


@functools.lru_cache(maxsize=1)
def own_conversations(files: Sequence[str]) -> tuple[Conversation, ...]:
    """The conversations in the user's chat files, in order; empty without files. The last result is cached, so
    ``files`` must be a tuple (paths or URLs, relative ones below LEMUR_HOME). Raises ValueError that names the first
    invalid rows, or if the files have no row at all; OSError, ReadFailure for an unreadable file."""
    talks: list[Conversation] = []
    invalid: list[ValueError] = []
    for file in files:
        for one in checked_conversations(resolve_out(file, "")):
            (invalid if isinstance(one, ValueError) else talks).append(one)  # type: ignore[arg-type]
    if invalid:
        more = f"\n- and {len(invalid) - _MAX_INVALID} more rows" if len(invalid) > _MAX_INVALID else ""
        raise ValueError("\n- ".join(map(str, invalid[:_MAX_INVALID])) + more)
    if files and not talks:
        raise ValueError(f"--conversations {' '.join(files)}: no conversation in them")
    return tuple(talks)


def conversations_of(talks: TalksConfig) -> Iterator[Conversation]:
    """Yield the conversations to tune on: generated ones, without files or with ``demo``, then those in the user's
    files. talks: names the files and the numbers of generated ones. Errors as ``own_conversations``."""
    if talks.demo or not talks.conversations:
        yield from conversations(talks.games, talks.chats, talks.slips)
    yield from own_conversations(talks.conversations)


def corpus_inputs(config: Any) -> dict[str, Any]:
    """Keyword arguments of ``corpus.build`` for ``config`` (a corpus configuration), or the demo's corpus if it names
    no sources; with the texts of all benchmarks if the config asks for decontamination: one that cannot be loaded is
    left out, and printed."""
    inputs = {"config": config} if config.specs() else demo_corpus(config)
    return {**inputs, "benchmarks": _benchmark_texts()} if config.decontaminate else inputs


def _benchmark_texts() -> dict[str, list[str]]:
    """Questions and reference answers of each benchmark by its name, with the downloaded data of ``$LEMUR_DATA`` if
    that is set. Prints a message for each benchmark that cannot be loaded, which is left out."""
    data = outside_data(os.environ.get("LEMUR_DATA", ""))
    texts: dict[str, list[str]] = {}
    missing = []
    for offer in offers():
        try:
            if offer.benchmark is None:
                raise ValueError(offer.why)
            texts[offer.name] = _texts(offer.benchmark, EvaluationRequest(data))
        except (Exception, SystemExit) as error:  # an installed package may raise anything
            missing.append(offer.name)
            print(f"decontamination: {offer.name} is left out: {' '.join(str(error).split())[:200]}")
    print(f"decontamination: {len(texts)} benchmarks, {len(missing)} left out")
    return texts


def _texts(benchmark: Benchmark[object], request: EvaluationRequest) -> list[str]:
    limit = benchmark.default_limit or None
    texts: dict[str, None] = {}
    for task in itertools.islice(benchmark.load(benchmark.options(), request), limit):
        texts[benchmark.details.opening(task)] = None
        texts |= dict.fromkeys(strings_in(dict(task.options)))
    return list(texts)


def demo_corpus(config: Any) -> dict[str, Any]:
    """Arguments of ``corpus.build`` for the demo: ``config`` with numbers as separate tokens; texts of expert games."""
    return {"config": replace(config, word_pattern=config.word_pattern or "numbered"), "extra_texts": agent_texts()}


def agent_texts() -> list[str]:
    """Texts of 300 expert games and 100 questions about code, then the games' nouns equally often, so that
    each becomes one token: a small model copies an object's name from a list much better if it need not spell it."""
    talks = [talk.messages for talk in conversations(_TEXT_GAMES, 100)]
    texts = [text for talk in talks for message in talk for text in (f"{message.role}\n", message.content)]
    return texts + [", ".join(f"a {name} 1" for name in find(GAMES).details.vocabulary())] * _TEXT_GAMES


def table_shelf(job: Any, out: str) -> str:
    """Path or URL of the folder in which a tuning job builds its instruction tables (tokenised conversations):
    ``table`` in the run folder ``out`` if that is a URL, else ``instruct/RECIPE`` in LEMUR_HOME. job: has a
    ``recipe``. Creates nothing."""
    return resolve_out(f"{out}/table" if "://" in out else f"instruct/{job.recipe.name}", "")


def make_table(
    job: Any, out: str, load_tokenizer: Callable[[str], Any], init_from: str, batch_parts: Callable[[Any], int]
) -> str:
    """Folder or URL of the instruction table (tokenised conversations) to train on: the one that ``job.corpus`` names,
    else one built by this call, from the files of ``job.sets`` if it names any, else from ``job.talks``. ``out``: the
    run folder; the table is built in the folder that ``table_shelf`` returns for it. ``load_tokenizer``: returns the
    tokenizer of the model ``init_from``. ``batch_parts``: returns into how many parts a mesh, ``job.recipe.mesh``,
    splits a batch. Raises as ``build_sets`` and ``build_table``."""
    from lemur_ray.instruct.chat_tokens import with_chat_format
    from lemur_ray.instruct.config import SET_NAMES
    from lemur_ray.instruct.epochs import whole_epochs
    from lemur_ray.instruct.pipeline import build_sets
    from lemur_ray.instruct.table import build_table

    if job.corpus:
        return resolve_out(job.corpus, "")
    shelf = table_shelf(job, out)
    tokenizer = with_chat_format(load_tokenizer(init_from), job.chat_template)
    shape = {"seq_len": job.recipe.data.seq_len, "num_rows": whole_epochs(job.recipe, batch_parts(job.recipe.mesh))}
    if job.sets.files:
        files = {name: getattr(job.sets, name) for name in (*SET_NAMES, "decontaminate")}
        resolved = {name: tuple(resolve_out(file, "") for file in listed) for name, listed in files.items()}
        return str(build_sets(replace(job.sets, **resolved), tokenizer, shelf, **shape)[0])
    folder, manifest = build_table(conversations_of(job.talks), tokenizer, shelf, **shape)
    print(f"conversations: {json.dumps(manifest['counts'])}", flush=True)
    return str(folder)
