"""The tokenizer of a folder, local or by URI: ``tokenizer.json`` with the small files that say which tokens are what.

Knows nothing of models; that a vocabulary fits one is theirs to check.
"""

from __future__ import annotations

import json
from pathlib import Path

from lemur_ray.storage.file_system import file_system
from lemur_ray.text.backends import TOKENIZER
from lemur_ray.text.special_tokens import ADDED, CONFIG, GENERATION, MAP
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.text.tokenizer_classes import resolve_class_config

TEMPLATE, PROCESSOR = "chat_template.jinja", "chat_template.json"
SMALL_FILES = (CONFIG, MAP, ADDED, GENERATION, TEMPLATE, PROCESSOR)
"""What may lie beside a ``tokenizer.json`` and belongs to it."""
_MORE_TEMPLATES = "additional_chat_templates"
_MODEL = "config.json"


def read_files(folder: str | Path) -> dict[str, bytes]:
    """The files of a folder's tokenizer, name -> content; empty where it has none.

    Where there is no ``generation_config.json``, one with the ids that ``config.json`` names stands for it; the class
    that a tokenizer has by the type of its model stands in ``tokenizer_config.json``. Chat templates of a folder within
    are listed there, too, as older versions had them.
    """
    fs, inner = file_system(str(folder))
    if not fs.isfile(f"{inner}/{TOKENIZER}"):
        return {}
    there = [name for name in (TOKENIZER, *SMALL_FILES) if fs.isfile(f"{inner}/{name}")]
    files = {name: bytes(fs.cat_file(f"{inner}/{name}")) for name in there}
    files = _of_model(files, bytes(fs.cat_file(f"{inner}/{_MODEL}")) if fs.isfile(f"{inner}/{_MODEL}") else b"{}")
    if fs.isdir(f"{inner}/{_MORE_TEMPLATES}"):
        more = [path for path in sorted(fs.ls(f"{inner}/{_MORE_TEMPLATES}", detail=False)) if path.endswith(".jinja")]
        named = {path.rsplit("/", 1)[-1].removesuffix(".jinja"): bytes(fs.cat_file(path)) for path in more}
        files = _listed_templates(files, named) if named else files
    return files


def _of_model(files: dict[str, bytes], config_json: bytes) -> dict[str, bytes]:
    """The files with what the ``config.json`` beside says of the tokenizer: ids, and the class it is read with.

    A class that another type of model would be read with is named, and the tokens that it has for roles which no file
    speaks of, so that the files mean the same wherever they go. What cannot be read stays as it is: whoever reads the
    model, or the tokenizer, says what is wrong with it.
    """
    files = dict(files)
    try:
        model = json.loads(config_json)
        ids = {key: model[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id") if key in model}
        if GENERATION not in files and ids:
            files[GENERATION] = json.dumps(ids).encode()
        config, listed = (json.loads(files.get(name, b"{}")) for name in (CONFIG, MAP))
        resolved = resolve_class_config(config, model, listed, files[TOKENIZER].decode())
        if resolved != config:
            files[CONFIG] = json.dumps(resolved, ensure_ascii=False).encode()
    except (ValueError, TypeError, AttributeError):
        pass
    return files


def _listed_templates(files: dict[str, bytes], named: dict[str, bytes]) -> dict[str, bytes]:
    """All templates in one list of the config; unreadable files stay as they are, whoever reads them says so."""
    files = dict(files)
    try:
        config = json.loads(files.get(CONFIG, b"{}"))
        if TEMPLATE in files:
            named = {"default": files.pop(TEMPLATE), **named}
        listed = [{"name": name, "template": text.decode()} for name, text in named.items()]
        return {**files, CONFIG: json.dumps({**config, "chat_template": listed}).encode()}
    except (ValueError, TypeError):
        return files


def load_folder(folder: str | Path) -> Tokenizer | None:
    """The tokenizer of a folder or URI; None where it has none. Raises ValueError where its files are damaged."""
    files = read_files(folder)
    return Tokenizer.from_files(files, f"{str(folder).rstrip('/')}/{TOKENIZER}") if files else None


def tokenizer_in(folder: str | Path) -> Tokenizer:
    """``load_folder`` where there must be one. Raises FileNotFoundError, ValueError."""
    tokenizer = load_folder(folder)
    if tokenizer is None:
        raise FileNotFoundError(f"no {TOKENIZER} in {folder}: copy the one that belongs there")
    return tokenizer


def load_path(path: str | Path) -> Tokenizer:
    """The tokenizer of a folder, or a file: a ``tokenizer.json`` with its folder, one of another name by itself.

    A URI is that of a folder or of a ``tokenizer.json``.
    """
    if "://" in str(path):
        return tokenizer_in(str(path).rstrip("/").removesuffix(f"/{TOKENIZER}"))
    path = Path(path)
    if path.name == TOKENIZER and path.is_file():
        path = path.parent
    return tokenizer_in(path) if path.is_dir() else Tokenizer.load(path)


def save_folder(tokenizer: Tokenizer, folder: str | Path) -> None:
    """Write the files of which ``load_folder`` makes the same tokenizer; one of our own is ``tokenizer.json`` alone."""
    fs, inner = file_system(str(folder))
    for name, text in tokenizer.to_files().items():
        fs.pipe_file(f"{inner}/{name}", text.encode())
