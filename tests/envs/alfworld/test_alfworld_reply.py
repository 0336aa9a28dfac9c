"""Which command a model's reply holds: the documented rule, line by line."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.alfworld.reply import MAX_COMMAND_CHARACTERS, read_command


@pytest.mark.parametrize(
    ("reply", "command"),
    [
        ("go to desk 1", "go to desk 1"),
        ("  go to desk 1\n\n", "go to desk 1"),
        ("> go to desk 1", "go to desk 1"),
        (">go to desk 1", "go to desk 1"),
        ("I should look at the desk.\n> go to desk 1", "go to desk 1"),
        ("> go to desk 1\nThat should do it.", "go to desk 1"),
        ("> look\n> go to desk 1\n", "go to desk 1"),
        ("I should look at the desk.\ngo to desk 1", "go to desk 1"),
        ("```\ngo to desk 1\n```", "go to desk 1"),
        ("```text\n> go to desk 1\n```\n", "go to desk 1"),
        ("`go to desk 1`", "go to desk 1"),
        ('"go to desk 1."', "go to desk 1"),
        ("\u201cgo to desk 1\u201d!", "go to desk 1"),
        ("'go to desk 1';", "go to desk 1"),
        ("go to desk 1.\r\n", "go to desk 1"),
        ("look\rgo to desk 1", "go to desk 1"),
        ("Go  To desk 1", "Go  To desk 1"),
        ("> \ngo to desk 1", "go to desk 1"),
        ("think " * 30_000 + "\n> look", "look"),
        ("x" * MAX_COMMAND_CHARACTERS, "x" * MAX_COMMAND_CHARACTERS),
    ],
)
def test_the_command_is_found(reply, command):
    assert read_command(reply) == command


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "   \n\t\n",
        "```\n```",
        '"..."',
        "x" * (MAX_COMMAND_CHARACTERS + 1),
        "x" * 200_000,
        "'." * 100_000,
        "go to\x00desk 1",
        "go to \ud800",
        "take\tmug 1",
    ],
)
def test_there_is_no_command(reply):
    assert read_command(reply) is None


@settings(max_examples=500, deadline=None)
@given(st.text(alphabet=st.characters(codec=None), max_size=200))
def test_any_string_is_read_and_what_is_found_is_one_clean_line(reply):
    command = read_command(reply)
    assert command is None or (
        command == command.strip() and command.isprintable() and 0 < len(command) <= MAX_COMMAND_CHARACTERS
    )
    assert command is None or command in reply
