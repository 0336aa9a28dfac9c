"""Reads Kubernetes objects from YAML and JSON files and from samples in Markdown pages."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Unreadable(ValueError):
    """Raised for a file or text that does not hold readable objects; the message says why."""


@dataclass(frozen=True)
class Document:
    """One Kubernetes object of a manifest."""

    where: str
    """Name of the file, with the line number for a sample."""
    value: Mapping[str, Any]
    is_template: bool = False
    """Whether it is of this project and has placeholders, which a user replaces."""

    @property
    def kind(self) -> str:
        return str(self.value.get("kind", ""))

    @property
    def api(self) -> str:
        return str(self.value.get("apiVersion", ""))

    @property
    def name(self) -> str:
        metadata = self.value.get("metadata")
        return str(metadata.get("name", "")) if isinstance(metadata, Mapping) else ""

    @property
    def namespace(self) -> str:
        metadata = self.value.get("metadata")
        return str(metadata.get("namespace", "default")) if isinstance(metadata, Mapping) else "default"

    def __str__(self) -> str:
        return f"{self.where}: {self.kind or 'document'} {self.name}".rstrip()


def read(path: Path, *, is_template: bool = False) -> list[Document]:
    """The objects in a YAML, JSON or Markdown file. is_template: as in Document. Raises Unreadable."""
    text = path.read_text(encoding="utf-8")
    texts = [(text, path.name)]
    if path.suffix == ".md":
        texts = [(sample, f"{path.name}:{line}") for line, sample in samples(text, "yaml")]
    return [document for one, where in texts for document in parsed(one, where, is_template=is_template)]


def parsed(text: str, where: str, *, is_template: bool = False) -> list[Document]:
    """The objects in a YAML (or JSON) text. where: its place for messages. Raises Unreadable."""
    try:
        values = [value for value in yaml.load_all(text, LOADER) if value is not None]
    except yaml.YAMLError as error:
        raise Unreadable(f"{where} is no YAML: {' '.join(str(error).split())}") from error
    for value in values:
        if not isinstance(value, dict):
            raise Unreadable(
                f"{where} holds {type(value).__name__} {str(value)[:40]!r}: expected objects of Kubernetes"
            )
    return [Document(where, value, is_template) for value in values]


def samples(markdown: str, language: str) -> Iterator[tuple[int, str]]:
    """Yield (first line number, text) of every fenced sample of a language."""
    for fence in _FENCED.finditer(markdown):
        if fence[1] == language:
            yield markdown.count("\n", 0, fence.start()) + 2, fence[2]
