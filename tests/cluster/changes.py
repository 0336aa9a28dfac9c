"""Changes of the documents of cluster/, and what check.py finds in a document that was changed."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cluster import check
from cluster.checking.documents import Document, parsed, read
from cluster.checking.rules import Breach

HERE = Path(__file__).resolve().parents[2] / "cluster"
Change = Callable[[dict[str, Any]], Any]
V4, V5E, CPU, MULTI = "raycluster-tpu-v4", "raycluster-tpu-v5e", "raycluster-cpu", "raycluster-tpu-multislice"
GPUS = "raycluster-gpu"
PRETRAIN, EVAL, SERVE = "rayjob-pretrain", "rayjob-agent-eval", "rayservice-serve"
INSTRUCT = "rayjob-instruct"


def put(path: str, value: Any) -> Change:
    """Sets a field; ``-`` as the value takes it out. A slash within a name is written ``~``."""

    def change(document: dict[str, Any]) -> None:
        *way, last = [int(step) if step.isdigit() else step.replace("~", "/") for step in path.split("/")]
        at: Any = document
        for step in way:
            at = at.setdefault(step, {}) if isinstance(at, dict) else at[step]
        if value == "-":
            del at[last]
        else:
            at[last] = value

    return change


def of_env(path: str, name: str, value: str | None) -> Change:
    def change(document: dict[str, Any]) -> None:
        at: Any = document
        for step in path.split("/"):
            at = at[int(step) if step.isdigit() else step]
        at[:] = [entry for entry in at if entry["name"] != name] + ([{"name": name, "value": value}] if value else [])

    return change


def replaced(field: str, old: str, new: str) -> Change:
    def change(document: dict[str, Any]) -> None:
        assert old in document["spec"][field]
        document["spec"][field] = document["spec"][field].replace(old, new)

    return change


WORKER = "spec/workerGroupSpecs/0"
POD = f"{WORKER}/template/spec"
BOX = f"{POD}/containers/0"
HEAD = "spec/headGroupSpec/template/spec"
LIMITS = f"{BOX}/resources/limits"
JOB_WORKER = "spec/rayClusterSpec/workerGroupSpecs/0"
SERVED = "spec/rayClusterConfig/workerGroupSpecs/0"
QUEUE_LABEL = "metadata/labels/kueue.x-k8s.io~queue-name"

SIDES = ("limits", "requests")


def all_of(*changes: Change) -> Change:
    def change(document: dict[str, Any]) -> None:
        for one in changes:
            one(document)

    return change


@functools.cache
def documents(name: str) -> tuple[Document, ...]:
    return tuple(read(HERE / f"{name}.yaml", is_template=True))


def changed(name: str, change: Change) -> list[Document]:
    values: Any = [copy.deepcopy(dict(document.value)) for document in documents(name)]
    change(values if len(values) > 1 else values[0])
    return [Document(documents(name)[0].where, value, is_template=True) for value in values]


def text_of(name: str) -> str:
    return (HERE / f"{name}.yaml").read_text()


def edited(name: str, *pairs: tuple[str, str]) -> list[Document]:
    """A shipped file whose text was changed with an editor, as documents of a user."""
    text = text_of(name)
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return parsed(text, documents(name)[0].where)


def found(documents: list[Document]) -> list[Breach]:
    breaches = [breach for _, breach in check.breaches(documents)]
    assert all(isinstance(breach, Breach) for breach in breaches), breaches
    return [breach for breach in breaches if isinstance(breach, Breach)]
