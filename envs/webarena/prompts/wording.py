"""Builds the prompts of browser tasks in both action languages; every action in them is written by ``render``.

The slots are upstream's (role, inputs, actions by group, homepage, rules, examples, then observation, URL, objective,
previous action); the wording is the project's own (``wording.toml``). ``read_prompt`` loads upstream's prompt files,
``cut_of`` truncates observations."""

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from envs.webarena.actions.action import Action, Kind
from envs.webarena.actions.languages import FENCE, Language, Reading, render
from envs.webarena.actions.python_calls import signature_of
from envs.webarena.views import PictureKind
from lemur_ray.host.json_files import toml_beside

NONE_YET = "None"
PROBLEM_CHARS = 200
MAX_TOKENS = 1920
CHARS_PER_TOKEN = 3
"""Estimated characters per token of an accessibility tree, used without a tokenizer."""
_CALL = re.compile(r"^\w+\.\w+: ")
"""Prefix of a driver's error message: the function that was called."""
_WORDS = toml_beside(__file__)
_GROUPS: Mapping[str, Mapping[str, tuple[str, str]]] = _WORDS["actions"]
_SHAPES = {name: shape for group in _GROUPS.values() for name, shape in group.items()}
"""Action -> its symbolic form, and what it does."""
_HOME = "http://homepage.com"


@dataclass(frozen=True)
class Prompt:
    """System message, worked examples (pairs of a user and an assistant message), and template of a user message."""

    system: str
    examples: tuple[tuple[str, str], ...] = ()
    turn: str = _WORDS["turn"]

    def shown(self, observation: str, url: str, objective: str, previous: str) -> str:
        """The user message of one turn. ``objective``: the task's intent; ``previous``: the line on the last action."""
        slots = {"observation": observation, "url": url, "objective": objective, "previous_action": previous}
        text = self.turn
        for name in sorted(slots, key=lambda one: text.find("{" + one + "}"), reverse=True):
            text = text.replace("{" + name + "}", slots[name], 1)
        return text


def build(
    language: Language,
    *,
    reasoning: bool = True,
    hint: bool = True,
    num_examples: int = 2,
    homepage: bool = True,
    picture: PictureKind = "",
) -> Prompt:
    """Build the project's prompt. ``reasoning``: ask for thoughts; ``hint``: explain impossible tasks; ``homepage``:
    name the page of all sites; ``picture``: the screenshots to mention. Raises ValueError for too many examples."""
    rows = _WORDS["examples"]
    if not 0 <= num_examples <= len(rows):
        raise ValueError(f"{num_examples} examples: expected 0 to {len(rows)}")
    example = render(Action(Kind.CLICK, element_id="1234"), language)
    style = _WORDS["reasoning" if reasoning else "direct"].format(lead=_WORDS["lead"], fence=FENCE, example=example)
    system = _WORDS["system"].format(
        picture=_WORDS["pictures"][picture],
        actions="\n".join(_group(title, names, language) for title, names in _GROUPS.items()),
        homepage=_WORDS["homepage"].format(url=_HOME) if homepage else "",
        fence=FENCE,
        style=style,
        stop=_shape("stop", language),
        hint=_WORDS["hint"].format(stop=render(Action(Kind.STOP, answer="N/A"), language)) if hint else "",
    )
    prompt = Prompt(system)
    examples = tuple(
        (prompt.shown(row["observation"], row["url"], row["objective"], NONE_YET), _reply_of(row, language, reasoning))
        for row in rows[:num_examples]
    )
    return Prompt(system, examples)


def _group(title: str, names: Iterable[str], language: Language) -> str:
    return "\n".join([f"{title}:", *(f"  {_shape(name, language)}: {_SHAPES[name][1]}" for name in names)])


def _shape(name: str, language: Language) -> str:
    return signature_of(name) if language == "python" else _SHAPES[name][0]


def _reply_of(example: Mapping[str, Any], language: Language, reasoning: bool) -> str:
    action = Action(**{**example["action"], "kind": Kind(example["action"]["kind"])})
    written = f"{FENCE}{render(action, language)}{FENCE}"
    return f"{example['thought']} {_WORDS['lead']} {written}" if reasoning else written


def read_prompt(file: Path) -> Prompt:
    """Read a prompt file of WebArena: JSON of intro, examples and template. Raises ValueError for others, OSError."""
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
        examples = tuple((str(user), str(assistant)) for user, assistant in fields["examples"])
        return Prompt(str(fields["intro"]), examples, str(fields["template"]))
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{file}: no prompt of WebArena's (intro, examples, template): {error}") from error


def previous_action(
    reading: Reading, reply: str, language: Language, elements: Mapping[str, str], problem: str = ""
) -> str:
    """The prompt's line about the last action. ``elements``: id -> role, name and properties as the model saw them.
    ``problem``: why the action failed; empty if it did not."""
    action = reading.action
    if action.kind is Kind.NONE:
        shape = "action(argument=value)" if language == "python" else "action [argument]"
        quoted = " ".join(reply.split())[-300:]
        return f'None: your reply "{quoted}" held no action. Write one as {FENCE}{shape}{FENCE}.'
    written = render(action, language)
    if action.kind is Kind.PAGE_FOCUS:
        written = written.replace("tab_focus", "page_focus", 1)
    if action.element_id and action.element_id not in elements:
        return f"{written}, in vain: no element [{action.element_id}] is in the observation. Look at it again."
    if action.element_id:
        written = f"{written} where [{action.element_id}] is {elements[action.element_id]}"
    why = " ".join(_CALL.sub("", problem).split())[:PROBLEM_CHARS]
    return f"{written}, in vain: {why}" if why else written


def cut_of(tokenizer: str, max_tokens: int = MAX_TOKENS) -> Callable[[str], str]:
    """A function that truncates a text after its first ``max_tokens`` tokens, counted by the ``tokenizer.json`` at this
    path; if the path is empty, after 3 characters for each. Raises ValueError for any other file."""
    if not tokenizer:
        return lambda text: text[: max_tokens * CHARS_PER_TOKEN]
    loaded = _load_tokenizer(tokenizer)

    def cut(text: str) -> str:
        ends = loaded.encode(text, add_special_tokens=False).offsets
        return text if len(ends) <= max_tokens else text[: ends[max_tokens - 1][1]]

    return cut


@cache
def _load_tokenizer(file: str) -> Any:
    from tokenizers import Tokenizer

    if not Path(file).is_file():
        raise ValueError(f"--tokenizer {file}: not there; expected a tokenizer.json")
    try:
        return Tokenizer.from_file(file)
    except Exception as error:  # the package raises Exception itself
        raise ValueError(f"--tokenizer {file}: no tokenizer.json: {error}") from error
