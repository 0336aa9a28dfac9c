"""Lookup of the chat template in a tokenizer's files, in the order of ``transformers``, and its replacement.

``chat_template.jinja``, else ``chat_template`` of ``tokenizer_config.json`` (one, or a list of named ones), else
``chat_template.json`` of older processors. This project's tokenizers have no such files and use ChatML."""

import weakref
from collections.abc import Mapping
from pathlib import Path

from lemur_ray.text.chat_template import ChatTemplate, TemplateMissing, TemplateUnusable
from lemur_ray.text.chatml import NAME, WITH_BOS, ChatML
from lemur_ray.text.special_tokens import BOS, CONFIG, json_file, named_tokens
from lemur_ray.text.templates.jinja_template import JinjaTemplate
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.text.tokenizer_folder import PROCESSOR, TEMPLATE


def template_of(tokenizer: Tokenizer) -> ChatTemplate:
    """Chat template of a tokenizer, by its files; cached. Raises TemplateMissing if there is none, TemplateUnusable for
    one of an invalid form, ValueError for files that are no JSON."""
    if (template := _KNOWN.get(tokenizer)) is None:
        template = _KNOWN[tokenizer] = _lookup(tokenizer)
    return template


def template_source(choice: str) -> str:
    """Jinja source for a value of ``--chat-template``: the content of that file, ChatML's for ``chatml``, "" for "".
    Raises TemplateUnusable if the file cannot be read."""
    if choice in ("", NAME):
        return WITH_BOS if choice else ""
    try:
        return Path(choice).expanduser().read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise TemplateUnusable(
            f"--chat-template {choice}: {error}; expected a file with a Jinja template, or {NAME}"
        ) from error


def with_template(tokenizer: Tokenizer, source: str) -> Tokenizer:
    """The tokenizer with ``source``, Jinja text, as its chat template. Raises TemplateUnusable if that is ChatML and
    the vocabulary lacks ChatML's tokens."""
    if source == WITH_BOS:
        if tokenizer.im_start_id is None or tokenizer.im_end_id is None:
            raise TemplateUnusable(
                f"{NAME} needs the tokens <|im_start|> and <|im_end|>, which this vocabulary lacks: tune the model on "
                "it first (jobs/instruct.py), or give a file with the model's own template"
            )
        if not tokenizer.files:
            return tokenizer  # ChatML is the default of this project's tokenizers
    return tokenizer.with_files({**tokenizer.files, TEMPLATE: source})


def _lookup(tokenizer: Tokenizer) -> ChatTemplate:
    named = named_templates(tokenizer.files)
    tokens = {role: token for role, token in named_tokens(tokenizer.files).items() if token is not None}
    if tokenizer.is_ours and not tokens:
        tokens = OUR_TOKENS
    ours = not tokenizer.files and tokenizer.is_ours
    if ours or (set(named) == {"default"} and named["default"] == WITH_BOS):
        return ChatML(tokens.get("bos_token", ""))
    if not named:
        raise TemplateMissing(
            "the model has no chat template: start with --chat-template and a file that holds its template, or with "
            f"--chat-template {NAME} where it was tuned on that"
        )
    return JinjaTemplate(named, tokens)


def named_templates(files: Mapping[str, str]) -> dict[str, str]:
    """Jinja sources of chat templates in a tokenizer's files (contents by name), by name: "default" for a single one;
    {} if there is none. Raises TemplateUnusable for an invalid form, ValueError for files that are no JSON."""
    if TEMPLATE in files:
        return {"default": files[TEMPLATE]}
    written = json_file(files, CONFIG).get("chat_template")
    if written is None:
        written = json_file(files, PROCESSOR).get("chat_template")
    if isinstance(written, str):
        return {"default": written}
    if isinstance(written, dict):
        return {str(name): str(text) for name, text in written.items()}
    try:
        return {str(one["name"]): str(one["template"]) for one in written or ()}
    except (TypeError, KeyError) as error:
        raise TemplateUnusable(f"{CONFIG}: chat_template is neither a text nor a list of name and template") from error


OUR_TOKENS = {"bos_token": BOS, "eos_token": "</s>", "pad_token": "<pad>"}
"""Special tokens of this project's vocabularies, as named in exports."""
_KNOWN: weakref.WeakKeyDictionary[Tokenizer, ChatTemplate] = weakref.WeakKeyDictionary()
