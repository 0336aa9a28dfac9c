"""Readers of sets with one question and one answer per record: OpenOrca, and sets in Alpaca's format."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lemur_ray.agents.messages import Message
from lemur_ray.instruct.config import SetsConfig
from lemur_ray.instruct.conversation import Conversation, Dropped, ReadResult, readable
from lemur_ray.outside_data.record_formats import BadRecord, records


def read_each(dataset: str, path: Path, convert: Callable[[Any, str], Conversation]) -> Iterator[ReadResult]:
    """Yield ``convert(record, default id)`` of each record of a JSON or parquet file, or a Dropped of set ``dataset``
    for an invalid line and where ``convert`` raises BadRecord. The default id is FILE:NUMBER: base name, and number
    from 0 with eight digits. Raises ValueError or OSError, as ``records``, if the file cannot be read."""
    for number, record in records(path):
        where = f"{path.name}:{number:08d}"
        try:
            if isinstance(record, BadRecord):
                raise record
            yield convert(record, where)
        except BadRecord as error:
            yield Dropped(dataset, where, error.reason)


def read_openorca(path: Path, config: SetsConfig) -> Iterator[ReadResult]:
    """Yield a conversation, or a Dropped, per record {id, system_prompt, question, response} of an OpenOrca file, with
    the errors of ``read_each``. An empty system prompt gives no system turn, or an empty one if
    ``config.openorca_system`` is ``lemur``."""

    def convert(record: Any, where: str) -> Conversation:
        question, response = _texts(record, "question", "response")
        (system,) = _texts({"system_prompt": "", **_without_null(record)}, "system_prompt")
        messages = [Message("user", question), Message("assistant", response)]
        if system.strip() or config.openorca_system == "lemur":
            messages.insert(0, Message("system", system))
        return Conversation("openorca", str(record.get("id") or where), tuple(messages))

    return read_each("openorca", path, convert)


def read_alpaca(dataset: str) -> Callable[[Path, SetsConfig], Iterator[ReadResult]]:
    """Reader for files of {instruction, input (optional), output}, of the set named ``dataset``: a function of (file,
    options) that yields a conversation or a Dropped per record. An input follows the instruction after a blank line."""

    def convert(record: Any, where: str) -> Conversation:
        instruction, output = _texts(record, "instruction", "output")
        (given,) = _texts({"input": "", **_without_null(record)}, "input")
        if given.strip():
            instruction = f"{instruction}\n\n{given}"
        return Conversation(dataset, where, (Message("user", instruction), Message("assistant", output)))

    return lambda path, config: read_each(dataset, path, convert)


def _without_null(record: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in record.items() if value is not None}


def _texts(record: Any, *names: str) -> list[str]:
    """Values of the named fields of a record. Raises BadRecord if one is missing or not a string."""
    if not isinstance(record, dict):
        raise BadRecord("no_object")
    missing = [name for name in names if not isinstance(record.get(name), str)]
    if missing:
        raise BadRecord(f"no_{missing[0]}")
    return [readable(record[name]) for name in names]
