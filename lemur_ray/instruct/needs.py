"""Checks before an instruction table is built or used: installed packages, one source of conversations, a usable chat
template, a conversation that is left. The public sets are not read."""

import importlib.util
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from lemur_ray.config import Recipe
from lemur_ray.corpus.manifest import read_manifest
from lemur_ray.host.home import resolve_out
from lemur_ray.instruct.chat_tokens import with_chat_format
from lemur_ray.instruct.config import WITHOUT_NEAR_DUPLICATES, SetsConfig
from lemur_ray.instruct.conversation import Conversation
from lemur_ray.instruct.epochs import with_whole_epochs
from lemur_ray.instruct.table import check_any_left
from lemur_ray.text.chat_template import Chat, TemplateError, TemplateUnusable
from lemur_ray.text.templates.template_files import template_of
from lemur_ray.text.tokenizer import Tokenizer

_EXTRA = "pip install 'lemur-ray[instruct]'"


def check_table_needs(
    sets: SetsConfig, conversations: Sequence[str], choice: str, tokenizer: Tokenizer | None, packages_are_here: bool
) -> None:
    """Raise ValueError that lists everything that is missing or contradictory for building a table; reads no
    conversation. conversations: the user's own files. choice: value of ``--chat-template``. tokenizer: None if it
    cannot be read; its chat template is not checked then. packages_are_here: the table is built on this machine, which
    must have the packages. sets: files and options of the public sets."""
    lacking = [*_of_sets(sets, conversations, packages_are_here), *(_of_format(tokenizer, choice) if tokenizer else ())]
    if lacking:
        raise ValueError("\n- ".join(lacking))


def check_table(
    job: Any,
    shelf: str,
    conversations: Callable[[], Iterator[Conversation]],
    batch_parts: Callable[[Any], int],
    tokenizer: Tokenizer | None,
    packages_are_here: bool,
) -> tuple[Recipe, int] | None:
    """Raise what building and using the table of a job (``jobs/instruct.py``) would: ValueError, and CorpusError if no
    conversation is left for a table in ``shelf``. Returns (the recipe, with the steps of a table that is there; size of
    the table's vocabulary); None if tokenizer or ``conversations``, whose errors others report, cannot be read.
    batch_parts: function of a mesh: number of parts of a batch. shelf: folder of tables; tokenizer, packages_are_here:
    see ``check_table_needs``."""
    if job.corpus:
        manifest = read_manifest(resolve_out(job.corpus, ""))
        return with_whole_epochs(job.recipe, manifest, batch_parts(job.recipe.mesh))[0], manifest["vocab_size"]
    check_table_needs(job.sets, job.talks.conversations, job.chat_template, tokenizer, packages_are_here)
    if tokenizer is None:
        return None
    tokenizer = with_chat_format(tokenizer, job.chat_template, say=lambda line: None)
    if not job.sets.files:
        try:
            first = list(itertools.islice(talks := conversations(), 1))
        except (OSError, ValueError):
            return None
        check_any_left(itertools.chain(first, talks), tokenizer, shelf, seq_len=job.recipe.data.seq_len)
    return job.recipe, tokenizer.vocab_size


def filter_packages(sets: SetsConfig) -> dict[str, str]:
    """Optional packages that filters of these sets need: name -> message if it is not installed; {} if none."""
    wanted = {}
    near = sets.near_duplicate and any(getattr(sets, name) for name in WITHOUT_NEAR_DUPLICATES)
    if near and not sets.encoder.startswith("hashing:"):
        wanted["sentence-transformers"] = (
            f"packages: near-duplicates are found with sentence-transformers: {_EXTRA}, or give --encoder hashing:1024 "
            "(same words, not same meaning) or --near-duplicate 0 (no such filter)"
        )
    if sets.sharegpt and sets.language:
        wanted["langdetect"] = (
            f"packages: the language filter needs langdetect: {_EXTRA}, or give --language '' to keep every language"
        )
    return wanted


def _of_sets(sets: SetsConfig, conversations: Sequence[str], packages_are_here: bool) -> list[str]:
    lacking = []
    if sets.files and conversations:
        lacking.append("--conversations is no part of Table 1: leave it out with --oasst1 and the other sets")
    if packages_are_here:
        lacking += [
            advice
            for package, advice in filter_packages(sets).items()
            if not importlib.util.find_spec(package.replace("-", "_"))
        ]
    return lacking


def _of_format(tokenizer: Tokenizer, choice: str) -> list[str]:
    turns = [{"role": "user", "content": "Hello."}, {"role": "assistant", "content": "Hello."}]
    try:
        template_of(with_chat_format(tokenizer, choice, say=lambda line: None)).render_with_spans(Chat(turns))
    except TemplateUnusable as error:
        return [f"{error} (--chat-template: a file with another one, or chatml)"]
    except TemplateError:  # it may accept other conversations
        pass
    except ValueError as error:
        return [str(error)]
    return []
