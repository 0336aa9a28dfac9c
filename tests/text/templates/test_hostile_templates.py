"""Templates that never end, grow, recurse or reach for the machine: each is one error, and the next one renders."""

from __future__ import annotations

import concurrent.futures
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from lemur_ray.text.chat_template import Chat, TemplateError, TemplateRefused, TemplateUnusable
from lemur_ray.text.templates import renderer
from lemur_ray.text.templates.jinja_template import JinjaTemplate
from tests.source_tree import ROOT

USER = Chat([{"role": "user", "content": "hello"}], add_generation_prompt=True)
GROWING = "{% set ns = namespace(x='ab') %}{% for i in range(200) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}"
LOOPING = "{% for a in range(99999) %}{% for b in range(99999) %}{{ '' }}{% endfor %}{% endfor %}"


@pytest.fixture(scope="module", autouse=True)
def little_patience() -> Iterator[None]:
    """Smaller limits, so that what runs into them does so soon."""
    renderer._PROCESS.close()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(renderer, "SECONDS", 0.4)
        patch.setattr(renderer, "MEMORY_BYTES", 2**27)
        yield
    renderer._PROCESS.close()


def template(source: str) -> JinjaTemplate:
    return JinjaTemplate({"default": source}, {"bos_token": "<s>"}, "a test")


def said_of(source: str, chat: Chat = USER) -> str:
    with pytest.raises(TemplateError) as caught:
        template(source).render([chat])
    return f"{type(caught.value).__name__}: {caught.value}"


@pytest.mark.parametrize(
    ("source", "why"),
    [
        (LOOPING, "does not come to an end within"),
        ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "calls itself without an end"),
        ("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "calls itself without an end"),
        ("{{ 'a' * 10**11 }}", "memory"),
        ("{{ 'a'.ljust(10**11) }}", "memory"),
        ("{{ '%0999999999d' % 1 }}", "memory"),
        (GROWING, "memory"),
        ("{% for i in range(10**8) %}{% endfor %}", "counts further than templates may: Range too big"),
        ("{{ 'a' * 10**30 }}", "counts further than templates may"),
        ("{% for i in range(99999) %}{{ '" + "a" * 400 + "' }}{% endfor %}", "prints more than"),
        ("{% include '/etc/passwd' %}", "may not touch: the file"),
        ("{% import 'socket' as s %}", "may not touch: the file"),
        ("{{ ''.__class__.__mro__ }}", "may not touch: access to attribute '__class__'"),
        ("{{ lipsum.__globals__.os.popen('id').read() }}", "may not touch: access to attribute '__globals__'"),
        ("{{ namespace.__init__.__globals__ }}", "may not touch"),
        ("{{ namespace(_secret=1) }}", "may not touch"),
        ("{{ '{0.__class__.__mro__}'.format(1) }}", "may not touch"),
        ("{% if %}", "no Jinja template: line 1"),
    ],
)
def test_what_no_template_may_do_is_an_error_that_says_so(source: str, why: str) -> None:
    said = said_of(source)
    assert said.startswith("TemplateUnusable: the chat template ")
    assert why in said
    assert template("{{ messages[0].content }}").render([USER]) == ["hello"], "the next one is served"


def test_a_template_that_raises_is_quoted() -> None:
    refused = "{{ raise_exception('roles must alternate') }}"
    with pytest.raises(TemplateRefused, match="refuses this conversation: roles must alternate"):
        template(refused).render([USER])
    assert "cannot render this conversation: UndefinedError" in said_of("{{ messages[7].content }}")
    assert "cannot render this conversation: TypeError" in said_of("{{ messages[0].content + 1 }}")
    assert "no default" in said_of_named()


def said_of_named() -> str:
    with pytest.raises(TemplateError) as caught:
        JinjaTemplate({"rag": "x"}, {}, "a test").render([USER])
    return str(caught.value)


def test_the_process_that_renders_can_open_nothing_and_knows_nothing_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a template could that broke out of the sandbox: from the program's own point of view."""
    monkeypatch.setenv("LEMUR_SECRET", "s3cret")
    code = (
        "import os, socket\n"
        "from lemur_ray.text.templates import render_process as program\n"
        "program.confine(2**28)\n"
        "for act in (lambda: open('/etc/passwd'), lambda: socket.socket(), lambda: open('x', 'w'), os.pipe):\n"
        "    try: act()\n"
        "    except OSError as error: print(error.errno)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["24"] * 4
    assert template("{{ messages[0].content }}").render([USER]) == ["hello"]
    child = renderer._PROCESS._child
    assert child is not None
    with open(f"/proc/{child.pid}/environ") as file:
        assert "s3cret" not in file.read()


def test_a_template_of_one_request_holds_up_no_other_thread_for_longer_than_its_time() -> None:
    fine, hostile = template("{{ messages[0].content }}"), template(LOOPING)

    def ask(number: int) -> str:
        try:
            return (hostile if number == 3 else fine).render([USER])[0]
        except TemplateUnusable:
            return "unusable"

    with concurrent.futures.ThreadPoolExecutor(8) as threads:
        found = list(threads.map(ask, range(24)))
    assert found.count("unusable") == 1
    assert found.count("hello") == 23


def test_the_process_ends_with_the_one_that_asked() -> None:
    code = (
        "import os, sys\n"
        "from lemur_ray.text.templates import renderer\n"
        "renderer.render('{{ x }}', [{'x': 1}])\n"
        "print(renderer._PROCESS._child.pid, flush=True)\n"
        "os._exit(0)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    pid, deadline = int(done.stdout), time.monotonic() + 60
    while os.path.exists(f"/proc/{pid}/exe") and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not os.path.exists(f"/proc/{pid}/exe")
