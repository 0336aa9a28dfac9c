"""Which tokens begin and end texts and turns: what the files beside a ``tokenizer.json`` say, and nothing else.

A token that the files do not name is None. Our own vocabularies have their seven special tokens by name and need no
other file. Knows nothing of where files lie.
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
"""Those of our own vocabularies."""
CHATML = (IM_START, IM_END)
"""Those that a conversation in ChatML is made with."""

CONFIG, MAP, ADDED, GENERATION = (
    "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "generation_config.json",
)  # fmt: skip
NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
"""Roles that a folder gives tokens to."""
_FILL = "fill_token"
"""Where readers of Code Llama part a text that is to be filled in: it is never an id, and models have no row for it."""


@dataclass(frozen=True)
class SpecialTokens:
    """Ids by what they are for; None where the vocabulary has none."""

    bos: int | None
    eos: int | None
    pad: int | None
    unk: int | None
    stops: frozenset[int]
    """All that end what a model says."""
    before: tuple[int, ...]
    """What stands in front of a text when it is encoded with its special tokens."""
    after: tuple[int, ...]
    """And what behind it."""


def is_ours(backend: Backend) -> bool:
    """Whether a vocabulary has all seven special tokens of ours, as special ones."""
    special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    return special.issuperset(SPECIALS)


def special_tokens(backend: Backend, files: Mapping[str, str]) -> SpecialTokens:
    """Those of a vocabulary with the files that lie beside it (name -> text). Raises ValueError on bad files."""
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
    before, after = _around(backend)  # where there is a file, add_bos_token beside it is not read
    if bos is None and "bos_token" not in names and before:
        bos = before[0]
    return SpecialTokens(
        bos,
        eos,
        role("pad"),
        role("unk"),
        _ids(eos, end_turn, *_listed(generation.get("eos_token_id"))),
        before,
        after,
    )


def named_tokens(files: Mapping[str, str]) -> dict[str, str | None]:
    """Role (``bos_token``) -> token or None, for the roles that a folder speaks of."""
    named = _said(files)
    return {role: _content(named[role]) for role in NAMED if role in named}


def special_names(files: Mapping[str, str]) -> list[str]:
    """Every token that the files call special, in the order in which ``transformers`` adds those that are missing."""
    named = _said(files)
    roles = [*NAMED, *(key for key in named if key.endswith("_token") and key not in (*NAMED, _FILL))]
    extra = named.get("extra_special_tokens") or named.get("additional_special_tokens") or []
    listed = [*(named.get(role) for role in roles), *(extra.values() if isinstance(extra, dict) else extra)]
    return list(dict.fromkeys(token for one in listed if (token := _content(one))))


def splits_specials(files: Mapping[str, str]) -> bool:
    """Whether a folder says that special tokens which a text spells are ordinary text (``split_special_tokens``)."""
    return bool(json_file(files, CONFIG).get("split_special_tokens"))


def _said(files: Mapping[str, str]) -> dict[str, Any]:
    """The config together with the map, which counted before configs held all added tokens."""
    config, listed = json_file(files, CONFIG), json_file(files, MAP)
    return {**listed, **config} if "added_tokens_decoder" in config else {**config, **listed}


def _content(token: Any) -> str | None:
    """A token as files write it: its text, an object with ``content``, or nothing."""
    if isinstance(token, dict):
        token = token.get("content")
    return token if isinstance(token, str) else None


def json_file(files: Mapping[str, str], name: str) -> dict[str, Any]:
    """A file as an object; empty where it is not there. Raises ValueError."""
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
    """Ids as ``generation_config.json`` writes them: one, several or none."""
    return [i for i in (ids if isinstance(ids, list) else [ids]) if isinstance(i, int)]


def _ids(*ids: int | None) -> frozenset[int]:
    return frozenset(i for i in ids if i is not None)


def _around(backend: Backend) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Ids that the post-processor puts before and behind a text."""
    if backend.post_processor is None:
        return (), ()
    probe = backend.encode("a", add_special_tokens=True)
    inner = [i for i, special in enumerate(probe.special_tokens_mask) if not special]
    if not inner:
        return tuple(probe.ids), ()
    return tuple(probe.ids[: inner[0]]), tuple(probe.ids[inner[-1] + 1 :])
