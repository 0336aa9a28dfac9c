"""BFCL v4 (Berkeley Function Calling Leaderboard, Patil et al. 2025), the single-turn categories: ``bfcl``.

Data: ``bfcl/data/BFCL_v4_<category>.json`` and ``possible_answer/`` beside them, of the authors' repository or package.
A reply's calls are judged by the published rules (``calls.py``); in the categories of (ir)relevance it counts whether
there is a call at all.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import Any, ClassVar

from envs.language.bfcl import multi_turn
from envs.language.bfcl.calls import CATEGORIES, RELEVANCE, Call, accepted_call, fault, function_name, summary
from envs.language.bfcl.categories import SINGLE_TURN, ChosenCategories
from lemur_ray.agents.messages import Message, ToolCall
from lemur_ray.agents.trajectory import Task
from lemur_ray.benchmarks.contract import Benchmark, BenchmarkDetails, EvaluationRequest
from lemur_ray.benchmarks.needs import first_task_loads
from lemur_ray.benchmarks.question import Graded, QuestionDetails, question
from lemur_ray.benchmarks.rows import files_digest, find_file
from lemur_ray.host.json_files import read_json_lines
from lemur_ray.outside_data.source import Source
from lemur_ray.text.tools_in_words import arguments_of, read_calls, spell_out

_GIT = "git:ShishirPatil/gorilla@main/berkeley-function-call-leaderboard/bfcl_eval/data"
_FILES = [f"BFCL_v4_{one}.json" for one in CATEGORIES]
_FILES += [f"possible_answer/BFCL_v4_{one}.json" for one in CATEGORIES if one not in RELEVANCE]
SOURCES = tuple(
    Source(f"bfcl/data/{file}", f"{_GIT}/{file}", "", 52_000 if "/" in file else 609_000, "Apache-2.0")  # means
    for file in _FILES
)
_HELP = "BFCL v4: bfcl_eval/data of ShishirPatil/gorilla, or of its package; Apache-2.0; python jobs/fetch_data.py bfcl"
_HOMES = ("bfcl/data", "bfcl/bfcl_eval/data", "bfcl")
_LANGUAGES = {"simple_java": "Java", "simple_javascript": "JavaScript"}
_TYPES = {  # JSON schema type of a parameter's type; all others are strings
    **dict.fromkeys(("integer", "byte", "short", "long", "Bigint"), "integer"),
    **dict.fromkeys(("number", "float", "double"), "number"), **dict.fromkeys(("boolean", "bool"), "boolean"),
    **dict.fromkeys(("array", "list", "tuple", "ArrayList", "Array", "Queue", "Stack"), "array"),
    **dict.fromkeys(("dict", "object", "HashMap", "Hashtable"), "object"),
}  # fmt: skip


@dataclass(frozen=True)
class BfclOptions(ChosenCategories):
    """Command-line options of BFCL: which of the categories ``EVERY`` are played."""

    EVERY: ClassVar[Sequence[str]] = CATEGORIES


def _load(options: BfclOptions, request: EvaluationRequest) -> Iterator[Task]:
    data = request.data_folder("what BFCL asks")
    for category in options.played:
        parts = [""] if category in RELEVANCE else ["", "possible_answer/"]
        paths = [find_file(data, [f"{home}/{part}BFCL_v4_{category}.json" for home in _HOMES], _HELP) for part in parts]
        accepted = {row["id"]: row["ground_truth"] for path in paths[1:] for _, row in read_json_lines(path)}
        digest = files_digest(*paths)
        for _, row in read_json_lines(paths[0]):
            reference = {"category": category, "functions": row["function"], "accepted": accepted.get(row["id"], [])}
            tools = [_offered(function, category) for function in row["function"]]
            details = QuestionDetails(tools=tools, native=options.tools == "native", gold=_gold(reference), data=digest)
            messages = [Message.from_json(message) for message in row["question"][0]]
            yield question("bfcl", f"bfcl/{row['id']}", category, messages, f"{__name__}:grade", reference, details)


def _offered(function: Mapping[str, Any], category: str) -> dict[str, Any]:
    """A function as a tool in OpenAI's format, with the published hints about its language and types."""
    tool = deepcopy(dict(function)) | {"name": function_name(function["name"])}
    language = _LANGUAGES.get(category, "")
    syntax = {"": "Python 3", "Java": "Java 8 SDK"}.get(language, language)
    tool["description"] += f" Note that the provided function is in {syntax} syntax."
    properties = tool["parameters"]["properties"]
    for parameter in properties.values() if language else ():
        _as_source(parameter, language)
    tool["parameters"] |= {"type": "object", "properties": _schemas(properties)}
    return {"type": "function", "function": tool}


