"""Rewrites an item's tests so that the solution before them in the same program cannot change what they check.

| language | what a solution cannot reach |
|---|---|
| all | the names of harness, candidate and flag, which are random for every run |
| cpp | ``assert`` and every other identifier of the tests as a macro; ``==`` of a return type of its own |
| cs, java | assertions (switched off, an ``Equals`` that is always true); types of the tests by its own of that name |
| js, ts | ``require``, the assert module, the test function; the program's text, by its file or by ``caller`` |
| php | the test functions; the program's text |
| sh | the shell that runs the tests: the solution is called in a process of its own, without the tests |

What the tests check is unchanged. A program that inspects its machine code or heap can still find the final word."""

import json
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

_LITERAL = re.compile(r"\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*'")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_JS = """const %(h)s%(any)s = (function () {
  const original = require("node:assert"), files = require("node:fs"), kept%(any)s = {};
  for (const name of Object.keys(original)) kept[name] = original[name];
  for (const file of [__filename, __filename.replace(/js$/, "ts")]) { try { files.unlinkSync(file); } catch (gone) {} }
  return Object.freeze(kept);
})();
"""
_SHELL_CALL = '%s() { /bin/bash -c \'. ./program.sh > /dev/null; %s "$@"\' /bin/bash "$@" < /dev/null; }\n'


@dataclass(frozen=True)
class Guarded:
    """A program to compile and run. ``program``: content of its file. ``stdin``: input of the last step. ``refused``:
    why a solution fails without being run; empty otherwise."""

    program: str
    stdin: str = ""
    refused: str = ""


def guarded(solution: str, asked: Mapping[str, Any], says: str) -> Guarded:
    """Join a solution and the item's tests to a program, so that the solution cannot change what they check.
    ``solution``: all text before the tests; ``asked``: the item (language, prompt, tests); ``says``: statement to put
    after the last test; its output shows that all tests ran."""
    return _GUARDS[asked["language"]](solution, asked, says, f"h{secrets.token_hex(8)}")


def function_name(prompt: str) -> str:
    """Word before the first ``(`` in the last line of a prompt, which opens its function; empty if there is none."""
    match = re.search(r"(\w+)\s*\(", prompt.strip().splitlines()[-1])
    return match[1] if match else ""


def split_close(tests: str) -> tuple[str, str]:
    """Split tests into (the brace that closes the function, if they begin with it, else empty; the rest)."""
    bare = tests.lstrip()
    return ("}\n", bare[1:]) if bare.startswith("}") else ("", tests)


def _cpp(solution: str, asked: Mapping[str, Any], says: str, h: str) -> Guarded:
    close, rest = split_close(asked["tests"])
    if re.search(r"\bnamespace\s+std\b(?!\s*[;:])", _COMMENT.sub(" ", solution).replace("using namespace std", "")):
        return Guarded("", refused="it adds to namespace std")
    rest = re.sub(r"\bcandidate\b", f"candidate_{h}", rest)
    first, last = asked["prompt"].rstrip().rpartition("\n")[::2]
    returned = last.partition(function_name(asked["prompt"]))[0].strip()
    if solution.startswith(first) and returned.startswith("Union_"):  # compared with texts and numbers, by operators
        kind = f"template <class T> constexpr bool is_{h} = std::is_same_v<T, {returned}>;\n"
        kind += f"template <class R, class... A> R result_{h}(R (*)(A...));\n"
        solution = f"{first}\n{kind}{solution[len(first) :].lstrip()}"
        opened = f"auto candidate_{h} = {function_name(asked['prompt'])};"
        rest = rest.replace(opened, f"{opened}\n    static_assert(is_{h}<decltype(result_{h}(candidate_{h}))>);", 1)
    elif solution.startswith(first) and returned:
        equal = f"static bool same_{h}(const {returned}& a, const {returned}& b) {{ return a == b; }}\n"
        solution = f"{first}\n{equal}{solution[len(first) :].lstrip()}"
        line = rf"(?m)^(\s*)assert\((candidate_{h}\(.*\)) == (\(.*\))\);[ \t]*$"
        rest = re.sub(line, rf"\1passed_{h} &= same_{h}(\2, \3);", rest)
    rest = re.sub(r"\bassert\((.*)\);", rf"passed_{h} &= (\1);", rest)
    rest = rest.replace("int main() {", f"int main() {{\n    bool passed_{h} = true;", 1)
    rest = _before_last_brace(rest, f"if (passed_{h}) {says}", 1)
    macros = "".join(f"#undef {name}\n" for name in sorted(set(re.findall(r"[A-Za-z_]\w*", _LITERAL.sub("", rest)))))
    return Guarded(f"{solution}{close}{macros}{rest}")


def _java(solution: str, asked: Mapping[str, Any], says: str, h: str) -> Guarded:
    checks = ((r"assert\((.*)\.equals\((\(.*\))\)\)", f"Check_{h}.same"), (r"assert\((.*)\)", ""))
    check = f"class Check_{h} {{ static boolean same(Object a, Object b) {{ return b.equals(a); }} }}\n"
    used = {"System", "String", "Object"}
    return _in_class(solution, asked, says, h, (checks, check, "main(String[] args) {", "boolean", used))


