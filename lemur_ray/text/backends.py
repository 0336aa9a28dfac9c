"""Construction of ``tokenizers.Tokenizer`` objects (backends) from the files of a folder, and of variants of them.

Files are interpreted as in ``transformers`` 5: tokens that only the config files name are added, and the tokenizer
class of a folder may change how ``tokenizer.json`` is read (``tokenizer_classes.py``)."""

import json
import secrets
from collections.abc import Mapping, Sequence
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as Backend

from lemur_ray.text.special_tokens import ADDED, CONFIG, json_file, special_names
from lemur_ray.text.tokenizer_classes import ClassRefused, apply_class

TOKENIZER = "tokenizer.json"
_CONTROLLED = ("Unigram", "WordPiece", "WordLevel")
"""Models that match tokens of their vocabulary in any text by spelling, including special tokens."""
_FLAGS = ("single_word", "lstrip", "rstrip", "normalized", "special")


def read_backend(files: Mapping[str, str], where: str) -> Backend:
    """Backend from the texts of a folder's files by name; ``tokenizer.json`` must be among them. where: their origin,
    for messages. Raises ValueError if they are damaged, contradict each other, or need an unsupported class."""
    text = files[TOKENIZER]
    try:
        config = json_file(files, CONFIG)
        backend = Backend.from_str(apply_class(text, config))
    except ClassRefused as error:
        raise ValueError(f"{where}: {error}") from error
    except Exception as error:  # the library raises nothing narrower
        raise ValueError(
            f"{where} is not a tokenizer.json of the tokenizers library ({error}): copy it anew from where it came "
            "from, or build the corpus again"
        ) from error
    backend.no_truncation()
    backend.no_padding()
    _add_named(backend, files, where)
    return backend


def _add_named(backend: Backend, files: Mapping[str, str], where: str) -> None:
    """Add tokens to the backend that only the config files name, and mark tokens with special roles as special."""
    config, named = json_file(files, CONFIG), special_names(files)
    wanted: dict[int, AddedToken] = {}
    try:
        for number, entry in (config.get("added_tokens_decoder") or {}).items():
            flags = {name: bool(entry.get(name, name == "normalized")) for name in _FLAGS}
            wanted[int(number)] = AddedToken(entry["content"], **flags)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{where}: {CONFIG} next to it: added_tokens_decoder is not an object of ids and tokens "
            f"({type(error).__name__}: {error}): copy it anew from where the model came from"
        ) from error
    if "added_tokens_decoder" not in config:
        for content, number in json_file(files, ADDED).items():
            wanted[number] = AddedToken(content, special=content in named, normalized=content not in named)
    for number, token in sorted(wanted.items(), key=lambda item: item[0]):
        there = backend.get_added_tokens_decoder().get(number)
        if there is not None and repr(there) == repr(token):
            continue
        token_id = backend.token_to_id(token.content)
        if token_id is None:
            backend.add_tokens([token])
            token_id = backend.token_to_id(token.content)
        elif token_id == number:
            backend.add_tokens([token])
        if token_id != number:
            raise ValueError(
                f"{where}: its files say that {token.content!r} is id {number}, the vocabulary makes it {token_id}: "
                "copy all files of the tokenizer anew from one place"
            )
    known = {token.content: token for token in backend.get_added_tokens_decoder().values()}
    for content in named:
        if content not in known:
            backend.add_tokens([AddedToken(content, special=True, normalized=False)])
        elif not known[content].special:
            flags = {name: getattr(known[content], name) for name in _FLAGS}
            backend.add_tokens([AddedToken(content, **{**flags, "special": True})])


def with_listed(files: Mapping[str, str], backend: Backend, tokens: Sequence[str]) -> dict[str, str]:
    """Copy of the files with ``tokens`` added to ``added_tokens_decoder`` of the config, if it has that list."""
    config = json_file(files, CONFIG)
    if "added_tokens_decoder" not in config:
        return dict(files)
    flags = {name: name == "special" for name in _FLAGS}
    new = {str(backend.token_to_id(token)): {"content": token, **flags} for token in tokens}
    config["added_tokens_decoder"] = {**config["added_tokens_decoder"], **new}
    return {**files, CONFIG: json.dumps(config, indent=2, ensure_ascii=False)}


def plain_text_backend(backend: Backend) -> Backend:
    """Backend that never encodes text as a special token: ``backend`` itself, changed in place, or a rebuilt copy."""
    backend.encode_special_tokens = True
    model = type(backend.model).__name__
    if model not in _CONTROLLED and not getattr(backend.model, "ignore_merges", False):
        return backend
    special = {token.content for token in backend.get_added_tokens_decoder().values() if token.special}
    unknown = getattr(backend.model, "unk_token", None)
    hidden = {name for name in special if name != unknown and backend.model.token_to_id(name) is not None}
    if not hidden:
        return backend
    raw = json.loads(backend.to_str())
    vocab = raw["model"]["vocab"]
    # A lookup model would match those tokens, so they get random names that no text contains.
    secret = {name: f"\0{secrets.token_hex(16)}{name}" for name in hidden}
    if isinstance(vocab, list):
        raw["model"]["vocab"] = [[secret.get(name, name), score] for name, score in vocab]
    else:
        raw["model"]["vocab"] = {secret.get(name, name): i for name, i in vocab.items()}
    raw["added_tokens"] = [token for token in raw["added_tokens"] if token["content"] not in hidden]
    raw["post_processor"] = None
    plain = Backend.from_str(json.dumps(raw, ensure_ascii=False))
    plain.encode_special_tokens = True
    return plain


def inner_text_backend(backend: Backend) -> Backend:
    """Backend for text in the middle of another text, which adds no prefix; the same object if it adds none."""
    raw = json.loads(backend.to_str())
    changed = [_without_prefix(raw["pre_tokenizer"]), _without_prepend(raw)]
    if not any(changed):
        return backend
    out = Backend.from_str(json.dumps(raw, ensure_ascii=False))
    out.encode_special_tokens = backend.encode_special_tokens
    return out


def _without_prefix(step: dict[str, Any] | None) -> bool:
    """Switch off prefixes in the JSON of a pre-tokenizer, in place; returns whether there were any."""
    if step is None:
        return False
    if step["type"] == "Sequence":
        changed = [_without_prefix(one) for one in step["pretokenizers"]]  # all of them
        return any(changed)
    if step["type"] == "Metaspace" and step["prepend_scheme"] != "never":
        step["prepend_scheme"] = "never"
        return True
    if step["type"] == "ByteLevel" and step["add_prefix_space"]:
        step["add_prefix_space"] = False
        return True
    return False


def _without_prepend(raw: dict[str, Any]) -> bool:
    """Remove ``Prepend`` from the normalizer in a tokenizer's JSON, in place; returns whether there was one."""
    step = raw["normalizer"]
    if step is None:
        return False
    steps = step["normalizers"] if step["type"] == "Sequence" else [step]
    kept = [one for one in steps if one["type"] != "Prepend"]
    raw["normalizer"] = {"type": "Sequence", "normalizers": kept} if kept else None
    return len(kept) < len(steps)
