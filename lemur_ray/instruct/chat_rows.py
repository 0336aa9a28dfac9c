"""Reads chat files in the formats of OpenAI and TRL: finds the files of a name, their rows, the messages of a row.

A row is ``{"messages": [...]}`` or ``{"prompt": ..., "completion": ...}``; in JSON lines, a JSON list or parquet."""

import dataclasses
import json
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lemur_ray.agents.messages import Message
from lemur_ray.host.json_files import DAMAGED, open_bytes, read_json_lines
from lemur_ray.outside_data.byte_stream import open_stream
from lemur_ray.outside_data.file_lists import list_files
from lemur_ray.outside_data.record_formats import PARQUET, json_list, parquet_rows
from lemur_ray.storage.published_folder import local_copy, scratch_folder

FORMS = '{"messages": [{"role": ..., "content": ...}, ...]} or {"prompt": ..., "completion": ...}, with "tools" if any'
OTHER_FORMS = {
    "conversations": "give files of ShareGPT to --sharegpt",
    "instruction": "give rows {instruction, output} to --evol or --verified",
    "chosen": "of preferences, write the chosen messages as messages",
    "text": "texts without turns are a corpus for jobs/build_corpus.py",
}
"""Key of a row of another form -> what to do with such a file."""
HUB = "hf://datasets/"
_TRAIN, _SPLIT = re.compile(r"(^|[/_.-])train(-\d|[/.])"), re.compile(r"train|test|valid|eval")
_SHARD = re.compile(r"-\d+-of-\d+")
_DATA_FILE = re.compile(r"\.(parquet|jsonl|json)(\.gz)?$")


def chat_files(name: str) -> list[str]:
    """Paths or URLs of the files that a name stands for: a path or URL, itself; a Hub data set
    ``hf://datasets/OWNER/NAME[@REVISION][/PATTERN]``, its .parquet, .jsonl and .json files. Without a pattern, only the
    split train of a set with splits. Raises ValueError for an ambiguous name or none of these files, OSError if the Hub
    cannot be reached."""
    if not name.startswith(HUB):
        return [name]
    is_whole = name.removeprefix(HUB).count("/") == 1
    listed = [file.uri for file in list_files(f"{name}/**" if is_whole else name)]
    files = [file for file in listed if _DATA_FILE.search(file) and not file.endswith("/dataset_infos.json")]
    if not files:
        raise ValueError(f"{name}: no .parquet, .jsonl or .json file there; give {HUB}OWNER/NAME/PATTERN")
    if not is_whole:
        return files
    train = [file for file in files if _TRAIN.search(file.removeprefix(HUB).split("/", 2)[2])]
    folders = {file.rpartition("/")[0] for file in train}
    if len(folders) > 1 or (not train and any(_SPLIT.search(file.rpartition("/")[2]) for file in files)):
        patterns = sorted({f"{HUB}{_SHARD.sub('-*', file.removeprefix(HUB))}" for file in train or files})
        raise ValueError(f"{name} holds several splits or subsets: give one of {', '.join(patterns[:8])}")
    return train or files


@contextmanager
def local_chat_file(file: str) -> Iterator[Path]:
    """Context manager that yields the local path of a file. One in a bucket or on the Hub is downloaded to a temporary
    file, which is removed at the end. Raises OSError (ReadFailure from the Hub) if it cannot be downloaded."""
    if not file.startswith(HUB):
        with local_copy(file) as path:
            yield Path(path)
        return
    with scratch_folder() as folder, open_stream(file) as source:
        copy = folder / file.rsplit("/", 1)[-1]
        with copy.open("wb") as target:
            shutil.copyfileobj(source, target)
        yield copy


def rows(path: Path) -> Iterator[tuple[str, Any]]:
    """Yield (place, JSON value) for every row of a file of JSON lines, a JSON list or parquet, plain or gzip, by its
    content. place: "line 3", "element 3" or "row 3", from 1. An invalid line yields an exception NotJson as its value.
    Raises ValueError with the file's name for a damaged file, OSError."""
    with open_bytes(path) as data:
        begin = data.read(64).lstrip(b" \t\r\n\xef\xbb\xbf")
    if begin.startswith(PARQUET):
        yield from ((f"row {number}", _without_nulls(row)) for number, row in enumerate(parquet_rows(path), 1))
    elif begin.startswith(b"["):
        yield from ((f"element {number}", _without_null_keys(row)) for number, row in enumerate(_list(path), 1))
    else:
        yield from (
            (f"line {number}", _without_null_keys(row)) for number, row in read_json_lines(path, bad_lines=True)
        )


def _list(path: Path) -> Iterator[Any]:
    """Elements of a JSON list, one in memory at a time: files of a gigabyte are common. Raises ValueError, OSError."""
    try:
        with open_bytes(path) as data:
            yield from json_list(data, path)
    except DAMAGED as error:
        raise ValueError(f"{path}: {error}; expected JSON in UTF-8, plain or gzip") from error


def messages_of(row: Mapping[str, Any]) -> tuple[Message, ...]:
    """The messages of a row, its ``messages`` or its ``prompt`` and ``completion``. Assistant turns of a prompt get
    weight 0: they are not trained on, as in TRL. Raises ValueError, KeyError or TypeError for a row of another form."""
    if "messages" in row or not {"prompt", "completion"} <= row.keys():
        for key, advice in OTHER_FORMS.items():
            if key in row and "messages" not in row:
                raise ValueError(f"a row of {', '.join(row)}: {advice}")
        return tuple(Message.from_json(message) for message in row["messages"])
    prompt, completion = (
        [{"role": role, "content": part}] if isinstance(part := row[key], str) else part
        for key, role in (("prompt", "user"), ("completion", "assistant"))
    )
    before = [Message.from_json(message) for message in prompt]
    untrained = [dataclasses.replace(one, weight=0) if one.role == "assistant" else one for one in before]
    return (*untrained, *(Message.from_json(message) for message in completion))


def tools_of(row: Mapping[str, Any]) -> Any:
    """Value of ``tools`` of a row, not yet checked; None if it has none. TRL may hold it as JSON text, which is parsed:
    raises ValueError."""
    tools = row.get("tools")
    return json.loads(tools) if isinstance(tools, str) and tools else tools


def _without_nulls(value: Any) -> Any:
    """A parquet value without the keys that other rows have: a struct has all of them."""
    if isinstance(value, Mapping):
        return {key: _without_nulls(item) for key, item in value.items() if item is not None}
    return [_without_nulls(item) for item in value] if isinstance(value, list) else value


def _without_null_keys(row: Any) -> Any:
    """A JSON row, as ``datasets`` writes it, without keys of its own and of its messages that are null because other
    rows have them. An assistant's content, which may be null, and the schemas of tools stay."""
    if not isinstance(row, Mapping):
        return row
    there = {key: value for key, value in row.items() if value is not None}
    for key in ("messages", "prompt", "completion"):
        if isinstance(messages := there.get(key), list):
            there[key] = [
                {name: value for name, value in one.items() if value is not None or name == "content"}
                if isinstance(one, Mapping)
                else one
                for one in messages
            ]
    return there
