"""Checks before an instruction table is built: installed packages, one source of conversations, a usable chat template.

No conversation is read."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.util import find_spec

from lemur_ray.instruct.chat_tokens import with_chat_format
from lemur_ray.instruct.config import WITHOUT_NEAR_DUPLICATES, SetsConfig
from lemur_ray.text.chat_template import Chat, TemplateError, TemplateUnusable
from lemur_ray.text.templates.template_files import template_of
from lemur_ray.text.tokenizer import Tokenizer

_EXTRA = "pip install 'lemur-ray[instruct]'"


def check_table_needs(
    sets: SetsConfig, conversations: Sequence[str], choice: str, tokenizer: Tokenizer | None, packages_are_here: bool
) -> None:
    """Raise ValueError that lists everything that is missing or contradictory for building a table; reads no
    conversation. conversations: the user's own files. choice: as for ``with_chat_format``. tokenizer: None if it cannot
    be read; its chat template is not checked then. packages_are_here: the table is built on this machine, which must
    have the packages."""
    lacking = [*_of_sets(sets, conversations, packages_are_here), *(_of_format(tokenizer, choice) if tokenizer else ())]
    if lacking:
        raise ValueError("\n- ".join(lacking))


def filter_packages(sets: SetsConfig) -> dict[str, str]:
    """Optional packages that the filters of these sets need: name -> message for the case that it is not installed; {}
    if none."""
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
            advice for package, advice in filter_packages(sets).items() if not find_spec(package.replace("-", "_"))
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
