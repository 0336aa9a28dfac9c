"""What the endpoints take, as /openapi.json describes it: for people who look and for programs that generate requests.

The models that check the bodies are what is described. Knows nothing else.
"""

from __future__ import annotations

from typing import Any

from lemur_ray.serve.openai.body_fields import Body


def described(body: type[Body], model: str) -> dict[str, Any]:
    """``openapi_extra`` of a route that takes such a body, for the model of that name."""
    schema = body.model_json_schema()
    whole = _whole(schema, schema.get("$defs", {}))
    whole["properties"]["model"] = {"enum": [model]}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": whole}}}}


def _whole(schema: Any, definitions: dict[str, Any]) -> Any:
    """With its definitions in their places: a page has no other place for them. Without titles, which repeat names."""
    if isinstance(schema, list):
        return [_whole(one, definitions) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _whole(definitions[schema["$ref"].removeprefix("#/$defs/")], definitions)
    left_out = {"title", "$defs", *(["default"] if schema.get("default", 0) is None else [])}
    return {name: _whole(part, definitions) for name, part in schema.items() if name not in left_out}
