"""Special tokens of a tokenizer and their roles, from the config files next to its ``tokenizer.json`` only.

A role that the files do not assign is None. This project's vocabularies have seven special tokens with fixed names and
need no other file."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer as Backend

PAD, BOS, EOS = "<pad>", "<s>", "</s>"
IM_START, IM_END, IM_SEP, DIFF_MARKER = "<|im_start|>", "<|im_end|>", "<|im_sep|>", "<|diff_marker|>"
SPECIALS = (PAD, BOS, EOS, IM_START, IM_END, IM_SEP, DIFF_MARKER)
"""Special tokens of this project's vocabularies."""
CHATML = (IM_START, IM_END)
"""Special tokens of ChatML."""
CONFIG, MAP, ADDED, GENERATION = (
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "generation_config.json",
)  # fmt: skip
NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""Roles of special tokens in config files."""
_FILL = "fill_token"
"""Role of Code Llama's infilling marker, which is never an id and has no row in models."""


@dataclass(frozen=True)
class SpecialTokens:
    """Ids of special tokens by role, None if the vocabulary has none."""

    bos: int | None
    eos: int | None
    pad: int | None
    unk: int | None
    stops: frozenset[int]
    """All ids that end a model's reply."""
    before: tuple[int, ...]
    """Ids that the tokenizer adds before a text."""
    after: tuple[int, ...]
    """Ids that the tokenizer adds after a text."""


def is_ours(backend: Backend) -> bool:
    """Whether a vocabulary has all special tokens of this project, marked as special."""
    special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    return special.issuperset(SPECIALS)


def special_tokens(backend: Backend, files: Mapping[str, str]) -> SpecialTokens:
    """Special tokens of a backend by role, from texts of its config files by name. Raises ValueError if invalid."""
    generation = json_file(files, GENERATION)
    end_turn = backend.token_to_id(IM_END)
    if is_ours(backend) and backend.post_processor is None:
        bos, eos, pad = (backend.token_to_id(name) for name in (BOS, EOS, PAD))
        assert bos is not None
        return SpecialTokens(bos, eos, pad, None, _ids(eos, end_turn), (bos,), ())
    names = named_tokens(files)

    def role(name: str) -> int | None:
        if f"{name}_token" in names:
            return backend.token_to_id(names[f"{name}_token"] or "")
        ids = _listed(generation.get(f"{name}_token_id"))
        return ids[0] if ids else None

    bos, eos = role("bos"), role("eos")
    before, after = _around(backend)  # with a tokenizer.json, add_bos_token is ignored
    if bos is None and "bos_token" not in names and before:
        bos = before[0]
    stops = _ids(eos, end_turn, *_listed(generation.get("eos_token_id")))
    return SpecialTokens(bos, eos, role("pad"), role("unk"), stops, before, after)


def named_tokens(files: Mapping[str, str]) -> dict[str, str | None]:
    """Token, or None, by role (such as ``bos_token``) for the roles that the config files mention."""
    named = _merged_config(files)
    return {role: _content(named[role]) for role in NAMED if role in named}


def special_names(files: Mapping[str, str]) -> list[str]:
    """All tokens that the config files name as special, in the order in which ``transformers`` adds missing ones."""
    named = _merged_config(files)
    roles = [*NAMED, *(key for key in named if key.endswith("_token") and key not in (*NAMED, _FILL))]
    extra = named.get("extra_special_tokens") or named.get("additional_special_tokens") or []
    listed = [*(named.get(role) for role in roles), *(extra.values() if isinstance(extra, dict) else extra)]
    return list(dict.fromkeys(token for one in listed if (token := _content(one))))


def splits_specials(files: Mapping[str, str]) -> bool:
    """Whether the config says that special tokens in a text are ordinary text (``split_special_tokens``)."""
    return bool(json_file(files, CONFIG).get("split_special_tokens"))


def _merged_config(files: Mapping[str, str]) -> dict[str, Any]:
    """``tokenizer_config.json`` merged with ``special_tokens_map.json``, which has priority unless the config has
    ``added_tokens_decoder``."""
    config, listed = json_file(files, CONFIG), json_file(files, MAP)
    return {**listed, **config} if "added_tokens_decoder" in config else {**config, **listed}


def _content(token: Any) -> str | None:
    """Text of a token from its form in a config file: a string or an object with ``content``; else None."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def json_file(files: Mapping[str, str], name: str) -> dict[str, Any]:
    """JSON object in the file ``name`` of ``files``; {} if missing. Raises ValueError if it is not a JSON object."""
    if name not in files:
        return {}
    try:
        value = json.loads(files[name])
    except ValueError as error:
        raise ValueError(f"{name} is not JSON ({error}): copy it anew from where the model came from") from error
    if not isinstance(value, dict):
        raise ValueError(f"{name} holds a {type(value).__name__}, expected an object: copy it anew")
    return value


def _listed(ids: Any) -> list[int]:
    """List of ids from a value in ``generation_config.json``: one id, a list of ids, or null."""
    return [i for i in (ids if isinstance(ids, list) else [ids]) if isinstance(i, int)]


def _ids(*ids: int | None) -> frozenset[int]:
    return frozenset(i for i in ids if i is not None)


def _around(backend: Backend) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(ids that the backend's post-processor adds before a text, ids that it adds after it)."""
    if backend.post_processor is None:
        return (), ()
    probe = backend.encode("a", add_special_tokens=True)
    inner = [i for i, special in enumerate(probe.special_tokens_mask) if not special]
    if not inner:
        return tuple(probe.ids), ()
    return tuple(probe.ids[: inner[0]]), tuple(probe.ids[inner[-1] + 1 :])
