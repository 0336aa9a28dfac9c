"""An expert that follows a task's plan: looks up each element by role and name, and scrolls to find it."""

from collections.abc import Mapping, Sequence

from envs.webarena.actions.action import Action, Kind
from envs.webarena.browser.tree import Element
from envs.webarena.sites.suite.steps import Step

SCROLLS = 2
"""Maximum number of scrolls in a row. One more equal action would end the episode as a repetition."""


class Expert:
    """Chooses the actions of one episode. ``plan``: the task's steps, with URLs in place of placeholders."""

    def __init__(self, plan: Sequence[Step]) -> None:
        self._plan = list(plan)
        self._at = self._scrolled = 0

    def next(self, elements: Mapping[str, Element]) -> Action:
        """The plan's next action; a scroll down while its element is not among ``elements``, and a stop if it is still
        missing after ``SCROLLS`` scrolls. Call once per turn. After the plan's end its last action is repeated."""
        step = self._plan[self._at]
        element_id = ""
        if "role" in step:
            element_id = element_named(step["role"], step["name"], elements)
            if not element_id and self._scrolled < SCROLLS:
                self._scrolled += 1
                return Action(Kind.SCROLL, direction="down")
            if not element_id:
                return Action(Kind.STOP, answer=f"there is no {step['role']} {step['name']!r}")
        self._at, self._scrolled = min(self._at + 1, len(self._plan) - 1), 0
        match step["do"]:
            case "goto":
                return Action(Kind.GOTO_URL, url=step["url"])
            case "click":
                return Action(Kind.CLICK, element_id=element_id)
            case "type":
                return Action(Kind.TYPE, element_id=element_id, text=step["text"], enter=step["enter"])
            case "press":
                return Action(Kind.KEY_PRESS, key_comb=step["keys"])
        return Action(Kind.STOP, answer=step["answer"])


def element_named(role: str, name: str, elements: Mapping[str, Element]) -> str:
    """Id of the first element with this role and name, else of the first whose name contains it, else empty."""
    names = [(at, " ".join(one.name.split())) for at, one in elements.items() if one.role == role]
    equal = [at for at, own in names if own == name]
    containing = [at for at, own in names if name and name in own]
    return (equal or containing or [""])[0]
