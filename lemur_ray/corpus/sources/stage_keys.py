"""Keys of the outputs of build steps: hashes of all that an output depends on, so that equal keys mean equal content.

The outputs of a stage are the files ``.build/STAGE/KEY.*`` of a corpus, the commit file ``KEY.json`` last. A changed
setting changes the keys of what depends on it and of nothing else, so the rest is not done again."""

import hashlib
import importlib.metadata
import json
import sys
import unicodedata
from collections.abc import Sequence
from typing import Any

import numpy as np

from lemur_ray.corpus.cleaning.filters import MAX_PIECE_CHARS, filter_set
from lemur_ray.corpus.cleaning.language import detector_name
from lemur_ray.corpus.documents import Kind
from lemur_ray.corpus.sources.file_refs import FileRef

VERSIONS = {"list": 1, "clean": 5, "bands": 1, "hits": 1, "near": 1, "tokenizer": 1, "tokens": 1, "pack": 1}
"""Version of the rules of each stage. A change of code that changes an output raises it, so that no build mixes outputs
of two releases; a test compares outputs with recorded hashes."""

_LIBRARIES = {"tokenizer": "tokenizers", "tokens": "tokenizers"}
"""Library whose release may change the output of a stage; ``clean_key`` and the keys of bands name theirs."""


def stage_key(stage: str, *inputs: Any) -> str:
    """Key of an output of a stage: 20 hex digits. inputs: JSON values of all that the output depends on."""
    library = _LIBRARIES.get(stage)
    tools = [f"{library} {importlib.metadata.version(library)}"] if library else []
    text = json.dumps([stage, VERSIONS[stage], *tools, *inputs], sort_keys=True)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:20]


def array_hash(*arrays: np.ndarray) -> str:
    """20 hex digits of a hash over the dtype, shape and content of arrays."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(f"{array.dtype.str}{array.shape}".encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:20]


def clean_key(files: Sequence[FileRef], tags: Sequence[str], kind: Kind, filters: Any) -> str:
    """Key of a cleaned part: hash of files, rules and versions of libraries. tags: tag of each file's content
    (``file_tags.file_tags``). filters: name or mapping for ``filter_set``. kind: code or text. Raises ImportError if
    languages are chosen and no detector is installed."""
    rules = filter_set(filters, kind)
    # Ids of documents are hashes of normalised text; pyarrow reads records and compressed files.
    tools = [unicodedata.unidata_version, f"pyarrow {importlib.metadata.version('pyarrow')}"]
    tools += [detector_name()] if rules.languages else []
    tools += [f"pieces of {MAX_PIECE_CHARS}"] if rules.max_characters > MAX_PIECE_CHARS else []
    tools += [sys.version.split()[0]] if any(ref.reader == "docstrings" for ref in files) else []  # parsed by ast
    described = [
        [ref.name, ref.size, tag, ref.reader, ref.licence, ref.language, dict(ref.fields), list(ref.allow),
         ref.max_bytes, list(ref.part)]
        for ref, tag in zip(files, tags, strict=True)
    ]  # fmt: skip
    return stage_key("clean", kind, rules.settings(), tools, described)
