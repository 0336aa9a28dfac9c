"""Schema validation of custom objects, by their CustomResourceDefinitions, and of Kubernetes' own objects.

Definitions come from ``kubectl get crd -o json`` or the files of a release. The API server silently drops unknown
fields; here they are errors. Knows no rules.
"""

import gzip
import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import yaml

from cluster.checking.documents import LOADER, Document

KUBERNETES = "1.37"
"""Version of Kubernetes whose objects are validated; later fields are refused."""
_KINDS = re.compile(r'^    kind: (\w+)$|"kind": *"(\w+)"', re.MULTILINE)


class SchemaMissing(Exception):
    """Raised when there is no schema for a document; the message says how to get one."""


class Schemas:
    """Schemas by API version and kind, read on first use."""

    def __init__(self, folder: Path | None) -> None:
        """folder: CustomResourceDefinitions as .yaml or .json, also .gz; None: only Kubernetes' own objects."""
        self._files: dict[str, list[Path]] = {}
        self._loaded: dict[tuple[str, str], Mapping[str, Any]] = {}
        for path in sorted(folder.iterdir()) if folder else ():
            if path.name.removesuffix(".gz").endswith((".yaml", ".yml", ".json")):
                for kinds in _KINDS.findall(_text(path)):
                    self._files.setdefault(kinds[0] or kinds[1], []).append(path)

    def problems(self, document: Document) -> list[str]:
        """Validate a document; returns the error messages, empty if it is valid. Raises SchemaMissing."""
        group = document.api.rpartition("/")[0]
        if "." in group and not group.endswith(".k8s.io"):
            return self._against(document)
        return _of_kubernetes(document)

    def _against(self, document: Document) -> list[str]:
        key = (document.api, document.kind)
        for path in self._files.pop(document.kind, ()):
            for definition in definitions(path):
                self._loaded |= schemas_of(definition)
        if key not in self._loaded:
            raise SchemaMissing(
                f"no schema of {document.api} {document.kind}: kubectl get crd -o json > crds/crds.json, then "
                "--crds crds"
            )
        errors = jsonschema.Draft7Validator(self._loaded[key]).iter_errors(document.value)
        return sorted(sentence for error in errors for sentence in _sentences(error))


def definitions(path: Path) -> Iterator[Mapping[str, Any]]:
    """The CustomResourceDefinitions of a file."""
    text = _text(path)
    values = [json.loads(text)] if ".json" in path.suffixes else yaml.load_all(text, LOADER)
    for value in values:
        for item in (value or {}).get("items", [value]):
            if item and item.get("kind") == "CustomResourceDefinition":
                yield item


def schemas_of(definition: Mapping[str, Any]) -> dict[tuple[str, str], Mapping[str, Any]]:
    """JSON schemas of a definition's served versions, by API version and kind."""
    spec = definition["spec"]
    schemas: dict[tuple[str, str], Mapping[str, Any]] = {}
    for version in spec["versions"]:
        if version.get("served"):
            schema = closed(version["schema"]["openAPIV3Schema"])
            schema["properties"] = {"apiVersion": {}, "kind": {}, "metadata": {}} | schema.get("properties", {})
            schemas[f"{spec['group']}/{version['name']}", spec["names"]["kind"]] = schema
    return schemas


def closed(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A structural schema as JSON schema draft 7 that allows no unnamed fields."""
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    out = {k: v for k, v in schema.items() if k in ("type", "enum", "required", "pattern", "minimum", "maximum")}
    out |= {k: v for k, v in schema.items() if k in ("minLength", "maxLength", "minItems", "maxItems")}
    if fields := schema.get("properties"):
        out["properties"] = {name: closed(field) for name, field in fields.items()}
        if not schema.get("x-kubernetes-preserve-unknown-fields"):
            out["additionalProperties"] = False
    elif isinstance(schema.get("additionalProperties"), dict):
        out["additionalProperties"] = closed(schema["additionalProperties"])
    if "items" in schema:
        out["items"] = closed(schema["items"])
    if schema.get("nullable") and isinstance(out.get("type"), str):
        out["type"] = [out["type"], "null"]
    return out


def _of_kubernetes(document: Document) -> list[str]:
    try:
        import kubernetes_validate
    except ModuleNotFoundError:
        raise SchemaMissing(
            f"no schema of {document.api} {document.kind}: pip install 'lemur-ray[manifests]', which brings Kubernetes'"
        ) from None
    try:
        kubernetes_validate.validate(dict(document.value), KUBERNETES, strict=True)
    except kubernetes_validate.SchemaNotFoundError:
        return [f"Kubernetes {KUBERNETES} has no {document.kind} in {document.api or 'no apiVersion'}"]
    except kubernetes_validate.ValidationError as error:
        return list(_sentences(error))
    return []


def _sentences(error: jsonschema.ValidationError) -> Iterator[str]:
    """One message for an error; for a field of several possible types, about the nearest type."""
    while error.context:
        error = min(error.context, key=lambda inner: -len(inner.absolute_path))
    place = ".".join(map(str, error.absolute_path)) or "the document"
    yield f"{place}: {error.message[:300]}"


@cache
def _text(path: Path) -> str:
    data = path.read_bytes()
    return (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
