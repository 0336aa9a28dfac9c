"""Field types of request bodies, with this project's error texts; a null means the default.

A body is a pydantic model: it parses and checks, and its schema is part of /openapi.json. Values are strict: a string
is not accepted as a number. Knows nothing of the endpoints."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    ValidatorFunctionWrapHandler,
    model_validator,
)
from pydantic_core import CoreSchema, PydanticCustomError, PydanticOmit, core_schema

from lemur_ray.serve.engine.sampling_options import Bounds
from lemur_ray.serve.openai.errors import LONE_SURROGATE, ApiError, is_utf8

UNSUPPORTED = "unsupported_parameter"

ABSENT: Any = None
"""Default of a field without one: the value is None, while the declared type is that of a stated value."""


def wrong(what: str) -> PydanticCustomError:
    """The error that a validator raises; ``what``: the text after the field's name, for example "must be a list"."""
    return PydanticCustomError("invalid_value", what)


class Body(BaseModel):
    """Base of pydantic models of JSON objects in a body. Null stands for the default; unknown fields are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore")

    expected: ClassVar[str] = "must be an object"
    """Error text for any other value, and for an object that does not ``fit``"""
    with_nulls: ClassVar[bool] = False
    """Whether a null is a value like any other"""

    @classmethod
    def fits(cls, value: dict[str, Any]) -> bool:
        """Whether the object has the basic form; if not, the error is about the whole object."""
        return True

    @model_validator(mode="before")
    @classmethod
    def _check_object(cls, value: Any) -> Any:
        if not isinstance(value, dict) or not cls.fits(value):
            raise wrong(cls.expected)
        # A missing field has the same error text as a null.
        required = (field.alias or name for name, field in cls.model_fields.items() if field.is_required())
        stated = value if cls.with_nulls else {name: v for name, v in value.items() if v is not None}
        return {**dict.fromkeys(required), **stated}

    @classmethod
    def of(cls, body: Any) -> Self:
        """Parse and check a body. Raises ApiError 400 about the first invalid field."""
        if not isinstance(body, dict):
            raise ApiError(400, f"the body is a JSON {type(body).__name__}: expected an object")
        try:
            return cls.model_validate(body)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
        param = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"]).removeprefix(".")
        code = first["type"] if first["type"] == UNSUPPORTED else "invalid_value"
        raise ApiError(400, f"{param} {first['msg']}", param=param, code=code)


@dataclass(frozen=True)
class Expects:
    """Annotation of a type with ``what``, the error text for every value that the type does not accept."""

    what: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.custom_error_schema(handler(source), "invalid_value", custom_error_message=self.what)


@dataclass(frozen=True)
class Within:
    """Annotation of an int or a float with its bounds, which the error names."""

    bounds: Bounds

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        low, high, is_float = self.bounds.low, self.bounds.high, source is float
        limits: Any = {"gt" if self.bounds.above else "ge": low, "le": high if high < math.inf else None}
        make: Any = partial(core_schema.float_schema, allow_inf_nan=False) if is_float else core_schema.int_schema

        def checked(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
            try:
                return handler(value)
            except ValidationError:
                if isinstance(value, bool) or not isinstance(value, int | float if is_float else int):
                    raise wrong("must be a number" if is_float else "must be an integer") from None
                raise wrong(f"is {value}: must be {self.bounds}") from None

        return core_schema.no_info_wrap_validator_function(checked, make(**limits, strict=True))


class Unsupported:
    """Annotation of an unsupported field: values other than ``harmless`` are refused; it is left out of the schema."""

    def __init__(self, *harmless: Any):
        self._harmless = harmless

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(self._checked)

    def __get_pydantic_json_schema__(self, schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        raise PydanticOmit

    def _checked(self, value: Any) -> Any:
        if any(value == h and isinstance(value, bool) == isinstance(h, bool) for h in self._harmless):
            return None
        raise PydanticCustomError(UNSUPPORTED, "is not supported by this server")


def precondition(fits: Callable[[Any], object], what: str) -> BeforeValidator:
    """Pydantic annotation that checks the raw value before its contents: ``fits`` must return something true. what: the
    error text after the field's name."""

    def checked(value: Any) -> Any:
        if not fits(value):
            raise wrong(what)
        return value

    return BeforeValidator(checked)


def checked_text(text: str) -> str:
    """The same text. Raises PydanticCustomError for lone surrogates, which are no valid Unicode."""
    if not is_utf8(text):
        raise wrong(LONE_SURROGATE)
    return text


Flag = Annotated[bool, Expects("must be true or false")]
Whole = Annotated[int, Expects("must be an integer")]
Schema = Annotated[dict[str, Any], Expects("must be a JSON schema")]
Text = Annotated[str, Expects("must be a string"), AfterValidator(checked_text)]
"""Any text without lone surrogates, which JSON can spell"""
NonEmptyText = Annotated[str, Field(min_length=1), AfterValidator(checked_text), Expects("must be a string")]
"""Text that is not empty"""
ModelName = Annotated[str, Field(min_length=1), Expects("must be the name of a model: see /v1/models")]


def described(body: type[Body], model: str) -> dict[str, Any]:
    """Value of FastAPI's ``openapi_extra`` for a route: JSON schema of its body, ``model`` as the only model."""
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
