"""Descriptions of request bodies for /openapi.json, made from the models that check them."""

from __future__ import annotations

from typing import Any

from lemur_ray.serve.openai.body_fields import Body


def described(body: type[Body], model: str) -> dict[str, Any]:
    """``openapi_extra`` of a route: the JSON schema of its body, in which ``model`` is the only valid model name."""
    schema = body.model_json_schema()
    inlined = _inlined(schema, schema.get("$defs", {}))
    inlined["properties"]["model"] = {"enum": [model]}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": inlined}}}}


def _inlined(schema: Any, definitions: dict[str, Any]) -> Any:
    """A schema with its definitions inlined, and without titles, which repeat names."""
    if isinstance(schema, list):
        return [_inlined(one, definitions) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(definitions[schema["$ref"].removeprefix("#/$defs/")], definitions)
    left_out = {"title", "$defs", *(["default"] if schema.get("default", 0) is None else [])}
    return {name: _inlined(part, definitions) for name, part in schema.items() if name not in left_out}
