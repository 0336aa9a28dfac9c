"""The two wordings of ALFWorld's commands: which text means which action, and the reverse.

``old`` is that of the recorded games (alfworld 0.3: ``put X in/on Y``, one arrives at a numbered location), ``new``
that of alfworld >= 0.4 (``move X to Y``, one arrives at furniture, ``help``). A game file says which one it is in. An
action is a tuple of a verb and names. Knows no state: whether an action is possible is ``world``'s.

Commands are matched as textworld matches them: all must be exact, case and inner blanks included.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from envs.alfworld.games.game import GrammarName

Action = tuple[str, ...]


@dataclass(frozen=True)
class Grammar:
    """``commands``: verb -> its command with ``{}`` for each name; verbs that are not in it are not understood."""

    commands: Mapping[str, str]
    arrives_at_location: bool
    """Whether ``go to desk 1`` is answered with the location's name and not the desk's."""
    _shapes: Mapping[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)
    """First word of a command -> the verb, and the words before, between and after its names."""
    _words: Mapping[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)
    """Verb -> the words before and between its names."""

    def __post_init__(self) -> None:
        shapes = {text.partition(" ")[0]: (verb, *text.split("{}")) for verb, text in self.commands.items()}
        object.__setattr__(self, "_shapes", shapes)
        object.__setattr__(self, "_words", {verb: tuple(words) for verb, *words in shapes.values()})

    def write(self, action: Action) -> str:
        """The command for an action."""
        words = self._words[action[0]]
        if len(action) == 2:  # concatenated: with format() a list of admissible commands takes half as long again
            return words[0] + action[1]
        return words[0] if len(action) == 1 else words[0] + action[1] + words[1] + action[2]

    def read(self, command: str) -> Action | None:
        """The action that a command means; its names may be names of nothing. None if it has no command's form."""
        shape = self._shapes.get(command.partition(" ")[0])
        if shape is None or not command.startswith(shape[1]):
            return None
        if len(shape) == 2:
            return (shape[0],) if command == shape[1] else None
        names = command[len(shape[1]) :]
        if len(shape) == 3:
            return shape[0], names
        first, between, second = names.partition(shape[2])
        return (shape[0], first, second) if between else None


def reworded(command: str, to: GrammarName) -> str:
    """A command of either wording in one of them. Any other text is returned unchanged."""
    target = GRAMMARS[to]
    for grammar in GRAMMARS.values():
        action = grammar.read(command)
        if action is not None and action[0] in target.commands:
            return target.write(action)
    return command


_COMMANDS = {
    "look": "look",
    "inventory": "inventory",
    "go": "go to {}",
    "open": "open {}",
    "close": "close {}",
    "take": "take {} from {}",
    "examine": "examine {}",
    "use": "use {}",
    "clean": "clean {} with {}",
    "heat": "heat {} with {}",
    "cool": "cool {} with {}",
    "slice": "slice {} with {}",
}
GRAMMARS: Mapping[GrammarName, Grammar] = {
    "old": Grammar({**_COMMANDS, "put": "put {} in/on {}"}, arrives_at_location=True),
    "new": Grammar({**_COMMANDS, "put": "move {} to {}", "help": "help"}, arrives_at_location=False),
}
