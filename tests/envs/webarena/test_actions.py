"""Both action languages, what ends an episode early, and that nothing else is ever raised."""

from __future__ import annotations

import contextlib
import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.webarena.actions.action import NOTHING, Action, ActionParsingError, Kind, equivalent
from envs.webarena.actions.early_stop import EarlyStop, Stop, StopKind
from envs.webarena.actions.languages import read_reply, render
from envs.webarena.actions.python_calls import SIGNATURES, parse_calls, render_call, signature_of
from envs.webarena.actions.symbolic import loses, parse_symbolic, render_symbolic

texts = st.text(st.characters(codec="utf-8"), max_size=60)
digits = st.from_regex(r"[0-9]{1,20}", fullmatch=True)


def actions_of(kind: Kind) -> st.SearchStrategy[Action]:
    """Any action of a kind."""
    fields = {
        "element_id": digits,
        "text": texts,
        "enter": st.booleans(),
        "key_comb": texts.filter(bool),
        "direction": st.sampled_from(("up", "down")),
        "url": texts.filter(bool),
        "page_number": st.integers(0, 10**17),
        "answer": texts,
    }
    (signature,) = [one for one in SIGNATURES.values() if one.kind is kind]
    return st.builds(Action, st.just(kind), **{p.field: fields[p.field] for p in signature.parameters})


actions = st.one_of([actions_of(kind) for kind in Kind if kind is not Kind.NONE])
near_misses = st.builds(
    "{}{}({}{}".format,
    st.sampled_from(("", "```", "```python\n", " ")),
    st.sampled_from((*SIGNATURES, "print", "a.b", "")),
    st.text("'\"0123456789=,()*[]{}\\\nidcontentTrueFalse.-f#", max_size=40),
    st.sampled_from((")", ")```", "", ");click(1)")),
)


@given(actions)
def test_a_call_that_is_written_is_read_as_the_same_action(action: Action) -> None:
    found = parse_calls(render_call(action))
    assert found.action == action
    assert read_reply(
        f"I go on. ```python\n{render(action, 'python')}\n```", "python"
    ).action == action or "```" in str(dataclasses.astuple(action))


@given(actions)
def test_a_symbolic_action_that_is_written_is_read_as_the_same_unless_it_is_said_to_lose(action: Action) -> None:
    if not loses(action):
        assert parse_symbolic(render_symbolic(action)) == action


@given(st.one_of(texts, near_misses, st.text(max_size=200)))
def test_reading_raises_nothing_but_its_own_error_on_any_text(text: str) -> None:
    for parse in (parse_calls, parse_symbolic, lambda said: parse_symbolic(said, strict=True)):
        with contextlib.suppress(ActionParsingError):
            parse(text)
    for language in ("symbolic", "python"):
        read_reply(text, language)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("code", "written", "coerced"),
    [
        ("type(164, 'pens')", "type(id=164, content='pens', press_enter_after=True)", 0),
        (
            "type('164', content='pens', press_enter_after=0)",
            "type(id=164, content='pens', press_enter_after=False)",
            2,
        ),
        ("stop(279.49)", "stop(answer='279.49')", 1),
        ("stop(-1_000)", "stop(answer='-1_000')", 1),
        ("stop('a' 'b')", "stop(answer='ab')", 1),
        ("click(1)\nclick(2)", "click(id=1)", 1),
        ("stop()", "stop(answer='')", 0),
        ('stop("""two\nlines""")', "stop(answer='two\\nlines')", 0),
        ("click(id=5,)  # the button", "click(id=5)", 0),
    ],
)
def test_what_a_reader_takes_for_granted_is_accepted_and_counted(code: str, written: str, coerced: int) -> None:
    found = parse_calls(code)
    assert (render_call(found.action), found.coerced) == (written, coerced)


