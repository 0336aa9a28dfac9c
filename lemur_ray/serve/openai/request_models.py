"""Request bodies as pydantic models: every field with its limits, which also make the schema of /openapi.json.

Known but unsupported parameters are refused unless they have a harmless value. Knows nothing of what a request means
for an engine (``checked_requests.py``)."""

import json
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    create_model,
    field_validator,
)

from lemur_ray.serve.engine.sampling_options import NUMBERS, Bounds, NumberOption
from lemur_ray.serve.engine.token_logprobs import ALTERNATIVES
from lemur_ray.serve.openai.body_fields import (
    ABSENT,
    Body,
    Expects,
    Flag,
    ModelName,
    Text,
    Unsupported,
    Whole,
    Within,
    checked_text,
    precondition,
    wrong,
)
from lemur_ray.serve.openai.structured_output import ResponseFormat, StructuredOutputs
from lemur_ray.serve.openai.tool_models import EarlierCall, Tool, ToolChoice

MAX_CHOICES = 128
MAX_SESSION_CHARACTERS = 512
MAX_STOPS, MAX_STOP_CHARACTERS = 16, 1024

WITHOUT_EFFECT = frozenset({"user", "metadata", "store", "service_tier", "safety_identifier"})
"""Known parameters that have no effect, with any value."""


def _bias_keys(value: Any) -> Any:
    """Drop null biases from ``logit_bias``. Raises a validation error unless all keys are token ids."""
    if not isinstance(value, dict) or not all(key.isdecimal() and len(key) < 10 for key in value):
        raise wrong("must be an object whose keys are token ids")
    return {token: bias for token, bias in value.items() if bias is not None}


SomeIds = Annotated[list[int], Field(min_length=1, fail_fast=True)]
Role = Literal["system", "developer", "user", "assistant", "tool"]
StopString = Annotated[str, Field(min_length=1, max_length=MAX_STOP_CHARACTERS)]
Stop = Annotated[
    StopString | Annotated[list[StopString], Field(max_length=MAX_STOPS, fail_fast=True)],
    Expects(f"must be a string or a list of strings: {MAX_STOPS} of 1 to {MAX_STOP_CHARACTERS} characters at most"),
    AfterValidator(lambda stop: [stop] if isinstance(stop, str) else stop),
]
_BIAS_WITH_ERRORS = TypeAdapter(dict[str, Annotated[float, Within(Bounds(-100, 100))]], config=ConfigDict(strict=True))


def _validated_bias(value: Any, handler: ValidatorFunctionWrapHandler) -> Any:
    """Validate in Rust, and only after an error again with our error texts: there may be a bias for every token."""
    try:
        return handler(value)
    except ValidationError:
        return _BIAS_WITH_ERRORS.validate_python(value)


OneBias = Annotated[float, Field(ge=-100, le=100, allow_inf_nan=False)]
Bias = Annotated[dict[str, OneBias], WrapValidator(_validated_bias), BeforeValidator(_bias_keys)]
Session = Annotated[
    str,
    Field(max_length=MAX_SESSION_CHARACTERS),
    Expects(f"must be a string of at most {MAX_SESSION_CHARACTERS} characters"),
]
Alternatives = Annotated[int, Within(Bounds(0, ALTERNATIVES))]


class StreamOptions(Body):
    expected: ClassVar[str] = "must be an object, and only together with stream: true"

    include_usage: Flag = False


class ModelBody(Body):
    """Fields of chat and completion bodies: model, streaming, seed."""

    model: ModelName
    stream: Flag = False
    stream_options: StreamOptions = Field(default=ABSENT)
    seed: Whole = Field(default=ABSENT)


def _number_field(option: NumberOption) -> Any:
    """Type and default of a sampling option's field; no default if ``generation_config.json`` may set it."""
    default = ABSENT if option.in_generation_config else option.http_default
    return Annotated[type(option.default), Within(option.http)], Field(default=default)


if TYPE_CHECKING:
    NumbersBody = ModelBody
else:
    NumbersBody = create_model(
        "NumbersBody", __base__=ModelBody, **{name: _number_field(option) for name, option in NUMBERS.items()}
    )


