"""Body models of tools: definitions, ``tool_choice``, and calls of earlier turns.

Knows nothing of how tools are described to a model or how it calls them."""

import json
from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, field_validator

from lemur_ray.serve.openai.body_fields import Body, Expects, Schema, Text, wrong
from lemur_ray.serve.openai.errors import ApiError, is_utf8, json_text

_FORM = "must be an object {type: function, function: {name, description, parameters}}"

_TYPES = ("object", "array", "string", "number", "integer", "boolean", "null")
_OF_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS = ("anyOf", "allOf", "oneOf", "prefixItems")
_SCHEMAS = ("items", "additionalProperties", "propertyNames", "contains", "not", "if", "then", "else")
"""Keywords whose value is an object of schemas (_OF_SCHEMAS), a list of schemas, or a schema."""


def _arguments(schema: dict[str, Any]) -> dict[str, Any]:
    """Validate the JSON schema of a function's arguments, which must be an object."""
    try:
        json_text(schema, "")
    except ApiError as error:
        raise wrong(str(error).strip()) from error
    if "object" not in _as_list(schema.get("type", "object")):
        kind = json.dumps(schema["type"])
        raise wrong(f'must be the schema of an object, because arguments are one: its type is {kind}, not "object"')
    parts = [("", schema)]
    for path, part in parts:  # grows during the loop
        parts += [(f"{path}.{inner}", value) for inner, value in _inner(path, part)]
    return schema


def _inner(path: str, schema: Any) -> Iterator[tuple[str, Any]]:
    """The schemas directly inside a schema, with relative paths. Raises PydanticCustomError for an invalid one."""
    if isinstance(schema, bool):
        return
    if not isinstance(schema, dict):
        excerpt = f"{json.dumps(schema)[:80]} at {path[1:]}"
        raise wrong(f'has {excerpt}: a schema is an object, for example {{"type": "string"}}, or true or false')
    for name in _as_list(schema.get("type", "object")):
        if name not in _TYPES:
            raise wrong(
                f"has the type {json.dumps(name)[:80]} at {path[1:] or 'its root'}: known are {', '.join(_TYPES)}"
            )
    for keyword in schema.keys() & {*_OF_SCHEMAS, *_LISTS, *_SCHEMAS}:
        value: Any = schema[keyword]
        kind: type[Any] = dict if keyword in _OF_SCHEMAS else list
        if keyword in _SCHEMAS and not (keyword == "items" and isinstance(value, list)):
            yield keyword, value
        elif not isinstance(value, kind):
            of = "an object" if kind is dict else "a list"
            raise wrong(
                f"has {json.dumps(value)[:80]} at {path[1:]}{'.' * bool(path)}{keyword}: must be {of} of schemas"
            )
        else:
            named = value.items() if isinstance(value, dict) else enumerate(value)
            yield from ((f"{keyword}.{name}", inner) for name, inner in named)


def _as_list(kind: Any) -> list[Any]:
    return kind if isinstance(kind, list) else [kind]


class Function(Body):
    """The function of a tool: name, description, parameters."""

    expected: ClassVar[str] = _FORM

    name: Annotated[
        str, Field(pattern="^[a-zA-Z0-9_-]{1,64}$"), Expects("must be 1 to 64 letters, digits, underscores or dashes")
    ]
    description: Text = ""
    parameters: Annotated[Schema, AfterValidator(_arguments)] = Field(default={})

    def described(self) -> dict[str, Any]:
        """Name, description and parameters, as the model reads them."""
        return {"name": self.name, "description": self.description, "parameters": self.parameters}


class Tool(Body):
    """A tool that the model may call, an entry of ``tools`` of a request; only functions are supported."""

    expected: ClassVar[str] = _FORM

    type: Literal["function"]
    function: Function

    @classmethod
    def fits(cls, value: dict[str, Any]) -> bool:
        return value.get("type") == "function" and isinstance(value.get("function"), dict)


class Named(Body):
    """The function that a ``tool_choice`` names."""

    name: str


class NamedChoice(Body):
    """A ``tool_choice`` that names the function which the reply must call."""

    type: Literal["function"]
    function: Named


ToolChoice = Annotated[
    Literal["none", "auto", "required"] | NamedChoice,
    Expects("must be none, auto, required, or name a function of tools"),
]


def _arguments_text(arguments: dict[str, Any] | None) -> str:
    return json.dumps(arguments or {}, ensure_ascii=False)


class EarlierFunction(Body):
    """Function name and arguments of a call in an earlier turn; arguments given as an object become JSON text."""

    name: str
    arguments: str = "{}"

    @field_validator("arguments", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        return _arguments_text(value) if isinstance(value, dict) else value


class EarlierCall(Body):
    """A call of a tool in an earlier turn of the assistant, an entry of its ``tool_calls``."""

    expected: ClassVar[str] = "must be an object with function: {name, arguments}, the arguments an object or its text"

    function: EarlierFunction
    id: Text = ""

    @classmethod
    def fits(cls, value: dict[str, Any]) -> bool:
        function = value.get("function")
        function = function if isinstance(function, dict) else {}
        name, arguments = function.get("name"), function.get("arguments")
        if not isinstance(name, str) or not isinstance(arguments, str | dict | None):
            return False
        try:
            return is_utf8(name) and is_utf8(arguments if isinstance(arguments, str) else _arguments_text(arguments))
        except RecursionError:
            return False
