"""Verdicts on function calls by the rules of BFCL's checker (bfcl-eval 2026.3.23, ``ast_checker``).

A call is ``{name: arguments}``; an accepted answer is ``{name: {parameter: [accepted values]}}``, where the value ""
marks a parameter that may be absent.
"""

import re
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from envs.language.bfcl.literals import java_value, javascript_value, source_text
from lemur_ray.agents.trajectory import Episode
from lemur_ray.benchmarks.question import by_category

AST = ("simple_python", "simple_java", "simple_javascript", "multiple", "parallel", "parallel_multiple")
LIVE = ("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple")
RELEVANCE = ("irrelevance", "live_irrelevance", "live_relevance")
CATEGORIES = (*AST, *LIVE, *RELEVANCE)
Call = tuple[str, Mapping[str, Any]]
TYPES: Mapping[str, Mapping[str, type]] = {
    "python": {
        "string": str, "integer": int, "float": float, "boolean": bool, "array": list, "tuple": list, "dict": dict,
        "any": str,
    },
    "java": {
        **dict.fromkeys(("byte", "short", "integer", "long"), int), "float": float, "double": float, "boolean": bool,
        **dict.fromkeys(("char", "String", "any"), str),
        **dict.fromkeys(("Array", "ArrayList", "Queue", "Stack"), list),
        "Set": set, "HashMap": dict, "Hashtable": dict,
    },
    "javascript": {
        "String": str, "integer": int, "float": float, "Bigint": int, "Boolean": bool, "dict": dict, "array": list,
        "any": str,
    },
}  # fmt: skip
"""Type of a value by language and type of the parameter."""
_LISTS = {"python": ("array", "tuple"), "java": ("Array", "ArrayList", "array"), "javascript": ("array",)}
_IGNORED = re.compile(r"[ \,\.\/\-\_\*\^]")


def function_name(name: str) -> str:
    """The name under which a function is offered: without dots, which the protocol does not allow."""
    return name.replace(".", "_")


def fault(calls: Sequence[Call], functions: Sequence[Mapping[str, Any]], accepted: Sequence[Any], category: str) -> str:
    """Why ``calls`` do not match the ``accepted`` answers of a task; empty if they do. ``functions``: the task's
    functions as the data describes them; ``category`` determines language and rule."""
    language = _language(category)
    if len(calls) != len(accepted):
        return f"{len(calls)} calls, expected {len(accepted)}"
    by_name = {function["name"]: function for function in reversed(functions)}
    left = list(calls)
    for answer in accepted:
        ((name, values),) = answer.items()
        function = by_name[name] if "multiple" in category or "parallel" in category else functions[0]
        faults = [_call_fault(call, function, values, language) for call in left]
        if all(faults):
            return faults[0]
        del left[faults.index("")]
    return ""


def _call_fault(call: Call, function: Mapping[str, Any], accepted: Mapping[str, Any], language: str) -> str:
    name, arguments = call
    parameters = function["parameters"]["properties"]
    if name != function_name(function["name"]):
        return f"calls {name!r}, expected {function_name(function['name'])!r}"
    if missing := [one for one in function["parameters"].get("required", ()) if one not in arguments]:
        return f"no parameter {missing[0]!r}"
    for parameter, value in arguments.items():
        if parameter not in parameters or parameter not in accepted:
            return f"unexpected parameter {parameter!r}"
        if not _is_accepted(value, parameters[parameter], accepted[parameter], language):
            return f"parameter {parameter!r} is {value!r}, expected one of {accepted[parameter]!r}"
    absent = [one for one, values in accepted.items() if one not in arguments and "" not in values]
    return f"no parameter {absent[0]!r}" if absent else ""


