"""Extracts the one command from a model's raw reply.

Whether the command is possible is not checked here. The rule, in order:

1. Lines that open or close a code fence (three backticks, with or without a language) do not count.
2. If a line begins with ``>``, the command is what follows on the last such line; else it is the last line that is not
   empty. So a model may think aloud first, and may quote the game's prompt.
3. Of that text, surrounding whitespace, quotes (straight and curly) and backticks, and trailing ``. , ; : !`` are
   dropped. Nothing else is changed: not the case, not the blanks inside.
4. There is no command if nothing is left, if more than 500 characters are left, or if one of them cannot be printed
   (control characters, lone surrogates)."""

import re

MAX_COMMAND_CHARACTERS = 500
_LINE_BREAK = re.compile(r"\r\n|\r|\n")
_FENCE = re.compile(r"\s*```[\w+-]*\s*")
_PROMPTED = re.compile(r"\s*>(.*)")
_AROUND = " \t\"'`\u201c\u201d\u2018\u2019"
_AFTER = ".,;:!"


def read_command(reply: str) -> str | None:
    """The command in a reply, or None if there is none. Accepts any string and never raises."""
    chosen, prompted = "", False
    for line in _LINE_BREAK.split(reply):
        if not line.strip() or _FENCE.fullmatch(line):
            continue
        match = _PROMPTED.fullmatch(line)
        if match and match[1].strip():
            chosen, prompted = match[1], True
        elif not prompted:
            chosen = line
    chosen = chosen.strip()
    if len(chosen) > 2 * MAX_COMMAND_CHARACTERS:  # no honest wrapping is that long, and peeling it off takes time
        return None
    command = _stripped_command(chosen)
    return command if 0 < len(command) <= MAX_COMMAND_CHARACTERS and command.isprintable() else None


def _stripped_command(text: str) -> str:
    """Strip surrounding quotes, backticks and trailing punctuation until nothing changes: ``"look."`` to ``look``."""
    while (shorter := text.strip().strip(_AROUND).rstrip(_AFTER)) != text:
        text = shorter
    return text
