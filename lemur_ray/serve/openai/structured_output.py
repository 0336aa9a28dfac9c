"""Replies of a form that the request prescribes: JSON, a JSON schema, a regular expression, a grammar.

What a request asks for becomes a grammar as ``llguidance`` reads it. JSON is written as ``json.dumps`` writes it, one
space behind commas and colons: a model that may choose its white space can go on with that for ever. Knows nothing of
HTTP, tokenizers or of how a reply is held to its grammar (``grammar_matching.py``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import llguidance
from pydantic import Field, ValidationInfo, ValidatorFunctionWrapHandler, field_validator

from lemur_ray.serve.openai.body_fields import ABSENT, Body, Says, Schema, Spoken
from lemur_ray.serve.openai.errors import invalid, spelled

COMPACT = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""Options for every schema, also as ``x-guidance`` inside one."""

MAX_GRAMMAR_CHARACTERS = 2**18


@dataclass(frozen=True)
class Structure:
    """What a reply has to be."""

    grammar: str
    """As llguidance reads it"""
    param: str
    """Part of the request that asked for it"""


def json_structure(schema: Mapping[str, Any], param: str) -> Structure:
    """JSON of this schema. Raises ApiError 400 where it is too long or too deep."""
    text = _bounded(spelled(schema, param), param)
    try:
        grammar = llguidance.LLMatcher.grammar_from_json_schema(text, overrides=COMPACT)  # type: ignore[arg-type]
    except ValueError as error:  # nested more deeply than it reads
        raise invalid(param, f"cannot be used: {error}") from error
    return Structure(grammar, param)


def lark_structure(grammar: str, param: str) -> Structure:
    """Text of a grammar in llguidance's dialect of Lark. Raises ApiError 400 where it is too long."""
    return Structure(llguidance.LLMatcher.grammar_from_lark(_bounded(grammar, param)), param)


def regex_structure(regex: str, param: str) -> Structure:
    """Text that a regular expression describes. Raises ApiError 400 where it is too long."""
    return Structure(llguidance.LLMatcher.grammar_from_regex(_bounded(regex, param)), param)


class NamedSchema(Body):
    """``json_schema`` of a response format."""

    expected: ClassVar[str] = "must be an object with name and schema"
    with_nulls: ClassVar[bool] = True

    name: str
    schema_: Schema = Field(default={"type": "object"}, alias="schema")

    @classmethod
    def fits(cls, value: dict[str, Any]) -> bool:
        return isinstance(value.get("name"), str)


class ResponseFormat(Body):
    """OpenAI's ``response_format``."""

    expected: ClassVar[str] = "must be an object whose type is text, json_object or json_schema"

    type: Literal["text", "json_object", "json_schema"]
    json_schema: NamedSchema = Field(default=ABSENT, validate_default=True)

    @classmethod
    def fits(cls, value: dict[str, Any]) -> bool:
        return value.get("type") in ("text", "json_object", "json_schema")

    @field_validator("json_schema", mode="wrap")
    @classmethod
    def _with_its_type(cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        return handler(value) if info.data.get("type") == "json_schema" else None

    def structure(self) -> Structure | None:
        """Raises ApiError 400 for a schema that is too long or too deep."""
        if self.type == "text":
            return None
        if self.type == "json_object":
            return json_structure({"type": "object"}, "response_format")
        return json_structure(self.json_schema.schema_, "response_format.json_schema.schema")


class StructuredOutputs(Body):
    """vLLM's field for what OpenAI's has no words for."""

    expected: ClassVar[str] = "must be an object with one of json, regex, choice, grammar"
    with_nulls: ClassVar[bool] = True

    json_: Schema = Field(default=ABSENT, alias="json")
    regex: Spoken = Field(default=ABSENT)
    choice: Annotated[
        list[Spoken], Field(min_length=1, fail_fast=True), Says("must be a list of strings, none of them empty")
    ] = Field(default=ABSENT)
    grammar: Spoken = Field(default=ABSENT)

    @classmethod
    def fits(cls, value: dict[str, Any]) -> bool:
        return len(value) == 1 and next(iter(value)) in ("json", "regex", "choice", "grammar")

    def structure(self) -> Structure:
        """Raises ApiError 400 for what is too long or too deep."""
        if self.json_ is not None:
            return json_structure(self.json_, "structured_outputs.json")
        if self.grammar is not None:
            return lark_structure(self.grammar, "structured_outputs.grammar")
        regex, form = (
            (self.regex, "regex") if self.choice is None else ("|".join(map(re.escape, self.choice)), "choice")
        )
        return regex_structure(regex, f"structured_outputs.{form}")


def _bounded(text: str, param: str) -> str:
    if len(text) > MAX_GRAMMAR_CHARACTERS:
        raise invalid(param, f"has {len(text)} characters: {MAX_GRAMMAR_CHARACTERS} are read at most")
    return text
