"""What the fields of a body are made of: types that say in our words what is wrong with a value; nulls are defaults.

A body is a pydantic model: it parses, it holds the limits, and its schema is the page that describes it. Values are
strict: no string is taken for a number. Knows nothing of the endpoints.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
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
"""Default of a field that has none: it is None then, and its type is that of a value that was given."""


def wrong(what: str) -> PydanticCustomError:
    """Raised by a validator: what the field must be. Braces in it stay braces."""
    return PydanticCustomError("invalid_value", what)


class Body(BaseModel):
    """An object of a body. Nulls stand for defaults; fields that nobody knows are ignored."""

    model_config = ConfigDict(strict=True, extra="ignore")

    expected: ClassVar[str] = "must be an object"
    """What is said of another value, and of an object that does not ``fit``"""
    with_nulls: ClassVar[bool] = False
    """A null is a value as any other"""

    @classmethod
    def fits(cls, value: dict[str, Any]) -> bool:
        """Whether the object is one of these at all; if not, the error is about it as a whole."""
        return True

    @model_validator(mode="before")
    @classmethod
    def _an_object(cls, value: Any) -> Any:
        if not isinstance(value, dict) or not cls.fits(value):
            raise wrong(cls.expected)
        # A field that is missing says the same as one that is null.
        required = (field.alias or name for name, field in cls.model_fields.items() if field.is_required())
        given = value if cls.with_nulls else {name: v for name, v in value.items() if v is not None}
        return {**dict.fromkeys(required), **given}

    @classmethod
    def of(cls, body: Any) -> Self:
        """Check a body. Raises ApiError 400 about the first field that is wrong."""
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
class Says:
    """Of a type: what is said of any value that it does not take, whatever is wrong inside."""

    what: str

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return core_schema.custom_error_schema(handler(source), "invalid_value", custom_error_message=self.what)


@dataclass(frozen=True)
class Within:
    """Annotates an int or a float with its bounds, which the error names."""

    bounds: Bounds

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        low, high = self.bounds.low, self.bounds.high
        limits: Any = {"gt" if self.bounds.above else "ge": low, "le": high if high < math.inf else None}
        number: CoreSchema
        if source is float:
            number = core_schema.float_schema(**limits, allow_inf_nan=False, strict=True)
        else:
            number = core_schema.int_schema(**limits, strict=True)

        def checked(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
            try:
                return handler(value)
            except ValidationError:
                raise wrong(self._what(value, source is float)) from None

        return core_schema.no_info_wrap_validator_function(checked, number)

    def _what(self, value: Any, is_float: bool) -> str:
        if isinstance(value, bool) or not isinstance(value, int | float if is_float else int):
            return "must be a number" if is_float else "must be an integer"
        return f"is {value}: must be {self.bounds}"


class Unsupported:
    """Of a field: known and not offered, so not described. Refused but for values that ask for nothing."""

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


def where(fits: Callable[[Any], object], what: str) -> BeforeValidator:
    """Of a type: a condition on the bare value, before what is inside is looked at."""

    def checked(value: Any) -> Any:
        if not fits(value):
            raise wrong(what)
        return value

    return BeforeValidator(checked)


def _of_text(text: str) -> str:
    if not is_utf8(text):
        raise wrong(LONE_SURROGATE)
    return text


Flag = Annotated[bool, Says("must be true or false")]
Whole = Annotated[int, Says("must be an integer")]
Schema = Annotated[dict[str, Any], Says("must be a JSON schema")]
Text = Annotated[str, Says("must be a string"), AfterValidator(_of_text)]
"""Any text; half of a surrogate pair, which JSON can spell, is none"""
Spoken = Annotated[str, Field(min_length=1), AfterValidator(_of_text), Says("must be a string")]
"""Text that is not empty"""
ModelName = Annotated[str, Field(min_length=1), Says("must be the name of a model: see /v1/models")]