@pytest.mark.parametrize(
    "code",
    [
        "click()", "click(1, 2)", "click(id=1, id=2)", "click(1, id=1)", "click(*[1])", "click(**{'id': 1})",
        "click(-1)", "click(True)", "click(1.0)", "click(number=1)", "page.click(1)", "click(f'{1}')", "click",
        "x = click(1)", "__import__('os').system('true')", "type(1, b'x')", "type(1, None)", "scroll('left')",
        "goto('')", "press(5)", "type(1, 'x', 'yes')", "stop(1 + 1)", "click(" * 300 + ")" * 300, "click(1\0)",
        "click(" + "9" * 5000 + ")", "tab_focus('" + "9" * 5000 + "')",
    ],
)  # fmt: skip
def test_what_is_no_call_of_the_table_is_refused(code: str) -> None:
    with pytest.raises(ActionParsingError):
        parse_calls(code)


def test_the_first_fenced_block_counts_else_the_first_line_that_is_a_call() -> None:
    assert read_reply("```\nclick(id=1)\n``` or ```click(id=2)```", "python").action.element_id == "1"
    assert read_reply("I think.\nclick(id=3)\nclick(id=4)", "python").action.element_id == "3"
    assert read_reply("so ```click [5]``` or ```click [6]```", "symbolic").action.element_id == "5"
    assert read_reply("click [5]", "symbolic").action == NOTHING
    assert "no action" in read_reply("click [5]", "symbolic").error


def test_strict_reads_what_the_prompt_shows_and_upstream_does_not() -> None:
    for text, action in {
        "type [5] [x] [press_enter_after=0]": Action(Kind.TYPE, "5", "x", enter=False),
        "type [5] [你好\n😀]": Action(Kind.TYPE, "5", "你好\n😀", enter=True),
        "scroll [direction=down]": Action(Kind.SCROLL, direction="down"),
        "stop [two\nlines]": Action(Kind.STOP, answer="two\nlines"),
    }.items():
        assert parse_symbolic(text, strict=True) == action
    assert parse_symbolic("type [5] [x] [press_enter_after=0]").text == "x] [press_enter_after=0"
    assert parse_symbolic("stop [two\nlines]").answer == ""


def test_several_lines_are_what_the_symbolic_form_cannot_say() -> None:
    assert loses(Action(Kind.TYPE, "1", "two\nlines"))
    assert loses(Action(Kind.STOP, answer="two\nlines"))
    assert not loses(Action(Kind.STOP, answer="one line"))


def test_every_action_has_one_signature_and_its_prompt_form() -> None:
    assert {one.kind for one in SIGNATURES.values()} == set(Kind) - {Kind.NONE}
    assert signature_of("type") == "type(id: int, content: str, press_enter_after: bool = True)"


def test_what_is_typed_makes_no_other_action_but_another_element_does() -> None:
    one, other = Action(Kind.TYPE, "1", "a"), Action(Kind.TYPE, "1", "b", enter=True)
    assert equivalent(one, other)
    assert not equivalent(one, Action(Kind.TYPE, "2", "a"))
    assert not equivalent(Action(Kind.GOTO_URL, url="a"), Action(Kind.GOTO_URL, url="b"))
    assert equivalent(NOTHING, NOTHING)


def test_typing_counts_anywhere_and_other_actions_in_a_row() -> None:
    click, typing = Action(Kind.CLICK, "1"), Action(Kind.TYPE, "2", "x")
    rule = EarlyStop()
    repeated = Stop(StopKind.REPEATING, "Same typing action for 3 times")
    assert rule.check([typing, click, typing, click, typing]) == repeated
    assert rule.check([click, typing, click, typing, click]) is None
    assert rule.check([click] * 3) == Stop(StopKind.REPEATING, "Same action for 3 times")
    assert rule.check([]) is None
    stops = [rule.check([NOTHING] * n) for n in (2, 3, 30)]
    assert [stop and stop.kind for stop in stops] == [None, StopKind.PARSING_FAILURE, StopKind.MAX_STEPS]
