"""Structured output: the grammar of a reply from a JSON schema, a regular expression, a list of choices or Lark.

Grammars are in the format of ``llguidance``. JSON has the white space of ``json.dumps``, one space after commas and
colons, because a model that may choose its white space can generate it for ever. Knows nothing of HTTP, tokenizers or
of how a grammar is enforced (``grammar_matching.py``)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import llguidance
from pydantic import Field, ValidationInfo, ValidatorFunctionWrapHandler, field_validator

from lemur_ray.serve.openai.body_fields import ABSENT, Body, Expects, NonEmptyText, Schema
from lemur_ray.serve.openai.errors import invalid, json_text

COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""llguidance options of every schema, also as ``x-guidance`` inside one."""
MAX_GRAMMAR_CHARACTERS = 2**18


@dataclass(frozen=True)
class Structure:
    """The form that a reply must have, and the request field that prescribes it."""

    grammar: str
    """Grammar in the format of llguidance"""
    param: str
    """Field of the request that prescribes it"""


def json_structure(schema: Mapping[str, Any], param: str) -> Structure:
    """The structure of JSON text that satisfies a JSON schema. param: the request's field, for errors. Raises ApiError
    400 if the schema is too long (2**18 characters) or nested too deeply."""
    text = _bounded(json_text(schema, param), param)
    try:
        grammar = llguidance.LLMatcher.grammar_from_json_schema(text, overrides=COMPACT)  # type: ignore[arg-type]
    except ValueError as error:  # nested too deeply for llguidance
        raise invalid(param, f"cannot be used: {error}") from error
    return Structure(grammar, param)


def lark_structure(grammar: str, param: str) -> Structure:
    """The structure of text that matches a grammar in llguidance's dialect of Lark, which is not compiled here. param:
    the request's field. Raises ApiError 400 if it is longer than 2**18 characters."""
    return Structure(llguidance.LLMatcher.grammar_from_lark(_bounded(grammar, param)), param)


class NamedSchema(Body):
    """A JSON schema with its name: ``json_schema`` of a response format."""

    expected: ClassVar[str] = "must be an object with name and schema"
    with_nulls: ClassVar[bool] = True

    name: str
    schema_: Schema = Field(default={"type": "object"}, alias="schema")

    @classmethod
    def fits(cls, value: dict[str, Any]) -> bool:
        return isinstance(value.get("name"), str)


class ResponseFormat(Body):
    """OpenAI's ``response_format``: text, any JSON object, or JSON of a schema."""

    expected: ClassVar[str] = "must be an object whose type is text, json_object or json_schema"

    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema = Field(default=ABSENT, validate_default=True)

    @classmethod
    def fits(cls, value: dict[str, Any]) -> bool:
        return value.get("type") in ("text", "json_object", "json_schema")

    @field_validator("json_schema", mode="wrap")
    @classmethod
    def _check_schema(cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        return handler(value) if info.data.get("type") == "json_schema" else None

    def structure(self) -> Structure | None:
        """The reply's structure, None for text. Raises ApiError 400 for a schema that is too long or too deep."""
        if self.type == "text":
            return None
        if self.type == "json_object":
            return json_structure({"type": "object"}, "response_format")
        return json_structure(self.json_schema.schema_, "response_format.json_schema.schema")


class StructuredOutputs(Body):
    """vLLM's ``structured_outputs``: a JSON schema, regular expression, list of choices or Lark grammar."""

    expected: ClassVar[str] = "must be an object with one of json, regex, choice, grammar"
    with_nulls: ClassVar[bool] = True

    json_: Schema = Field(default=ABSENT, alias="json")
    regex: NonEmptyText = Field(default=ABSENT)
    choice: Annotated[
        list[NonEmptyText],
        Field(min_length=1, fail_fast=True),
        Expects("must be a list of strings, none of them empty"),
    ] = Field(default=ABSENT)
    grammar: NonEmptyText = Field(default=ABSENT)

    @classmethod
    def fits(cls, value: dict[str, Any]) -> bool:
        return len(value) == 1 and next(iter(value)) in ("json", "regex", "choice", "grammar")

    def structure(self) -> Structure:
        """The reply's structure. Raises ApiError 400 if its schema or text is too long or too deep."""
        if self.json_ is not None:
            return json_structure(self.json_, "structured_outputs.json")
        if self.grammar is not None:
            return lark_structure(self.grammar, "structured_outputs.grammar")
        regex, param = self.regex, "structured_outputs.regex"
        if self.choice is not None:
            regex, param = "|".join(map(re.escape, self.choice)), "structured_outputs.choice"
        return Structure(llguidance.LLMatcher.grammar_from_regex(_bounded(regex, param)), param)


def _bounded(text: str, param: str) -> str:
    if len(text) > MAX_GRAMMAR_CHARACTERS:
        raise invalid(param, f"has {len(text)} characters: {MAX_GRAMMAR_CHARACTERS} are read at most")
    return text
