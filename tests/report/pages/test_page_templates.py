"""Templates of pages: every value is escaped, every name is known, and a template's layout is not part of the page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from jinja2 import UndefinedError
from markupsafe import Markup

from lemur_ray.host.page_style import page_style
from lemur_ray.report.pages import rendering
from lemur_ray.report.pages.markup import Page, cell, numeric, page, table, tiles, warning
from lemur_ray.report.pages.pretraining.mixture_page import render_study
from lemur_ray.serve.http.chat_page import ChatPage
from tests.report.report_samples import write_run

TEMPLATES = Path(rendering.__file__).parent / "templates"
HOSTILE = "\x1b[2J<script>\u202e\"'&"
SHOWN = "\\x1b[2J&lt;script&gt;\\u202e&quot;&#x27;&amp;"


@pytest.mark.parametrize("name", sorted(str(path.relative_to(TEMPLATES)) for path in TEMPLATES.rglob("*.j2")))
def test_every_template_compiles(name: str) -> None:
    rendering.environment().get_template(name)


def test_a_template_cannot_use_a_name_that_has_no_value() -> None:
    with pytest.raises(UndefinedError, match="recipe"):
        rendering.render("run", page=Page("x"), progress="", num_episodes=1)


@pytest.mark.parametrize(
    "part",
    [table([HOSTILE], [[HOSTILE]]), tiles([(HOSTILE, HOSTILE)]), warning([HOSTILE]), cell({HOSTILE: [HOSTILE]}),
     numeric(HOSTILE), page(HOSTILE, "")],
)  # fmt: skip
def test_text_is_escaped_and_made_printable_wherever_a_template_puts_it(part: str) -> None:
    assert SHOWN in part
    assert not {"\x1b", "\u202e"} & set(part)
    assert "[2J<script>" not in part


def test_layout_of_a_template_is_no_part_of_a_page_and_a_break_in_text_is_a_space() -> None:
    source = "<p>\n  one\n  two {{ x }}\n  <b>three</b>\n</p>\n"
    assert rendering.environment().from_string(source).render(x=4) == "<p>one two 4<b>three</b></p>"


def test_a_table_has_the_same_bytes_as_ever() -> None:
    shown = table(["name", "n <1>"], [["a&b", 1234], ["c", None]], strong=frozenset([1]), kind="many")
    assert isinstance(shown, Markup)
    assert shown == (
        '<div class="scroll many"><table><thead><tr><th>name</th><th class="n">n &lt;1&gt;</th></tr></thead><tbody>'
        '<tr><td>a&amp;b</td><td class="n">1,234</td></tr>'
        '<tr class="strong"><td>c</td><td class="n">\u2013</td></tr></tbody></table></div>'
    )


def test_the_page_of_a_mixture_study_has_a_chart_for_each_metric_and_names_what_is_missing(tmp_path: Path) -> None:
    trials = []
    for ratio, share in (("1:1", 0.5), ("10:1", 10 / 11)):
        folder = write_run(tmp_path / ratio.replace(":", "-"), steps=300)
        result = json.loads((folder / "result.json").read_text())
        measured = {f"heldout/{k}/{m}": 2.0 + share for k in ("code", "text") for m in ("bits_per_byte", "loss")}
        (folder / "result.json").write_text(json.dumps(result | measured))
        trials.append({"ratio": ratio, "code_share": share, "seed": 0, "folder": folder.name})
    trials.append({"ratio": "1:0", "code_share": 1.0, "seed": 0, "folder": "absent"})
    study = {"recipe": "nano <x>", "steps": 300, "tokens_per_step": 4096, "trials": trials}
    (tmp_path / "study.json").write_text(json.dumps(study))
    render_study(tmp_path)
    text = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert text.count("<svg") == 2
    assert "nano &lt;x&gt;, 300 steps of 4,096 tokens for each of 2 trials; held-out rows" in text
    assert "trial absent has not finished" in text
    assert (tmp_path / "loss.svg").read_text().startswith("<svg")


def test_report_and_chat_page_begin_with_the_same_style() -> None:
    async def app(scope: object, receive: object, send: object) -> None: ...

    assert f"<style>\n{page_style()}" in page("x", "")
    assert f"<style>\n{page_style()}" in ChatPage(app)._body.decode()
