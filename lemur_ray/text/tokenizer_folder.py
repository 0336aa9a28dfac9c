"""Load and save the tokenizer of a folder or URL: ``tokenizer.json`` and the config files of its special tokens."""

import json
from pathlib import Path

from lemur_ray.storage.file_system import file_system
from lemur_ray.text.backends import TOKENIZER
from lemur_ray.text.special_tokens import ADDED, CONFIG, GENERATION, MAP
from lemur_ray.text.tokenizer import Tokenizer
from lemur_ray.text.tokenizer_classes import resolve_class_config

TEMPLATE, PROCESSOR = "chat_template.jinja", "chat_template.json"
SMALL_FILES = (CONFIG, MAP, ADDED, GENERATION, TEMPLATE, PROCESSOR)
"""Config files that belong to a ``tokenizer.json``."""
_MORE_TEMPLATES = "additional_chat_templates"
_MODEL = "config.json"


def read_files(folder: str | Path) -> dict[str, bytes]:
    """Contents of the tokenizer files of a folder or URL by name; {} if it has no ``tokenizer.json``.
    A missing ``generation_config.json`` is replaced by the ids in ``config.json``. ``tokenizer_config.json`` is
    completed with the class that follows from the model's type, and with the chat templates of a subfolder."""
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
    """Copy of the files with special ids and the tokenizer class that follow from the model's ``config.json``.
    The class and its default tokens are written down if they depend on the model's type, so that the files have the
    same meaning without it. Unreadable files stay unchanged: the readers of the model or tokenizer report them."""
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
    """Copy of the files with the templates ``named`` listed in the config; unchanged if the config is unreadable."""
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
    """Tokenizer of a folder or URL; None if it has no ``tokenizer.json``. Raises ValueError if files are damaged."""
    files = read_files(folder)
    return Tokenizer.from_files(files, f"{str(folder).rstrip('/')}/{TOKENIZER}") if files else None


def tokenizer_in(folder: str | Path) -> Tokenizer:
    """Tokenizer of a folder or URL. Raises FileNotFoundError if it has none, ValueError if files are damaged."""
    tokenizer = load_folder(folder)
    if tokenizer is None:
        raise FileNotFoundError(f"no {TOKENIZER} in {folder}: copy the one that belongs there")
    return tokenizer


def load_path(path: str | Path) -> Tokenizer:
    """Tokenizer of a folder, or of a file; config files beside it are read only if it is called ``tokenizer.json``.
    Raises FileNotFoundError, ValueError if files are damaged. A URL must name a folder or a ``tokenizer.json``."""
    if "://" in str(path):
        return tokenizer_in(str(path).rstrip("/").removesuffix(f"/{TOKENIZER}"))
    path = Path(path)
    if path.name == TOKENIZER and path.is_file():
        path = path.parent
    return tokenizer_in(path) if path.is_dir() else Tokenizer.load(path)


def save_folder(tokenizer: Tokenizer, folder: str | Path) -> None:
    """Write ``tokenizer.json`` and the config files of a tokenizer to a folder or URL, for ``load_folder``."""
    fs, inner = file_system(str(folder))
    for name, text in tokenizer.to_files().items():
        fs.pipe_file(f"{inner}/{name}", text.encode())
