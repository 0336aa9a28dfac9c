"""Program that renders chat templates: for each JSON line of requests on its input, it writes one of results.

Templates come from publishers of models and are not trusted. They run in this separate process, in Jinja's sandbox,
without the possibility to open files or connections, with limited memory, and with a kernel timer that ends the process
after some seconds of CPU time. Templates have the environment of ``transformers``. The program imports only the
standard library and jinja2, and is started by its path."""

import datetime
import json
import pprint  # noqa: F401
import resource
import signal
import sys
import textwrap  # noqa: F401
from collections.abc import Callable, Iterator
from typing import Any

import jinja2
import jinja2.constants  # imported now, like the following, because files cannot be opened later
import jinja2.ext
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

REFUSED, FAILED, BEYOND, BROKEN = "refused", "failed", "beyond", "broken"
"""Kinds of failure: rejected by the template; error for this input; limit exceeded; not a Jinja template."""


class Refused(Exception):
    """Raised if the template called ``raise_exception``."""


class TooLong(Exception):
    """Raised if the output of a template has more characters than the limit."""


class Generation(jinja2.ext.Extension):
    """Jinja extension for the block ``{% generation %}`` around the assistant's text; ``Page`` records its span."""

    tags = {"generation"}  # noqa: RUF012  # Jinja's own type

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return jinja2.nodes.CallBlock(self.call_method("_mark_span"), [], [], body).set_lineno(line)

    def _mark_span(self, caller: Callable[[], str]) -> str:
        text = caller()
        page: Page | None = self.environment.page  # type: ignore[attr-defined]
        if page is not None:
            page.spans.append((page.length, page.length + len(text)))
        return text


class Page:
    """Output of one rendering, of at most ``most_characters``, and the spans of the assistant's text in it."""

    def __init__(self, most_characters: int):
        self.length, self.spans = 0, list[tuple[int, int]]()
        self._parts, self._most = list[str](), most_characters

    def write(self, parts: Iterator[str]) -> str:
        for part in parts:
            self._parts.append(part)
            self.length += len(part)
            if self.length > self._most:
                raise TooLong
        return "".join(self._parts)


class Dictionary:
    """The function ``dict`` for templates: builds a dict, but exposes no attributes of the class except fromkeys."""

    def __call__(self, *args: Any, **named: Any) -> dict[Any, Any]:
        return dict(*args, **named)

    def fromkeys(self, *args: Any) -> dict[Any, Any]:
        return dict.fromkeys(*args)


class Namespace(jinja2.utils.Namespace):
    """The function ``namespace`` for templates; names that begin with an underscore raise SecurityError."""

    def __init__(*args: Any, **named: Any) -> None:  # as Jinja's own, so that a name may be called self
        values = dict(*args[1:], **named)
        for name in values:
            _public(name)
        jinja2.utils.Namespace.__init__(args[0], values)

    def __setitem__(self, name: str, value: Any) -> None:
        _public(name)
        super().__setitem__(name, value)


def _public(name: object) -> None:
    if isinstance(name, str) and name.startswith("_"):
        raise jinja2.sandbox.SecurityError(f"a namespace may hold no name like {name!r}")


def environment(kept: list[str]) -> jinja2.sandbox.ImmutableSandboxedEnvironment:
    """The sandboxed Jinja environment of templates, with the functions and filters that ``transformers`` offers. kept:
    characters that ``tojson`` never escapes."""

    def tojson(
        value: Any,
        ensure_ascii: bool = False,
        indent: int | str | None = None,
        separators: Any = None,
        sort_keys: bool = False,
    ) -> str:
        text = json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
        for character in kept if ensure_ascii else ():
            text = text.replace(json.dumps(character)[1:-1], character)
        return text

    def raise_exception(message: object = "") -> None:
        raise Refused(str(message))

    def strftime_now(form: str) -> str:
        return datetime.datetime.now().strftime(form)

    def no_file(name: str) -> str:
        raise jinja2.sandbox.SecurityError(f"the file {name!r}")

    made = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=[Generation, jinja2.ext.loopcontrols],
        loader=jinja2.FunctionLoader(no_file),
    )
    made.page = None  # type: ignore[attr-defined]
    made.filters["tojson"] = tojson
    made.globals |= {
        "raise_exception": raise_exception,
        "strftime_now": strftime_now,
        "dict": Dictionary(),
        "namespace": Namespace,
    }
    return made


class Renderer:
    """Renders requests with templates, each compiled once."""

    def __init__(self) -> None:
        self._kept: list[str] = []
        self._environment = environment(self._kept)
        self._compiled: dict[str, jinja2.Template] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Render a request {template, kept: characters that ``tojson`` leaves, most_characters: limit of the text,
        values}: {text, spans: (begin, end) of the assistant's texts}, or {kind, error}. Raises nothing."""
        try:
            return self._rendered(request)
        except Refused as error:
            return {"kind": REFUSED, "error": str(error)}
        except TooLong:
            return {"kind": BEYOND, "error": f"it prints more than {request['most_characters']} characters"}
        except MemoryError:
            return {"kind": BEYOND, "error": "it needs more memory than it is given"}
        except OverflowError as error:  # a range above the sandbox's limit, or an impossible length
            return {"kind": BEYOND, "error": f"it counts further than templates may: {error}"}
        except RecursionError:
            return {"kind": BEYOND, "error": "it calls itself without an end"}
        except jinja2.sandbox.SecurityError as error:
            return {"kind": BEYOND, "error": f"it reaches for what templates may not touch: {error}"}
        except jinja2.TemplateSyntaxError as error:
            return {"kind": BROKEN, "error": f"line {error.lineno}: {error.message}"}
        except Exception as error:  # expressions of a template can raise anything
            return {"kind": FAILED, "error": f"{type(error).__name__}: {error}"}

    def _rendered(self, request: dict[str, Any]) -> dict[str, Any]:
        source = request["template"]
        self._kept[:] = request["kept"]
        template = self._compiled.get(source)
        if template is None:
            template = self._compiled[source] = self._environment.from_string(source)
        page = self._environment.page = Page(request["most_characters"])  # type: ignore[attr-defined]
        try:
            return {"text": page.write(template.generate(**request["values"])), "spans": page.spans}
        finally:
            self._environment.page = None  # type: ignore[attr-defined]


def confine(memory_bytes: int) -> None:
    """Limit this process to ``memory_bytes`` more than it uses now, and forbid it new files and connections."""
    with open("/proc/self/statm") as file:
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + memory_bytes,) * 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0))


def main() -> None:
    memory_bytes, seconds = int(sys.argv[1]), float(sys.argv[2])
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the process even during a long operation
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the parent, whose end closes the input
    renderer = Renderer()
    # Trigger lazy imports now, because files cannot be opened later.
    warm = "{% macro m() %}{% generation %}{{ [1] | tojson(indent=1) ~ strftime_now('%d %b %Y') }}{% endgeneration %}"
    warm += "{% endmacro %}{{ m() | trim | upper }}{{ 'a' | urlencode }}{{ none.x.y }}"
    renderer.answer({"template": warm, "kept": [], "most_characters": 100, "values": {}})
    confine(memory_bytes)
    # Reading and writing lines is outside of a template's time limit.
    for line in sys.stdin.buffer:
        answers = []
        for request in json.loads(line):
            signal.setitimer(signal.ITIMER_PROF, seconds)
            answers.append(renderer.answer(request))
            signal.setitimer(signal.ITIMER_PROF, 0)
            if "kind" in answers[-1]:
                break
        sys.stdout.buffer.write(json.dumps(answers).encode() + b"\n")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