def _cs(solution: str, asked: Mapping[str, Any], says: str, h: str) -> Guarded:
    checks = (
        (r"Debug\.Assert\((.*)\.Equals\((\(.*\))\)\)", f"Check_{h}.Same"),
        (r"Debug\.Assert\((.*)\.SequenceEqual\((\(.*\))\)\)", "global::System.Linq.Enumerable.SequenceEqual"),
        (r"Debug\.Assert\((.*)\)", ""),
    )
    check = f"class Check_{h} {{ public static bool Same(object a, object b) {{ return b.Equals(a); }} }}\n"
    used = {"System", "Console", "Enumerable", "Linq"}
    return _in_class(solution, asked, says, h, (checks, check, "Main(string[] args) {", "bool", used))


def _in_class(solution: str, asked: Mapping[str, Any], says: str, h: str, language: tuple[Any, ...]) -> Guarded:
    """The program of a language whose tests are a method of the solution's class. ``language``: (patterns of checks,
    each with the function that compares its two parts, a class to append, the method's opening, the type of a truth
    value, further types that tests use)."""
    checks, check, main, truth, used = language
    text = re.sub(r"\\u+([0-9a-fA-F]{4})", lambda code: chr(int(code[1], 16)), solution).replace("@", "")
    close, rest = split_close(asked["tests"])
    for pattern, function in checks:
        compared = rf"{function}(\2, \3)" if function else r"(\2)"
        rest = re.sub(rf"(?m)^(\s*){pattern};[ \t]*$", rf"\1passed_{h} &= {compared};", rest)
    rest = rest.replace(main, f"{main}\n    {truth} passed_{h} = true;", 1)
    program = f"{solution}{close}{_before_last_brace(rest, f'if (passed_{h}) {says}', 2)}\n{check}"
    return Guarded(program, refused=_own_types(text, asked["tests"], used))


def _own_types(solution: str, tests: str, further: set[str]) -> str:
    """A refusal if a solution declares a type or a variable with the name of a type that the tests use; else empty.
    Such names are those in ``tests`` with a capital, except the program's own classes, and ``further`` ones."""
    used = {name for name in re.findall(r"\b[A-Z]\w+", _LITERAL.sub("", tests)) if f"{name}(String" not in tests}
    names = "|".join(sorted(used - {"Main", "Problem"} | further))
    code = _COMMENT.sub(" ", _LITERAL.sub('""', solution))
    match = re.search(
        rf"\b(?:class|interface|enum|struct|record|delegate\s+\w+)\s+({names})\b|\b({names})\s*=(?!=)", code
    )
    return f"it declares {match[1] or match[2]}, which the tests use" if match else ""


def _js(solution: str, asked: Mapping[str, Any], says: str, h: str, any_: str = "") -> Guarded:
    rest = re.sub(
        r"(?m)^(?:declare\s+var\s+require:\s*any;|const\s+assert\s*=\s*require\('node:assert'\);)[ \t]*$",
        "",
        asked["tests"],
    )
    rest = re.sub(r"\bassert\.", f"{h}.", rest)
    rest = re.sub(r"\btest\(\)", f"test_{h}()", rest)
    if any_:
        declared = "declare var require: any; declare var __filename: any;\n"
        return Guarded(f"{declared}{_JS % {'h': h, 'any': any_}}{solution}{rest}\n{says}\n")
    match = re.search(r"\bcandidate\s*=\s*([\w$]+)", rest)
    name = match[1] if match else "undefined"
    body = json.dumps(f"{solution}\n;return {name};")
    values = "require, module, exports, __filename, __dirname"
    made = f'new Function(..."{values}".split(", "), {body}).call(exports, {values})'
    return Guarded(f'"use strict";\n{_JS % {"h": h, "any": any_}}const {name} = {made};\n{rest}\n{says}\n')


def _php(solution: str, asked: Mapping[str, Any], says: str, h: str) -> Guarded:
    rest = re.sub(r"\b(candidate|test)\(", rf"\1_{h}(", asked["tests"])
    opening = re.compile(r"<\?php\s*(?:declare\s*\([^)]*\)\s*;)?")
    return Guarded(f"{opening.sub(lambda match: f'{match[0]} unlink(__FILE__);', solution, count=1)}{rest}\n{says}\n")


def _sh(solution: str, asked: Mapping[str, Any], says: str, h: str) -> Guarded:
    close, rest = split_close(asked["tests"])
    name = function_name(asked["prompt"])
    return Guarded(solution + close, stdin=f"{_SHELL_CALL % (name, name)}{rest}\n{says}\n")


def _before_last_brace(tests: str, statement: str, within: int) -> str:
    """The tests with a statement before their last ``within`` closing braces."""
    place = len(tests)
    for _ in range(within):
        place = tests.rfind("}", 0, place)
    return f"{tests[:place]}{statement}\n{tests[place:]}"


_GUARDS: Mapping[str, Callable[[str, Mapping[str, Any], str, str], Guarded]] = {
    "cpp": _cpp, "cs": _cs, "java": _java, "js": _js, "php": _php, "sh": _sh, "ts": partial(_js, any_=": any"),
}  # fmt: skip
