"""Parsing and writing of ALFWorld's commands in its two wordings, old and new.

``old`` is that of alfworld 0.3 (``put X in/on Y``, one arrives at a numbered location), ``new``
that of alfworld >= 0.4 (``move X to Y``, one arrives at furniture, ``help``). A game file says which one it is in. An
action is a tuple of a verb and names. Knows no state: whether an action is possible is ``world``'s.

Commands are matched as textworld matches them: all must be exact, case and inner blanks included."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from envs.alfworld.games.game import GrammarName

Action = tuple[str, ...]


@dataclass(frozen=True)
class Grammar:
    """One wording of commands. ``commands``: verb -> its command with ``{}`` for each name ("go to {}"); other verbs
    are not understood. ``arrives_at_location``: whether answers name a numbered location, as in the old wording."""

    commands: Mapping[str, str]
    arrives_at_location: bool
    """True: ``go to desk 1`` is answered with the location's name ("You arrive at loc 12"). False: with the desk's."""
    _shapes: Mapping[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)
    """First word of a command -> (verb, text before, between and after its names)."""
    _words: Mapping[str, tuple[str, ...]] = field(init=False, repr=False, compare=False)
    """Verb -> the text before, between and after its names."""

    def __post_init__(self) -> None:
        shapes = {text.partition(" ")[0]: (verb, *text.split("{}")) for verb, text in self.commands.items()}
        object.__setattr__(self, "_shapes", shapes)
        object.__setattr__(self, "_words", {verb: tuple(words) for verb, *words in shapes.values()})

    def write(self, action: Action) -> str:
        """Write an action (verb and names) as a command of this wording. Raises KeyError for an unknown verb."""
        words = self._words[action[0]]
        if len(action) == 2:  # concatenated: with format() a list of admissible commands takes half as long again
            return words[0] + action[1]
        return words[0] if len(action) == 1 else words[0] + action[1] + words[1] + action[2]

    def read(self, command: str) -> Action | None:
        """Parse a command into (verb, *names); None if it has no known form. Whether the names exist is not checked."""
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
    """Translate a command of either wording into wording ``to``. A text without an equivalent is returned unchanged."""
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
