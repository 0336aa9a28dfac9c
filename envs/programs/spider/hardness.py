"""Hardness of a gold query of Spider: easy, medium, hard or extra, by its authors' counts.

Rules: taoyds/spider b7b5b8c, evaluation.py, ``Evaluator.eval_hardness``. Counts tokens; a SELECT in brackets is a query
of its own. Executes nothing."""

import re

_TOKEN = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`|\w+(?:\.\w+|\.\*)?|[<>!=]=|[^\s\w]")
_CLAUSES = ("select", "from", "where", "group", "having", "order", "limit")
_SETS = ("intersect", "union", "except")
_AGGREGATES = ("max", "min", "count", "sum", "avg")


def hardness(query: str) -> str:
    """``easy``, ``medium``, ``hard`` or ``extra``, by the numbers of a query's clauses and nested queries; any text."""
    tokens = [token.lower() for token in _TOKEN.findall(query)]
    own = _flat(tokens)
    ends = next((place for place, token in enumerate(own) if token in _SETS), len(own))
    clauses = _clauses(own[:ends])
    first = _first(clauses)
    second = _nested(clauses) + (ends < len(own))
    others = _others(clauses)
    if first <= 1 and others == 0 and second == 0:
        return "easy"
    if second == 0 and ((others <= 2 and first <= 1) or (first <= 2 and others < 2)):
        return "medium"
    if second == 0 and ((others > 2 and first <= 2) or (2 < first <= 3 and others <= 2)):
        return "hard"
    return "hard" if first <= 1 and others == 0 and second <= 1 else "extra"


def _flat(tokens: list[str]) -> list[str]:
    """The tokens with every bracketed query replaced by one ``<query>``."""
    out: list[str] = []
    depth = 0
    for place, token in enumerate(tokens):
        if depth:
            depth += {"(": 1, ")": -1}.get(token, 0)
        elif token == "(" and tokens[place + 1 : place + 2] == ["select"]:
            depth = 1
            out.append("<query>")
        else:
            out.append(token)
    return out


def _clauses(tokens: list[str]) -> dict[str, list[str]]:
    clauses: dict[str, list[str]] = {name: [] for name in _CLAUSES}
    at = "select"
    for token in tokens:
        if token in _CLAUSES:
            at = token
        else:
            clauses[at].append(token)
    return clauses


def _units(condition: list[str]) -> int:
    """Number of conditions joined by AND or OR; the AND of a BETWEEN does not count."""
    joined = sum(token in ("and", "or") for token in condition) - condition.count("between")
    return 1 + joined if condition else 0


def _nested(clauses: dict[str, list[str]]) -> int:
    return sum(clauses[name].count("<query>") for name in ("where", "having")) + _on(clauses).count("<query>")


def _on(clauses: dict[str, list[str]]) -> list[str]:
    source = clauses["from"]
    return source[source.index("on") :] if "on" in source else []


def _first(clauses: dict[str, list[str]]) -> int:
    conditions = (*clauses["where"], *clauses["having"], *_on(clauses))
    count = sum(bool(clauses[name]) for name in ("where", "group", "order", "limit"))
    count += sum(token in ("join", ",") for token in clauses["from"])
    return count + sum(token in ("or", "like") for token in conditions)


def _others(clauses: dict[str, list[str]]) -> int:
    aggregates = sum(token in _AGGREGATES for name in ("select", "group", "order") for token in clauses[name])
    # The authors count a condition with NOT for an aggregate, and the aggregates of a HAVING not at all.
    aggregates += sum(token == "not" for name in ("where", "having") for token in clauses[name])
    grouped = _columns([token for token in clauses["group"] if token != "by"])
    return sum(number > 1 for number in (aggregates, _columns(clauses["select"]), _units(clauses["where"]), grouped))


def _columns(tokens: list[str]) -> int:
    depth = 0
    count = int(bool(tokens))
    for token in tokens:
        depth += {"(": 1, ")": -1}.get(token, 0)
        count += token == "," and depth == 0
    return count
