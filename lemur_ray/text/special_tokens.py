"""Special tokens of a tokenizer and their roles, from the config files next to its ``tokenizer.json`` only.

A role that the files do not assign is None. This project's vocabularies have seven special tokens with fixed names and
need no other file. Knows nothing of the location of files.
"""

from __future__ import annotations

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
    """Token ids by role; None if the vocabulary has none."""

    bos: int | None
    eos: int | None
    pad: int | None
    unk: int | None
    stops: frozenset[int]
    """All ids that end a model's reply."""
    before: tuple[int, ...]
    """Ids before a text that is encoded with special tokens."""
    after: tuple[int, ...]
    """Ids after such a text."""


def is_ours(backend: Backend) -> bool:
    """Whether a vocabulary has all special tokens of this project, marked as special."""
    special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    return special.issuperset(SPECIALS)


def special_tokens(backend: Backend, files: Mapping[str, str]) -> SpecialTokens:
    """The special tokens of a vocabulary and its config files (name -> text). Raises ValueError on bad files."""
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
    return SpecialTokens(
        bos, eos, role("pad"), role("unk"), _ids(eos, end_turn, *_listed(generation.get("eos_token_id"))), before, after
    )


def named_tokens(files: Mapping[str, str]) -> dict[str, str | None]:
    """Role (``bos_token``) -> token or None, for the roles that the files mention."""
    named = _merged_config(files)
    return {role: _content(named[role]) for role in NAMED if role in named}


def special_names(files: Mapping[str, str]) -> list[str]:
    """All tokens that the files mark as special, in the order in which ``transformers`` adds missing ones."""
    named = _merged_config(files)
    roles = [*NAMED, *(key for key in named if key.endswith("_token") and key not in (*NAMED, _FILL))]
    extra = named.get("extra_special_tokens") or named.get("additional_special_tokens") or []
    listed = [*(named.get(role) for role in roles), *(extra.values() if isinstance(extra, dict) else extra)]
    return list(dict.fromkeys(token for one in listed if (token := _content(one))))


def splits_specials(files: Mapping[str, str]) -> bool:
    """Whether the config treats special tokens in a text as ordinary text (``split_special_tokens``)."""
    return bool(json_file(files, CONFIG).get("split_special_tokens"))


def _merged_config(files: Mapping[str, str]) -> dict[str, Any]:
    """The config merged with the special tokens map, which has priority unless the config lists added tokens."""
    config, listed = json_file(files, CONFIG), json_file(files, MAP)
    return {**listed, **config} if "added_tokens_decoder" in config else {**config, **listed}


def _content(token: Any) -> str | None:
    """Text of a token in a config file: a string, an object with ``content``, or None."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def json_file(files: Mapping[str, str], name: str) -> dict[str, Any]:
    """Content of a JSON file as an object; empty if the file is missing. Raises ValueError."""
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
    """Ids from ``generation_config.json``, which has one, a list or none."""
    return [i for i in (ids if isinstance(ids, list) else [ids]) if isinstance(i, int)]


def _ids(*ids: int | None) -> frozenset[int]:
    return frozenset(i for i in ids if i is not None)


def _around(backend: Backend) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """(ids before, ids after) that the post-processor adds to a text."""
    if backend.post_processor is None:
        return (), ()
    probe = backend.encode("a", add_special_tokens=True)
    inner = [i for i, special in enumerate(probe.special_tokens_mask) if not special]
    if not inner:
        return tuple(probe.ids), ()
    return tuple(probe.ids[: inner[0]]), tuple(probe.ids[inner[-1] + 1 :])
