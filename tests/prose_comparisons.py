"""Comparisons of code with sentences: where a program decides by the words of a message."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.source_tree import ROOT, name, python_files

_PROSE = re.compile(r"[A-Za-z]{2,}[,:;]? +[A-Za-z(]")
_TEXT_METHODS = frozenset(["startswith", "endswith", "find", "index", "count", "removeprefix", "removesuffix"])
_SPLITTING = frozenset(["partition", "rpartition", "split"])
_REGEX_FUNCTIONS = frozenset(["compile", "search", "match", "fullmatch", "findall", "finditer", "sub"])


def prose_comparisons(*folders: str) -> list[tuple[str, str]]:
    """(place, sentence) of every comparison, search or regular expression whose text is prose.

    Constants are followed by name within a module and through ``from module import NAME``.
    """
    trees = {path: ast.parse(path.read_text()) for path in python_files(*folders)}
    constants = {path: _constants(tree) for path, tree in trees.items()}
    hits: list[tuple[str, str]] = []
    for path, tree in trees.items():
        known = {**constants[path], **_imported(tree, constants)}
        for node in ast.walk(tree):
            hits += [
                (f"{name(path)}:{part.lineno}", text)
                for part in _compared(node)
                for text in _texts(part, known)
                if _PROSE.search(text)
            ]
    return hits


def _compared(node: ast.AST) -> Iterator[ast.expr]:
    """The expressions that ``node`` compares with something."""
    if isinstance(node, ast.Compare):
        yield from (node.left, *node.comparators)
    elif isinstance(node, ast.MatchValue):
        yield node.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        if node.func.attr in _TEXT_METHODS | _SPLITTING:
            yield from node.args
        elif (
            node.func.attr in _REGEX_FUNCTIONS and isinstance(node.func.value, ast.Name) and node.func.value.id == "re"
        ):
            yield from node.args[:1]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "any":
        for argument in node.args:  # any(sentence in text for sentence in SENTENCES)
            if isinstance(argument, ast.GeneratorExp) and isinstance(argument.elt, ast.Compare):
                yield argument.generators[0].iter


def _texts(node: ast.expr, constants: Mapping[str, ast.expr]) -> list[str]:
    if isinstance(node, ast.Constant):
        value = node.value.decode("latin-1") if isinstance(node.value, bytes) else node.value
        return [value] if isinstance(value, str) else []
    if isinstance(node, ast.Tuple | ast.List | ast.Set):
        return [text for element in node.elts for text in _texts(element, constants)]
    if isinstance(node, ast.JoinedStr):
        return ["".join(str(part.value) for part in node.values if isinstance(part, ast.Constant))]
    if isinstance(node, ast.Name) and node.id in constants:
        return _texts(constants[node.id], {})
    return []


def _constants(tree: ast.Module) -> dict[str, ast.expr]:
    constants: dict[str, ast.expr] = {}
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            constants[node.targets[0].id] = node.value
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
            constants[node.target.id] = node.value
    return constants


def _imported(tree: ast.Module, constants: Mapping[Path, Mapping[str, ast.expr]]) -> dict[str, ast.expr]:
    imported: dict[str, ast.expr] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module:
            source = constants.get(ROOT / f"{node.module.replace('.', '/')}.py", {})
            imported |= {alias.asname or alias.name: source[alias.name] for alias in node.names if alias.name in source}
    return imported


OF_OTHERS = {
    "the kernel's or libc's words, where no error number comes with them": (
        "No space left", "Permission denied", "Read-only file", "quota exceeded",
    ),
    "Python's own words": (
        "Traceback (most recent call last)", "Cell In[",
        r"Traceback \(most recent call last\)|Exception (in thread|ignored in)",
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
    "tensorstore gives its codes in texts": (r"\b(DATA_LOSS|OUT_OF_RANGE",),
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
    "names of forms and of what is shown": ("packed int8",),
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
