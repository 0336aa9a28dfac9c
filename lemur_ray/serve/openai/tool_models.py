"""The bodies of tools: what a request offers, which of them it wants called, and calls of earlier turns.

Knows nothing of how a model is told of them or how it calls.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field

from lemur_ray.serve.openai.body_fields import Body, Says, Schema, Text, wrong
from lemur_ray.serve.openai.errors import ApiError, is_utf8, spelled

_FORM = "must be an object {type: function, function: {name, description, parameters}}"


def _spelled(schema: dict[str, Any]) -> dict[str, Any]:
    try:
        spelled(schema, "")
    except ApiError as error:
        raise wrong(str(error).strip()) from error
    return schema


class Function(Body):
    """What can be called."""

    expected: ClassVar[str] = _FORM

    name: Annotated[
        str, Field(pattern="^[a-zA-Z0-9_-]{1,64}$"), Says("must be 1 to 64 letters, digits, underscores or dashes")
    ]
    description: Text = ""
    parameters: Annotated[Schema, AfterValidator(_spelled)] = Field(default={})

    def described(self) -> dict[str, Any]:
        """As the model reads it."""
        return {"name": self.name, "description": self.description, "parameters": self.parameters}


class Tool(Body):
    """An entry of ``tools``."""

    expected: ClassVar[str] = _FORM

    type: Literal["function"]
    function: Function

    @classmethod
    def fits(cls, value: dict[str, Any]) -> bool:
        return value.get("type") == "function" and isinstance(value.get("function"), dict)


class Named(Body):
    """A function by its name."""

    name: str


class NamedChoice(Body):
    """``tool_choice`` that names one."""

    type: Literal["function"]
    function: Named


ToolChoice = Annotated[
    Literal["none", "auto", "required"] | NamedChoice, Says("must be none, auto, required, or name a function of tools")
]


class SpokenFunction(Body):
    """What was called, with arguments as text."""

    name: str
    arguments: str


class SpokenCall(Body):
    """An entry of ``tool_calls``."""

    expected: ClassVar[str] = "must be an object with function: {name, arguments}, both strings"

    function: SpokenFunction

    @classmethod
    def fits(cls, value: dict[str, Any]) -> bool:
        function = value.get("function")
        texts = (function.get("name"), function.get("arguments")) if isinstance(function, dict) else (None,)
        return all(isinstance(text, str) and is_utf8(text) for text in texts)
