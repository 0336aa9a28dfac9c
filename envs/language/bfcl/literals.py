"""Values of Java and JavaScript as BFCL's checker reads them from source text, and source text for a value.

The rules, their regular expressions included, are those of the published checker (bfcl-eval 2026.3.23,
``java_type_converter`` and ``js_type_converter``), because verdicts depend on each of them: a text that matches no
rule stays a text.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

_NUMBERS: dict[str, dict[str, tuple[str, Callable[[str], Any]]]] = {
    "java": {
        **dict.fromkeys(("byte", "short", "integer"), (r"^-?\d+$", int)),
        "float": (r"^-?\d+(\.\d+)?([eE][+-]?\d+)?[fF]$", lambda text: float(re.sub("[fF]$", "", text))),
        "double": (r"^-?\d+(\.\d+)?([eE][+-]?\d+)?$", float),
        "long": (r"^-?\d+[lL]$", lambda text: int(re.sub("[lL]$", "", text))),
        "boolean": ("^(true|false)$", lambda text: text == "true"),
    },
    "javascript": {
        "integer": (r"^-?\d+$", int),
        "float": (r"^-?\d+(\.\d+)?$", float),
        "Bigint": (r"^-?\d+n$", lambda text: int(text[:-1])),
        "Boolean": ("^(true|false)$", lambda text: text == "true"),
    },
}
_ARRAY_2D = r"\[\s*\[.*?\]\s*(,\s*\[.*?\]\s*)*\]|\bnew\s+Array\(\s*\[.*?\]\s*(,\s*\[.*?\]\s*)*\)"
_PAIR = re.compile(r"([^:]+):\s*(.*?)(?:,\s*(?=[^,]+:)|$)")
_LIST_OF = re.compile(r"new\s+ArrayList<\w*>\(Arrays\.asList\((.+?)\)\)")
_LIST_WITH = re.compile(r"new\s+ArrayList<\w*>\(\)\s*\{\{\s*(.+?)\s*\}\}", re.DOTALL)
_MAP = re.compile(r"new\s+HashMap<.*?>\s*\(\)\s*\{\s*\{?\s*(.*?)\s*\}?\s*\}", re.DOTALL)


def java_value(text: str, kind: str, nested: str = "") -> Any:
    """Parse Java source of a value of type ``kind``; ``text`` itself if no rule fits. nested: type of the elements of
    an Array or ArrayList; without it, and for a HashMap, their form decides. Raises NotImplementedError for the types
    Set, Hashtable, Queue and Stack, which the published checker cannot read."""
    if kind in ("Set", "Hashtable", "Queue", "Stack"):
        raise NotImplementedError(kind)
    if kind == "Array":
        match = re.search(r"new\s+\w+\[\]\s*\{(.*?)\}", text)
        parts = [part.strip() for part in match[1].split(",") if part.strip()] if match else []
        return [java_value(p, nested) if nested else _untyped(p) for p in parts] if match else text
    if kind == "ArrayList":
        if match := _LIST_OF.search(text):
            return [_element(part.strip(), nested) for part in match[1].split(",")]
        if match := _LIST_WITH.search(text):
            return [_element(part.strip(), nested) for part in re.findall(r"add\((.+?)\)", match[1])]
        return [] if re.search(r"new\s+ArrayList<\w*>\(\)", text) else text
    if kind == "HashMap":
        if match := _MAP.search(text):
            pairs = re.findall(r"put\(\"(.*?)\",\s*(.*?)\)", match[1]) if match[1].strip() else []
            return {key: _untyped(value.strip()) for key, value in pairs}
        return {} if re.search(r"new\s+HashMap<.*?>\s*\(\)", text) else text
    return _number("java", text, kind)


def javascript_value(text: str, kind: str, nested: str = "") -> Any:
    """Parse JavaScript source of a value of type ``kind``; ``text`` itself if no rule fits. nested: type of the
    elements of an array; without it their form decides."""
    if kind == "String":
        return text[1:-1] if _is_quoted(text, "\"'") else text
    if kind == "array":
        return _array(text.strip(), nested)
    if kind == "dict":
        return _object(text.strip())
    return _number("javascript", text, kind)


def _number(language: str, text: str, kind: str) -> Any:
    pattern, convert = _NUMBERS[language].get(kind, ("(?!)", str))
    return convert(text) if re.match(pattern, text) else text


def _is_quoted(text: str, quotes: str) -> bool:
    return any(text.startswith(quote) and text.endswith(quote) for quote in quotes)


def _element(text: str, nested: str) -> Any:
    """An element of a Java list: texts without their quotes."""
    if nested in ("char", "String"):
        return text[1:-1]
    return java_value(text, nested) if nested else _untyped(text)


def _untyped(text: str, language: str = "java") -> Any:
    """Parse a value without a known type: true or false, a quoted text, a number; else the text itself."""
    text = text if language == "java" else text.strip()
    if text in ("true", "false"):
        return text == "true"
    quotes = '"' if language == "java" else "\"'"
    if _is_quoted(text, quotes):
        return text[1:-1]
    if language == "java":
        for kind in ("long", "float"):
            if (value := _number("java", text, kind)) is not text:
                return value
    for convert in (int, float):
        try:
            return convert(text)
        except ValueError:
            continue
    return text


def _array(code: str, nested: str = "") -> Any:
    if match := re.match(_ARRAY_2D, code):
        rows = re.findall(r"\[(.*?)\]", match[0])
        rows[0] = rows[0].strip().removeprefix("[")
        return [[_untyped(part, "javascript") for part in row.strip().split(",")] for row in rows]
    match = re.match(r"\[(.*?)\]|\bnew\s+Array\((.*?)\)", code)
    if not match:
        return code
    inside = next((group.strip() for group in match.groups() if group is not None), "")
    parts = [part.strip() for part in inside.split(",")] if inside else []
    return [javascript_value(part, nested) if nested else _untyped(part, "javascript") for part in parts]


def _object(code: str) -> Any:
    match = re.match(r"\{(.*?)\}", code)
    if code == "{}" or not match:
        return {} if code == "{}" else code
    out = {}
    for key, value in _PAIR.findall(match[1]):
        value = value.strip()
        read = {"[]": _array, "{}": _object}.get(value[:1] + value[-1:])
        out[key.strip().strip("'\"")] = read(value) if read else _untyped(value.strip("'\""), "javascript")
    return out


def source_text(language: str, value: Any, parameter: Mapping[str, Any]) -> str:
    """Write a value as source that ``java_value`` or ``javascript_value`` parses to that value. ``parameter``: its
    description in the data."""
    kind, element = parameter.get("type", ""), parameter.get("items") or {}
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        inside = ", ".join(source_text(language, one, element) for one in value)
        if language == "javascript":
            return f"[{inside}]"
        if kind == "Array":
            return f"new T[]{{{inside}}}"
        parts = [f'"{one}"' if isinstance(one, str) else source_text(language, one, element) for one in value]
        return f"new ArrayList<>(Arrays.asList({', '.join(parts)}))" if value else "new ArrayList<>()"
    if isinstance(value, dict) and language == "java":
        puts = " ".join(f'put("{key}", {source_text(language, one, element)});' for key, one in value.items())
        return f"new HashMap<>() {{{{ {puts} }}}}"
    if isinstance(value, dict):
        return "{" + ", ".join(f"'{key}': {source_text(language, one, element)}" for key, one in value.items()) + "}"
    suffix = {"long": "L", "float": "f" if language == "java" else "", "Bigint": "n"}.get(kind, "")
    return f"{value}{suffix}"