def _as_source(parameter: dict[str, Any], language: str) -> None:
    """Describe a parameter of another language than Python, whose value is a text of its source."""
    kind = parameter["type"]
    hint = f"This is {language} {kind} type parameter in string representation."
    if kind == "any":
        hint = f"This parameter can be of any type of {language} object in string representation."
    if kind in ("ArrayList", "Array", "array"):
        elements = parameter.pop("items")["type"]
        hint += f" The list elements are of type {elements}; they are not in string representation."
    if kind == "dict" and (entries := parameter.pop("properties", None)):
        hint += " The dictionary entries have the following schema; they are not in string representation. "
        hint += json.dumps(entries)
    parameter |= {"type": "string", "description": f"{parameter.get('description', '')} {hint}"}


def _schemas(properties: dict[str, Any]) -> dict[str, Any]:
    """The parameters with JSON schema types in place of those of the data, nested ones included."""
    for parameter in properties.values():
        if parameter.get("type") == "float":
            parameter |= {"format": "float"}
            parameter["description"] = f"{parameter.get('description', '')} This is a float type value."
        _schema(parameter)
    return properties


def _schema(parameter: dict[str, Any]) -> None:
    parameter["type"] = _TYPES.get(parameter.get("type", "string"), "string")
    if "properties" in parameter:
        _schemas(parameter["properties"])
    elif isinstance(parameter.get("items"), dict):
        _schema(parameter["items"])


def grade(reply: str, options: Mapping[str, Any]) -> Graded:
    """Score 1 if the reference accepts the reply's calls. In the categories ``RELEVANCE``: if the reply has well-formed
    calls where a function fits (live_relevance), or has none elsewhere."""
    reference = options["reference"]
    category, (_, written) = reference["category"], read_calls(reply)
    calls: list[Call] = [(one.name, given) for one in written if (given := arguments_of(one)) is not None]
    malformed = len(calls) < len(written)
    shown = json.dumps(calls, ensure_ascii=False)[:2000] if calls else "no call"
    if category in RELEVANCE:
        has_call = bool(calls) and not malformed
        return Graded(float(has_call == (category == "live_relevance")), shown)
    why = fault(calls, reference["functions"], reference["accepted"], category)
    why = "the arguments of a call are no JSON object" if malformed else why
    return Graded(float(not why), shown, why)


def _gold(reference: Mapping[str, Any]) -> str | None:
    """A reply that the published checker accepts; None if it accepts none that can be written."""
    category, functions = reference["category"], reference["functions"]
    calls = [accepted_call(answer, functions, category) for answer in reference["accepted"]]
    calls = [(function_name(functions[0]["name"]), {})] if category == "live_relevance" else calls
    written = [ToolCall(name, json.dumps(arguments, ensure_ascii=False)) for name, arguments in calls]
    gold = spell_out("" if calls else "None of the functions can answer this.", written)
    return gold if grade(gold, {"reference": reference}).score == 1 else None


_PATTERNS = tuple(f"{home}/BFCL_v4_*.json" for home in _HOMES)
_DETAILS = BenchmarkDetails("3641, single-turn", notes=summary, file_patterns=_PATTERNS, protocol=SINGLE_TURN)
BENCHMARKS = {
    "": Benchmark(
        BfclOptions, _load, {"full": 1024, "brief": 1024}, needs=first_task_loads(_load), sources=SOURCES,
        has_hints=True, details=_DETAILS,
    ),
    "multi_turn": multi_turn.multi_turn(lambda function: _offered(function, "")),
}  # fmt: skip