def _is_accepted(value: Any, parameter: Mapping[str, Any], accepted: Sequence[Any], language: str) -> bool:
    kind = parameter["type"]
    expected = TYPES[language][kind]
    nested_kind = parameter["items"]["type"] if kind in _LISTS[language] else ""
    nested = TYPES[language][nested_kind] if nested_kind else None
    if language != "python":
        if type(value) is not str:
            return False
        try:
            value = (java_value if language == "java" else javascript_value)(value, kind, nested_kind)
        except NotImplementedError:
            return False
    elif kind == "float" and type(value) is int:
        value = float(value)
    fits, is_variable = _type_fits(value, accepted, expected, nested)
    if not fits or is_variable:
        return fits and value in accepted
    if expected is dict:
        return _dict_in(value, accepted)
    if expected is list and nested is dict:
        return any(
            len(value) == len(answer) and all(_dict_in(one, [other]) for one, other in zip(value, answer, strict=True))
            for answer in accepted
        )
    if expected is str:
        return _plain(value) in [_plain(answer) for answer in accepted if isinstance(answer, str)]
    if expected is list:
        return [_plain(one) for one in value] in [[_plain(one) for one in answer] for answer in accepted]
    return value in accepted


def _type_fits(value: Any, accepted: Sequence[Any], expected: type, nested: type | None) -> tuple[bool, bool]:
    """(whether the type of a value is right, whether it is a variable's name in place of a value)."""
    accepted_type = next((type(answer) for answer in accepted if answer != ""), None)
    is_variable = accepted_type is not None and accepted_type is not expected
    elements = value if isinstance(value, list) else []
    if type(value) is expected:
        if nested is None:
            return True, is_variable
        fits = any(
            not isinstance(answer, list) or all(_type_fits(one, answer, nested, None)[0] for one in elements)
            for answer in accepted
        )
        return fits, is_variable
    return accepted_type is not None and type(value) is accepted_type, True


def _dict_in(value: Any, accepted: Sequence[Any]) -> bool:
    return isinstance(value, dict) and any(
        isinstance(answer, dict)
        and all(key in answer and _plain(one) in [_plain(a) for a in answer[key]] for key, one in value.items())
        and all(key in value or "" in values for key, values in answer.items())
        for answer in accepted
    )


def _plain(value: Any) -> Any:
    """A text without case, blanks and some punctuation; any other value as it is."""
    return _IGNORED.sub("", value).lower().replace("'", '"') if isinstance(value, str) else value


def _language(category: str) -> str:
    return next((name for name in ("javascript", "java") if name in category), "python")


def accepted_call(answer: Mapping[str, Any], functions: Sequence[Mapping[str, Any]], category: str) -> Call:
    """A call that an accepted answer describes: with the first of the accepted values, without optional parameters."""
    ((name, accepted),) = answer.items()
    (function, *_) = [one for one in functions if one["name"] == name] or functions
    required, kinds = function["parameters"].get("required", ()), function["parameters"]["properties"]
    values = {key: _first(options) for key, options in accepted.items() if key in kinds}
    values = {key: value for key, value in values.items() if key in required or value != ""}
    if (language := _language(category)) != "python":
        values = {key: source_text(language, value, kinds[key]) for key, value in values.items()}
    return function_name(name), values


def _first(accepted: Any) -> Any:
    """The first accepted value. In a dictionary likewise, of each entry that may not be absent."""
    if not isinstance(accepted, list):
        return accepted
    value = next((one for one in accepted if one != ""), "")
    many = value if isinstance(value, list) else [value]
    done = [{k: _first(v) for k, v in one.items() if _first(v) != ""} if isinstance(one, dict) else one for one in many]
    return done if isinstance(value, list) else done[0]


def summary(episodes: Sequence[Episode]) -> dict[str, Any]:
    """For reports: category -> share solved of its scored episodes, and the leaderboard's averages ``non_live_ast``,
    ``live_ast`` and ``irrelevance_detection`` over the categories that were played; {} if none is scored."""
    by = by_category(episodes)
    shares = {category: fmean(by[category]) for category in CATEGORIES if category in by}
    non_live = [fmean(simple)] if (simple := [shares[one] for one in AST[:3] if one in shares]) else []
    non_live += [shares[one] for one in AST[3:] if one in shares]
    averages: dict[str, Sequence[float]] = {
        "non_live_ast": non_live,
        "live_ast": [solved for one in LIVE for solved in by.get(one, ())],
        "irrelevance_detection": [shares[one] for one in RELEVANCE[:2] if one in shares],
    }
    return {**shares, **{name: fmean(values) for name, values in averages.items() if values}}
