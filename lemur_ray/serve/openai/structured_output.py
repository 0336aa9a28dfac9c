"""Replies of a form that the request prescribes: JSON, a JSON schema, a regular expression, a grammar.

What a request asks for becomes a grammar as ``llguidance`` reads it. JSON is written as ``json.dumps`` writes it, one
space behind commas and colons: a model that may choose its white space can go on with that for ever. Knows nothing of
HTTP, tokenizers or of how a reply is held to its grammar (``grammar_matching.py``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import llguidance

from lemur_ray.serve.openai.fields import invalid, is_utf8, spelled

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


def parse_response_format(value: Any) -> Structure | None:
    """OpenAI's ``response_format``. Raises ApiError 400."""
    param = "response_format"
    if value is None:
        return None
    kind = value.get("type") if isinstance(value, dict) else None
    if kind == "text":
        return None
    if kind == "json_object":
        return json_structure({"type": "object"}, param)
    if kind != "json_schema":
        raise invalid(param, "must be an object whose type is text, json_object or json_schema")
    given = value.get("json_schema")
    if not isinstance(given, dict) or not isinstance(given.get("name"), str):
        raise invalid(f"{param}.json_schema", "must be an object with name and schema")
    schema = given.get("schema", {"type": "object"})
    if not isinstance(schema, dict):
        raise invalid(f"{param}.json_schema.schema", "must be a JSON schema")
    return json_structure(schema, f"{param}.json_schema.schema")


_FORMS = ("json", "regex", "choice", "grammar")


def parse_structured_outputs(value: Any) -> Structure | None:
    """``structured_outputs``, vLLM's field for what OpenAI's has no words for: json, regex, choice or grammar."""
    param = "structured_outputs"
    if value is None:
        return None
    if not isinstance(value, dict) or len(value) != 1 or next(iter(value)) not in _FORMS:
        raise invalid(param, f"must be an object with one of {', '.join(_FORMS)}")
    ((form, given),) = value.items()
    param = f"{param}.{form}"
    if form == "json":
        if not isinstance(given, dict):
            raise invalid(param, "must be a JSON schema")
        return json_structure(given, param)
    if form == "choice":
        if not isinstance(given, list) or not given or not all(isinstance(c, str) and c and is_utf8(c) for c in given):
            raise invalid(param, "must be a list of strings, none of them empty")
        form, given = "regex", "|".join(map(re.escape, given))
    if not isinstance(given, str) or not given or not is_utf8(given):
        raise invalid(param, "must be a string")
    if form == "grammar":
        return lark_structure(given, param)
    return Structure(llguidance.LLMatcher.grammar_from_regex(_bounded(given, param)), param)


def _bounded(text: str, param: str) -> str:
    if len(text) > MAX_GRAMMAR_CHARACTERS:
        raise invalid(param, f"has {len(text)} characters: {MAX_GRAMMAR_CHARACTERS} are read at most")
    return text
