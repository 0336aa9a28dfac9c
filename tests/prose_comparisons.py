"""Comparisons of code with sentences: where a program decides by the words of a message."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from tests.source_tree import ROOT, name, python_files

_PROSE = re.compile(r"[A-Za-z]{2,}[,:;]? +[A-Za-z(]")
_TEXT_METHODS = frozenset(["startswith", "endswith", "find", "index", "count", "removeprefix", "removesuffix"])
_SPLITTING = frozenset(["partition", "rpartition", "split"])
_READING = _TEXT_METHODS | _SPLITTING
_REGEX_FUNCTIONS = frozenset(["compile", "search", "match", "fullmatch", "findall", "finditer", "sub"])


def prose_comparisons(*folders: str) -> list[tuple[str, str]]:
    """(place, sentence) of every comparison, search or regular expression whose text is prose.

    Constants are followed by name through assignments, loops, imports and attributes of classes and modules.
    """
    trees = {path: ast.parse(path.read_text()) for path in python_files(*folders)}
    constants = {path: _constants(tree) for path, tree in trees.items()}
    hits: list[tuple[str, str]] = []
    for path, tree in trees.items():
        known = {**_imported(tree, constants), **constants[path]}
        functions = _regex_functions(tree)
        for node in ast.walk(tree):
            hits += [
                (f"{name(path)}:{part.lineno}", text)
                for part in _compared(node, functions)
                for text in _texts(part, known)
                if _PROSE.search(text)
            ]
    return hits


def message_comparisons(*folders: str) -> list[tuple[str, str]]:
    """(place, text) of every comparison of a value that is named like a message (``MESSAGES``) with a literal text of
    letters, however short."""
    hits: list[tuple[str, str]] = []
    for path in python_files(*folders):
        for node in ast.walk(ast.parse(path.read_text())):
            for value, texts in _message_tests(node):
                if isinstance(value, ast.Name | ast.Attribute) and _last_name(value) in MESSAGES:
                    word = r"[A-Za-z]{2}" if _last_name(value) != "message" else r"[A-Z]|\w\W+\w"  # a dict has keys
                    literals = (text for one in texts for text in _texts(one, {}) if re.search(word, text))
                    hits += [(f"{name(path)}:{value.lineno}", text) for text in literals]
    return hits


MESSAGES = frozenset(["note", "detail", "message", "problem", "error", "fault", "warning"])
"""Names of values that are texts for people."""


def _message_tests(node: ast.AST) -> Iterator[tuple[ast.expr, Sequence[ast.expr]]]:
    """(value, texts that it is tested for) of ``text in value``, ``value == text``, and of text methods."""
    if isinstance(node, ast.Compare):
        for left, op, right in zip([node.left, *node.comparators], node.ops, node.comparators, strict=False):
            if isinstance(op, ast.In | ast.NotIn | ast.Eq | ast.NotEq):
                yield right, [left]
                yield left, [right]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _READING:
        yield node.func.value, node.args


def _last_name(node: ast.Name | ast.Attribute) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr


def _compared(node: ast.AST, regex_functions: Collection[str]) -> Iterator[ast.expr]:
    """The expressions that ``node`` compares with something."""
    if isinstance(node, ast.Compare):
        yield from (node.left, *node.comparators)
    elif isinstance(node, ast.MatchValue):
        yield node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in _READING:
            yield from node.args
        elif node.func.attr in _REGEX_FUNCTIONS and _last_name_or_empty(node.func.value) in regex_functions:
            yield from node.args[:1]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in regex_functions:
        yield from node.args[:1]


def _last_name_or_empty(node: ast.expr) -> str:
    return _last_name(node) if isinstance(node, ast.Name | ast.Attribute) else ""


def _regex_functions(tree: ast.Module) -> set[str]:
    """Names under which a module knows ``re`` and its functions."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.asname or alias.name for alias in node.names if alias.name == "re"}
        elif isinstance(node, ast.ImportFrom) and node.module == "re":
            names |= {alias.asname or alias.name for alias in node.names if alias.name in _REGEX_FUNCTIONS}
    return names


def _texts(node: ast.expr, constants: Mapping[str, Sequence[ast.expr]]) -> list[str]:
    if isinstance(node, ast.Constant):
        value = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
        return [value] if isinstance(value, str) else []
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return [text for element in node.elts for text in _texts(element, constants)]
    if isinstance(node, ast.Dict):
        return [text for key in node.keys if key is not None for text in _texts(key, constants)]
    if isinstance(node, ast.JoinedStr):
        return ["".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))]
    if isinstance(node, ast.Name | ast.Attribute):
        others = {known: values for known, values in constants.items() if known != _last_name(node)}
        return [text for value in constants.get(_last_name(node), ()) for text in _texts(value, others)]
    return []


def _constants(tree: ast.Module) -> dict[str, list[ast.expr]]:
    """Name -> the expressions that are assigned to it, looped over for it, or its default as a parameter."""
    constants: dict[str, list[ast.expr]] = {}

    def add(target: ast.expr, value: ast.expr | None) -> None:
        if isinstance(target, ast.Name) and value is not None:
            constants.setdefault(target.id, []).append(value)

    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            add(node.targets[0], node.value)
        elif isinstance(node, ast.AnnAssign | ast.NamedExpr):
            add(node.target, node.value)
        elif isinstance(node, ast.For | ast.comprehension):
            add(node.target, node.iter)
        elif isinstance(node, ast.arguments):
            named = [*node.posonlyargs, *node.args]
            for argument, default in zip(named[len(named) - len(node.defaults) :], node.defaults, strict=True):
                constants.setdefault(argument.arg, []).append(default)
    return constants


