"""Builds the prompts of browser tasks in both action languages; every action in them is written by ``render``.

The slots are upstream's (role, inputs, actions by group, homepage, rules, examples, then observation, URL, objective,
previous action); the wording is the project's own. ``read_prompt`` loads upstream's prompt files."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from envs.webarena.actions.action import Action, Kind
from envs.webarena.actions.languages import FENCE, Language, Reading, render
from envs.webarena.actions.python_calls import signature_of
from envs.webarena.views import PictureKind

NONE_YET = "None"
PROBLEM_CHARS = 200
_CALL = re.compile(r"^\w+\.\w+: ")
"""Prefix of a driver's error message: the function that was called."""
_TURN = "OBSERVATION:\n{observation}\nURL: {url}\nOBJECTIVE: {objective}\nPREVIOUS ACTION: {previous_action}"
_SHAPES: Mapping[str, tuple[str, str]] = {
    "click": ("click [id]", "click the element with this id"),
    "hover": ("hover [id]", "move the mouse over the element with this id"),
    "type": (
        "type [id] [content] [press_enter_after=0|1]",
        "click the element with this id and type the content; Enter follows unless told otherwise",
    ),
    "press": ("press [key_comb]", "press keys together, such as Control+v"),
    "scroll": ("scroll [direction=down|up]", "scroll the page by one screen, down or up"),
    "new_tab": ("new_tab", "open an empty tab and go to it"),
    "tab_focus": ("tab_focus [tab_index]", "go to the tab with this number"),
    "close_tab": ("close_tab", "close the current tab"),
    "goto": ("goto [url]", "go to this address"),
    "go_back": ("go_back", "go to the page before"),
    "go_forward": ("go_forward", "go to the page after, where you have gone back"),
    "stop": ("stop [answer]", "end the task; where a text is asked for, it is the answer"),
}
_GROUPS: Mapping[str, tuple[str, ...]] = {
    "On a page": ("click", "hover", "type", "press", "scroll"),
    "With tabs": ("new_tab", "tab_focus", "close_tab"),
    "With addresses": ("goto", "go_back", "go_forward"),
    "At the end": ("stop",),
}
_SYSTEM = """\
You are an agent that does tasks in a web browser by actions. Before each of your actions you are given:
OBSERVATION: the open tabs and the accessibility tree of what can be seen of the current page. Each line is an \
element: its id in brackets, its role, its name, its properties.
URL: the address of the current page.
OBJECTIVE: the task.
PREVIOUS ACTION: what you did last. Nothing before it is shown.
{picture}
The actions:
{actions}

{homepage}Rules:
1. Only elements of the current observation can be acted on, by their ids.
2. One action a reply, between a pair of {fence}.
3. {style}
4. When the task is done, say so by {stop}. Nothing after it is carried out.{hint}"""
_PICTURE = "A screenshot of the page comes with them"
_PICTURES: Mapping[PictureKind, str] = {
    "": "",
    "plain": f"{_PICTURE}.\n",
    "marked": f"{_PICTURE}; what can be acted on has a frame in it, labelled with its id.\n",
}
_HOMEPAGE = "{url} is a page with links to all sites there are.\n\n"
_REASONING = "Think step by step first, and end with the action, for example: {lead} {fence}{example}{fence}"
_DIRECT = "Reply with the action alone, for example: {fence}{example}{fence}"
_LEAD = "So the next action is"
_HINT = " If it cannot be done, the answer is {stop}."
_HOME = "http://homepage.com"


@dataclass(frozen=True)
class Prompt:
    """System message, worked examples (pairs of a user and an assistant message), and template of a user message."""

    system: str
    examples: tuple[tuple[str, str], ...] = ()
    turn: str = _TURN

    def shown(self, observation: str, url: str, objective: str, previous: str) -> str:
        """The user message of one turn, from the template. ``previous``: the line about the last action. ``objective``:
        the task's intent."""
        slots = {"observation": observation, "url": url, "objective": objective, "previous_action": previous}
        text = self.turn
        for name in sorted(slots, key=lambda one: text.find("{" + one + "}"), reverse=True):
            text = text.replace("{" + name + "}", slots[name], 1)
        return text


@dataclass(frozen=True)
class _Example:
    observation: str
    url: str
    objective: str
    thought: str
    action: Action


_EXAMPLES = (
    _Example(
        "Tab 0 (current): Office chairs | Corner Shop\n\n"
        "[201] RootWebArea 'Office chairs | Corner Shop' focused: True\n"
        "\t[212] link 'Swivel chair, grey'\n\t[214] StaticText '$129.00'\n\t[230] button 'Add to Cart'",
        "http://onestopmarket.com/office/swivel-chair-grey.html",
        "How much is the grey swivel chair?",
        "This is the page of the grey swivel chair, and its price stands there: $129.00. Nothing else is asked for.",
        Action(Kind.STOP, answer="$129.00"),
    ),
    _Example(
        "Tab 0 (current): OpenStreetMap\n\n[31] RootWebArea 'OpenStreetMap' focused: True\n"
        "\t[40] textbox 'Search' focused: True required: False\n\t[42] button 'Go'\n\t[55] link 'Find directions'",
        "http://openstreetmap.org",
        "Show me the coffee shops close to the Frick museum",
        "The page has a search field, id 40. I search for the coffee shops in it, and Enter starts that.",
        Action(Kind.TYPE, element_id="40", text="coffee shop near Frick museum", enter=True),
    ),
    _Example(
        "Tab 0 (current): Forum\n\n[7] RootWebArea 'Forum' focused: True\n\t[9] link 'All topics'\n"
        "\t[11] heading 'Latest topics'\n\t[15] link 'Lost cat in Shadyside'",
        "http://reddit.com",
        "Open the last of the latest topics",
        "Only the first of the latest topics can be seen. The others are further down on this page.",
        Action(Kind.SCROLL, direction="down"),
    ),
)


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
    if not 0 <= num_examples <= len(_EXAMPLES):
        raise ValueError(f"{num_examples} examples: expected 0 to {len(_EXAMPLES)}")
    example = render(Action(Kind.CLICK, element_id="1234"), language)
    style = (_REASONING if reasoning else _DIRECT).format(lead=_LEAD, fence=FENCE, example=example)
    system = _SYSTEM.format(
        picture=_PICTURES[picture],
        actions="\n".join(_group(title, names, language) for title, names in _GROUPS.items()),
        homepage=_HOMEPAGE.format(url=_HOME) if homepage else "",
        fence=FENCE,
        style=style,
        stop=_shape("stop", language),
        hint=_HINT.format(stop=render(Action(Kind.STOP, answer="N/A"), language)) if hint else "",
    )
    prompt = Prompt(system)
    examples = tuple(
        (prompt.shown(e.observation, e.url, e.objective, NONE_YET), _reply_of(e, language, reasoning))
        for e in _EXAMPLES[:num_examples]
    )
    return Prompt(system, examples)


def _group(title: str, names: Sequence[str], language: Language) -> str:
    return "\n".join([f"{title}:", *(f"  {_shape(name, language)}: {_SHAPES[name][1]}" for name in names)])


def _shape(name: str, language: Language) -> str:
    return signature_of(name) if language == "python" else _SHAPES[name][0]


def _reply_of(example: _Example, language: Language, reasoning: bool) -> str:
    action = f"{FENCE}{render(example.action, language)}{FENCE}"
    return f"{example.thought} {_LEAD} {action}" if reasoning else action


def read_prompt(file: Path) -> Prompt:
    """Read a prompt file of WebArena: JSON of intro, examples and template. Raises ValueError for another content,
    OSError if it cannot be read."""
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