class SamplingBody(NumbersBody):
    """Fields that chat and completion bodies share."""

    logit_bias: Bias = Field(default={})
    structured_outputs: StructuredOutputs = Field(default=ABSENT)
    n: Annotated[int, Within(Bounds(1, MAX_CHOICES))] = 1
    stop: Stop = Field(default=[])
    return_token_ids: Flag = False
    """Whether to return the prompt's ids, and in a stream those of every piece; a whole choice always has its ids"""
    prompt_cache_key: Session = ""
    """The same for all turns of a conversation"""

    @field_validator("stream_options", mode="before")
    @classmethod
    def _check_stream_options(cls, value: Any, info: ValidationInfo) -> Any:
        if not info.data.get("stream"):
            raise wrong(StreamOptions.expected)
        return value

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with the numbers of tokens."""
        return bool(self.stream_options and self.stream_options.include_usage)

    @classmethod
    def unknown(cls, body: dict[str, Any]) -> tuple[str, ...]:
        """Names of parameters in ``body`` that this server does not know, sorted."""
        return tuple(sorted(body.keys() - cls.model_fields.keys() - WITHOUT_EFFECT))


_A_LIST = precondition(lambda v: isinstance(v, list), "must be a list")


class TextPart(Body):
    type: Literal["text"]
    text: str


class Turn(Body):
    """One message of a conversation in a request: role, content, calls of tools."""

    expected: ClassVar[str] = "must be an object with role and content"

    role: Annotated[Role, Expects("must be one of system, developer, user, assistant, tool")]
    tool_calls: Annotated[list[EarlierCall], _A_LIST] = Field(default=[])
    tool_call_id: Text = ""
    """Id of the call that a turn of the role ``tool`` answers"""
    name: Text = ""
    reasoning_content: Text = ""
    """Text of the assistant's reasoning in this turn"""
    thinking: Text = ""
    """Another name of ``reasoning_content``"""
    reasoning: Text = ""
    """Newer name of ``reasoning_content``"""
    content: Annotated[str | list[TextPart], Expects("may hold parts of type text only")] = Field(
        default=ABSENT, validate_default=True
    )

    @field_validator("tool_calls", mode="wrap")
    @classmethod
    def _check_role(cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        return handler(value) if info.data.get("role") == "assistant" else []

    @field_validator("content", mode="wrap")
    @classmethod
    def _check_content(cls, value: Any, handler: ValidatorFunctionWrapHandler, info: ValidationInfo) -> Any:
        if value is None and info.data.get("tool_calls"):
            return ""
        if not isinstance(value, str | list):
            raise wrong("must be a string or a list of text parts")
        parts = handler(value)
        return checked_text(parts if isinstance(parts, str) else "".join(part.text for part in parts))

    @property
    def text(self) -> str:
        """The content as one text; "" for a turn that only has calls."""
        return self.content if isinstance(self.content, str) else ""


Tools = Annotated[list[Tool], Field(fail_fast=True), _A_LIST]
Messages = Annotated[
    list[Turn],
    Field(min_length=1, fail_fast=True),
    precondition(lambda v: isinstance(v, list) and v, "must be a list of at least one message"),
]


class TurnsBody(Body):
    """Fields of a body that are the input of a chat template."""

    messages: Messages
    tools: Tools = Field(default=[])
    add_generation_prompt: Flag = True
    continue_final_message: Flag = False
    chat_template_kwargs: Annotated[dict[str, Any], Expects("must be an object")] = Field(default={})
    documents: Annotated[list[dict[str, Any]], Expects("must be a list of objects")] = Field(default=[])
    chat_template: Annotated[Any, Unsupported()] = None

    @field_validator("chat_template_kwargs", "documents")
    @classmethod
    def _check_text(cls, value: Any) -> Any:
        checked_text(json.dumps(value, ensure_ascii=False))
        return value


class ChatBody(SamplingBody, TurnsBody):
    """Body of /v1/chat/completions. Fields annotated with ``Unsupported`` are refused unless null or a listed value."""

    max_tokens: Annotated[int, Within(Bounds(1))] = Field(default=ABSENT)
    max_completion_tokens: Annotated[int, Within(Bounds(1))] = Field(default=ABSENT)
    logprobs: Flag = False
    top_logprobs: Alternatives = Field(default=ABSENT)
    tool_choice: ToolChoice = Field(default=ABSENT)
    parallel_tool_calls: Flag = True
    response_format: ResponseFormat = Field(default=ABSENT)
    functions: Annotated[Any, Unsupported([])] = None
    function_call: Annotated[Any, Unsupported("none", "auto")] = None
    modalities: Annotated[Any, Unsupported(["text"])] = None
    audio: Annotated[Any, Unsupported()] = None
    prediction: Annotated[Any, Unsupported()] = None
    reasoning_effort: Annotated[Any, Unsupported()] = None
    verbosity: Annotated[Any, Unsupported()] = None
    web_search_options: Annotated[Any, Unsupported()] = None

    @field_validator("top_logprobs")
    @classmethod
    def _check_top_logprobs(cls, value: int, info: ValidationInfo) -> int:
        if not info.data.get("logprobs"):
            raise wrong("needs logprobs: true")
        return value


class CompletionBody(SamplingBody):
    """Body of /v1/completions. Fields annotated with ``Unsupported`` are refused unless null or a listed value."""

    echo: Flag = False
    max_tokens: Annotated[int, Within(Bounds(0))] = 16
    logprobs: Alternatives = Field(default=ABSENT)
    prompt: Annotated[
        Text
        | Annotated[list[Text], Field(min_length=1, fail_fast=True)]
        | SomeIds
        | Annotated[list[SomeIds], Field(min_length=1, fail_fast=True)],
        Expects("must be a string, a list of strings, a list of token ids or a list of such lists; none may be empty"),
    ]
    best_of: Annotated[Any, Unsupported(1)] = None
    suffix: Annotated[Any, Unsupported("")] = None

    @field_validator("max_tokens")
    @classmethod
    def _check_max_tokens(cls, value: int, info: ValidationInfo) -> int:
        """0 is valid only if the prompt is returned (``echo``)."""
        if not value and not info.data.get("echo"):
            raise wrong("is 0: must be at least 1")
        return value


class TokenizeBody(TurnsBody):
    """Body of /tokenize: either ``prompt`` (a text) or ``messages`` with the fields of ``TurnsBody``."""

    model: ModelName = Field(default=ABSENT)
    prompt: Text = Field(default=ABSENT)
    messages: Messages = Field(default=ABSENT)
    add_special_tokens: Flag = Field(default=ABSENT)
    """Whether to add the tokenizer's special tokens; by default true for ``prompt``, false for ``messages``"""
    return_token_strs: Flag = False
    split_special_tokens: Flag = False


class DetokenizeBody(Body):
    """Body of /detokenize: the ids of ``tokens``, to be returned as text."""

    model: ModelName = Field(default=ABSENT)
    tokens: Annotated[list[int], Field(fail_fast=True), Expects("must be a list of token ids")]