def _imported(
    tree: ast.Module, constants: Mapping[Path, Mapping[str, Sequence[ast.expr]]]
) -> dict[str, Sequence[ast.expr]]:
    """Constants of the modules that a module imports names from, or imports whole, under the names used here."""
    imported: dict[str, Sequence[ast.expr]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            source = constants.get(ROOT / f"{node.module.replace('.', '/')}.py", {})
            imported |= {alias.asname or alias.name: source[alias.name] for alias in node.names if alias.name in source}
            for alias in node.names:
                imported |= constants.get(ROOT / f"{node.module.replace('.', '/')}/{alias.name}.py", {})
    return imported


OF_OTHERS = {
    "the kernel's or libc's words, where no error number comes with them": (
        "No space left", "Permission denied", "Read-only file", "quota exceeded",
    ),
    "Python's own words": (
        "Traceback (most recent call last)", "Cell In[",
        r"Traceback \(most recent call last\)|Exception (in thread|ignored in)",
        "An exception has occurred, use %tb",
    ),
    "a line of a library's log has no other mark than how it begins; it decides only where that is shown": (
        r"\[\d{4}-\d\d-\d\d \d\d:|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d+\t",
    ),
    "Ray has one class for several causes, and tells them apart in the message alone": (
        "worker process has died", "node has died", "timed out during startup",
        "cannot be scheduled|out of memory|OOM|died|insufficient",
    ),
    "servers of others report a context that is too long in their own words": (
        "maximum context length", "model's context length", "available context size", "context window",
        "maximum prompt length", "prompt is too long", "input is too long", "too many tokens",
        "exceeds the maximum number of tokens", "max_new_tokens` must be <=", "too large for model with",
    ),
    "filters of servers refuse a text in their own words": (
        "content management policy", "content policy", "input was flagged",
    ),
    "gcsfs raises ValueError without a status": ("Bad Request",),
    "tensorstore gives its codes in texts, orbax one class for all differences": (
        r"\b(DATA_LOSS|OUT_OF_RANGE", "tree structures do not match", "not compatible with the stored shape",
    ),
    "XLA reports a kernel that does not fit by names in the message": ("ScopedVmemOom", "splash"),
    "llguidance marks what is no error by this word": ("WARNING",),
    "endpoints name the field that they want in the message": ("max_completion_tokens",),
    "huggingface_hub raises OSError without a number": ("Consistency check",),
    "PyMySQL reports a time-out of reading in the text alone": ("(timed out)",),
    "Playwright has one class for all errors of a page": ("interrupted by another navigation", "frame was detached"),
    "collectives and Ray report a peer that is away in their own words": ("connection|connect to",),
}  # fmt: skip
"""Reason -> beginnings of sentences that other programs write."""
OF_FORMATS = {
    "web pages, of which C4 drops lines and pages by these words": ("javascript|terms of use|", "lorem ipsum"),
    "the text games' answers": (
        "Nothing happens.", "Your task is to: ", r"You are in the middle of a room", "The  is closed.", "you see ",
        "go to ", r"\ba ([a-z]+ \d+)", "You arrive at loc ",
    ),
    "texts of recorded runs of others": (
        "No SQL code was found", "Format your SQL command as", "No code was found", r"^You have (-?\d+) steps left",
        "<h2>New Page</h2>", "<img src=", "<div class=", "^intent: ",
    ),
    "SQL": (
        "CREATE USER", "  (?P<kind>PRIMARY KEY", "DEFAULT (?:", "NOT NULL", "PRIMARY KEY", "UNIQUE KEY",
        "CREATE TABLE ", "INSERT INTO ", "order by",
    ),
    "answers of models, by the rules of the benchmark's authors": (
        "the answer is (.*?)", r".*\bso the answer is", "partially correct", r"(?<!\w)([a-z])\s?\)",
        r"answer is \(?([A-", "My answer is ",
    ),
    "marks and names in data sets": (
        "BEGIN SOLUTION", "# SOLUTION START", r"^def test_string", "GOLD in PRED", "list of integer", "list of float",
        r"\[\d+\] StaticText", "install ok installed", "less than",
    ),
    "headers of packages and files": ("^License", "^Classifier", "^Package", "@generated"),
    "/proc/cpuinfo": ("model name", "CPU part"),
    "names of characters": (
        "MODIFIER LETTER", "FEMININE ORDINAL", "MASCULINE ORDINAL", "MICRO SIGN", "OHM SIGN", "ANGSTROM SIGN",
        "KELVIN SIGN", "INFORMATION SOURCE",
    ),
    "file names of cells": (r"<cell (\d+)>",),
    "lines that jobs print are what a person, and the demo, see of them": (r"\bstep +(?P<s>",),
    "names of forms, of axes and of what is shown": ("packed int8", "rows of a slice"),
    "MINT's prompt of the teacher, which may be cut out of it": ("Correct solution (do not disclose it): ",),
}  # fmt: skip
"""Reason -> beginnings of texts whose words are the format."""
OF_OURS = {
    "stored in ledgers and recipes, whose fields stay": (
        "attempt (", r", step (\d+)", "model folder ", "[Not executed: this replay only grades]",
    ),
    "ledgers of earlier versions, read in lemur_ray/agents/trajectory.py": (
        "a sandbox was put in quarantine", "fewer prompt tokens for a longer conv",
    ),
    "the command in an author's note, for which the folder is completed": ("python jobs/fetch_data.py ",),
}  # fmt: skip
"""Reason -> beginnings of our own sentences."""


def excused(sentence: str) -> bool:
    """Whether a comparison with a sentence has its reason in one of the tables."""
    reasons = (starts for table in (OF_OTHERS, OF_FORMATS, OF_OURS) for starts in table.values())
    return any(sentence.startswith(start) for starts in reasons for start in starts)
