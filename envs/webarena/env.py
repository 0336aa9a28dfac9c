"""The gymnasium environment WebArena-v0: a model's replies act in a real browser and get accessibility trees back.

Each reply is one action in one of two languages (``actions``). As in upstream (libwebarena 0.0.4), the model sees only
the newest observation, with the last action below it. An episode ends by the action ``stop`` or an early stop, and is
then scored once, on its last page. If a site or the browser fails (``SitesLost``, ``BrowserLost``), the episode is
played again, since the model is not at fault."""

import json
import re
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

from envs.text_env import Opening, TextEnv, Turn
from envs.webarena.actions.action import Action, Kind
from envs.webarena.actions.early_stop import ANSWER, EarlyStop, StopKind
from envs.webarena.actions.languages import FENCE, Language, read_reply, render
from envs.webarena.actions.symbolic import loses
from envs.webarena.browser.host import shared_host
from envs.webarena.browser.last_page import LastTab
from envs.webarena.browser.play import Artefacts, BrowserPlay, Rules
from envs.webarena.browser.public_hosts import to_public, with_real_urls
from envs.webarena.browser.tree import Element
from envs.webarena.evaluators.evaluate import PURE_HELPERS, Evaluator, Scored
from envs.webarena.evaluators.program_html import SETTLES_S
from envs.webarena.evaluators.shop_helpers import shop_helpers
from envs.webarena.evaluators.verified import SecondScorer, plain_answer
from envs.webarena.fixed_sites import FixedSites, SitesConfig
from envs.webarena.judging import judge_of
from envs.webarena.options import MAX_STEPS, BrowserOptions
from envs.webarena.prompts.wording import NONE_YET, Prompt, build, cut_of, previous_action, read_prompt
from envs.webarena.recording import current_id
from envs.webarena.site_set import Chain, Lease, Record, SiteSet, SitesLost, host_names
from envs.webarena.tasks import check, filled, sites_named
from envs.webarena.views import PictureKind
from lemur_ray.agents.external_calls import external_call
from lemur_ray.agents.trajectory import Outcome
from lemur_ray.benchmarks.contract import Prompt as PromptLength

_ID = re.compile(r"^\t*\[(\d+)\] ", re.MULTILINE)
_CLICKABLE = ("link", "button", "checkbox", "radio", "tab", "menuitem")
_TYPEABLE = ("textbox", "searchbox", "combobox", "spinbutton")


@dataclass(frozen=True)
class Playing(BrowserOptions):
    """Settings of one episode: the options of browser benchmarks, with ``language`` in place of their ``actions``."""

    language: Language = "symbolic"
    prompt: PromptLength = "full"
    settles_s: float = SETTLES_S
    """Seconds to wait after loading a page while scoring."""

    @property
    def picture(self) -> PictureKind:
        """The kind of screenshot that the model is shown."""
        return "marked" if self.marks else "plain" if self.image else ""

    @property
    def strict(self) -> bool:
        """Whether to score without the bugs of WebArena's own code."""
        return self.evaluator == "strict"

    def prompts(self, homepage: bool) -> Prompt:
        """The prompt of ``prompt_file``, or the project's. ``homepage``: mention the page that links to all sites. A
        brief prompt has neither examples nor reasoning, but lists the actions, which the model cannot guess."""
        if self.prompt_file:
            return read_prompt(Path(self.prompt_file))
        how: dict[str, Any] = {"hint": self.hint, "picture": self.picture, "homepage": homepage}
        if self.prompt == "brief":
            return build(self.language, reasoning=False, num_examples=0, **how)
        return build(self.language, reasoning=self.reasoning, num_examples=self.examples, **how)


@dataclass
class Counts:
    """Counters of one episode, stored as JSON in the episode's note. ``coercions``: deviations of replies from the
    action language that were accepted; ``in_vain``: actions without effect; ``early_stop``: its kind, or empty."""

    steps: int = 0
    parse_failures: int = 0
    """Number of replies in which no action was found."""
    coercions: int = 0
    in_vain: int = 0
    beyond_symbolic: int = 0
    """Number of actions in Python calls that the symbolic language cannot express."""
    early_stop: str = ""
    outside: int = 0
    """Number of blocked requests to hosts outside the site set."""
    dialogs: int = 0
    """Number of dialogs that pages raised."""
    verdict: bool = True
    """False if the score needs a judge's verdict and there is none."""
    artefacts: str = ""
    without_picture: int = 0
    """Number of observations whose screenshot could not be taken or marked."""
    verified: str = ""
    """WebArena-Verified's verdict with its reasons, if it was asked."""


class WebEnv(TextEnv):
    """One WebArena task in a browser. Options of ``reset``: ``record`` (the task in WebArena's format), ``sites`` (JSON
    of ``SitesConfig``), the fields of ``Playing``, ``reference`` (ignored), ``named`` (in a replay: the element of each
    recorded action), ``chain`` and ``epoch`` (fields of ``Chain``, for tasks that see changes made by earlier ones),
    ``verified`` (``python``: one with the package webarena-verified; ``task``: its task, for the second scorer).
    The constructor's ``site_set`` replaces ``sites``, as in tests."""

    option_names: ClassVar[frozenset[str]] = frozenset(
        {"record", "sites", "reference", "named", "chain", "epoch", "verified", *(f.name for f in fields(Playing))}
    ) - {"actions"}
    default_max_steps: ClassVar[int] = MAX_STEPS
    waits_until_loaded: ClassVar[bool] = False
    """Whether an episode waits until pages have loaded, besides the fixed time."""

    def __init__(self, site_set: SiteSet | None = None) -> None:
        super().__init__()
        self._given = site_set
        self._sites: SiteSet | None = None
        self._lease: Lease | None = None
        self._play: BrowserPlay | None = None
        self._second: SecondScorer | None = None

    def open_sites(self, options: Mapping[str, Any]) -> SiteSet:
        """Return this process's site set for the option ``sites``. Raises ValueError without it. To be overridden."""
        if "sites" not in options:
            raise ValueError("option sites: missing; expected the addresses of the sites (docs/guides/webarena.md)")
        return _fixed(json.dumps(options["sites"], sort_keys=True))

    def begin(self, options: Mapping[str, Any]) -> Opening:
        self.close()
        given = {name: value for name, value in options.items() if name in Playing.__dataclass_fields__}
        playing = self.playing = Playing(**given)
        record: Record = options.get("record") or {}
        check(record)
        self._sites = self._given or self.open_sites(options)
        with external_call("sites"):  # waiting for a site copy and logging in do not count as the environment's time
            chain = options.get("chain")
            self._lease = self._sites.lease(record, Chain(**chain, epoch=options.get("epoch", 0)) if chain else None)
        self._urls = self._lease.urls
        self.record, self._named_sites = filled(record, self._urls), sites_named(record)
        self.counts = Counts(artefacts=self._artefacts())
        rules = Rules(playing.axtree_compat, playing.strict, playing.wait_s, until_loaded=self.waits_until_loaded)
        with external_call("sites"):
            known = self._lease.host_names | host_names(self._urls)
            host = shared_host(playing.chromium_executable, known)
            folder = Path(self.counts.artefacts) if self.counts.artefacts else None
            if options.get("verified"):
                self._second = SecondScorer(**options["verified"], folder=folder)
            requests = self._second.requests if self._second else None
            kept = Artefacts(folder, playing.screenshots, requests)
            self._play = BrowserPlay(host, self.record, self._lease, rules, kept, playing.picture)
        self._blame_sites()
        self._stop_rule = EarlyStop(self.max_steps, repeating=playing.repeating)
        self._cut = cut_of(playing.tokenizer, playing.observation_tokens)
        judge, helpers = judge_of(playing.judge, playing.judge_file), {**PURE_HELPERS, **shop_helpers(self._lease)}
        self._evaluator = Evaluator(playing.evaluator, judge, helpers)
        self._actions: list[Action] = []
        self._named: list[Any] | None = options.get("named")
        self._prompt = playing.prompts("HOMEPAGE" in self._urls)
        return Opening(
            self._shown(NONE_YET),
            self._prompt.system or None,
            dialogue_limit=0,
            examples=tuple(self._prompt.examples),
            picture=self._play.picture,
            note=self._note(),
            on_value_error=self._fenced(Action(Kind.STOP, answer="ERROR: {error}")),
        )

    def respond(self, reply: str) -> Turn:
        play = self._running()
        reading = read_reply(reply, self.playing.language, self.playing.strict)
        action = self._as_recorded(reading.action)
        reading = replace(reading, action=action)
        self._actions.append(action)
        self.counts.steps += 1
        self.counts.coercions += reading.coerced
        if self.playing.language == "python" and action.kind is not Kind.NONE:
            self.counts.beyond_symbolic += loses(action)
        if action.kind is Kind.STOP:
            return self._ended(with_real_urls(action, self._urls).answer, action)
        elements = {at: one.text for at, one in play.seen.elements.items()}
        problem = reading.error
        if action.kind is Kind.NONE:
            self.counts.parse_failures += 1
        else:
            problem = play.do(with_real_urls(action, self._urls))
            self.counts.in_vain += bool(problem)
        if stop := self._stop_rule.check(self._actions):
            return self._ended(ANSWER.format(reason=stop.reason), action, stop.kind)
        play.look()
        self._blame_sites()
        previous = previous_action(reading, reply, self.playing.language, elements, to_public(problem, self._urls))
        shown, written = self._shown(previous), self._written(action)
        return Turn(shown, written, valid=not problem, picture=play.picture, note=self._note())

    def _as_recorded(self, action: Action) -> Action:
        """In a replay, return the action on the recorded element by its current id. Otherwise return it unchanged."""
        if self._named is None or not action.element_id:
            return action
        named = self._named[self.counts.steps] if self.counts.steps < len(self._named) else None
        return replace(action, element_id=current_id(named, self.elements))

    def hints(self) -> dict[str, Any]:
        """{"admissible": replies for scripted policies}: scroll down, go back, click or type into any shown element."""
        actions = [Action(Kind.SCROLL, direction="down"), Action(Kind.GO_BACK)]
        for at, one in self.shown_elements.items():
            if one.role in _CLICKABLE:
                actions.append(Action(Kind.CLICK, element_id=at))
            elif one.role in _TYPEABLE:
                actions.append(Action(Kind.TYPE, element_id=at, text="test", enter=True))
        return {"admissible": [self._fenced(one) for one in actions]}

    @property
    def elements(self) -> Mapping[str, Element]:
        """Elements of the current observation by id, each with ``role``, ``name``, ``text`` and ``box``."""
        return self._running().seen.elements

    @property
    def shown_elements(self) -> Mapping[str, Element]:
        """The subset of ``elements`` whose lines the model sees, since long observations are truncated."""
        return {at: one for at, one in self.elements.items() if at in self._shown_ids}

    def close(self) -> None:
        """End the episode: close its browser context and release its sites. Safe to call without a running episode."""
        play, lease, self._play, self._lease = self._play, self._lease, None, None
        second, self._second = self._second, None
        try:
            if play is not None:
                play.close()
        finally:
            if second is not None:
                second.close()
            if lease is not None and self._sites is not None:
                self._sites.release(lease)

    def _running(self) -> BrowserPlay:
        if self._play is None:
            raise RuntimeError("no running episode: call reset first")
        return self._play

    def _shown(self, previous: str) -> str:
        seen = self._running().seen
        url, text = to_public(seen.url, self._urls), self._cut(seen.text)
        whole = text if seen.text[len(text) :][:1] in ("", "\n") else text.rpartition("\n")[0]
        self._shown_ids = frozenset(_ID.findall(whole))
        return self._prompt.shown(text, url, self.record["intent"], previous)

    def _fenced(self, action: Action) -> str:
        return f"{FENCE}{render(action, self.playing.language)}{FENCE}"

    def _note(self) -> str:
        """Update the counters from the browser and return them as the episode's note, ``webarena: JSON``."""
        play = self._running()
        self.counts.outside, self.counts.dialogs = sum(play.session.outside.values()), play.session.dialogs
        self.counts.without_picture = play.without_picture
        return f"webarena: {json.dumps(asdict(self.counts))}"

    def _written(self, action: Action) -> str | None:
        return None if action.kind is Kind.NONE else render(action, self.playing.language)

    def _ended(self, answer: str, action: Action, stop: StopKind | None = None) -> Turn:
        """Score the episode on its last page; returns the final turn. ``stop``: the rule that ended it, if any."""
        play, ended_at = self._running(), datetime.now(UTC)
        with external_call("evaluation"):  # loading pages for evaluators does not count as time of the step
            plain = plain_answer(answer) if self._second else answer
            scored = self._evaluator.score(self.record, plain, LastTab(play.session, self.playing.settles_s))
            self._blame_sites(always=True)  # whatever the score; otherwise only failures would be played again
            scores = _bounds(scored, self.playing.judge)
            if self._second is not None:
                play.close()  # which completes the log of requests
                judged = self._second.score(self._urls, answer, ended_at)
                self.counts.verified = judged.reason
                scores = scores or {"webarena": scored.score}
                scores |= {} if judged.score is None else {"verified": judged.score}
        self.counts.early_stop, self.counts.verdict = stop or "", scored.verdict
        outcomes = {StopKind.MAX_STEPS: Outcome.TURN_LIMIT, StopKind.PARSING_FAILURE: Outcome.INVALID_ACTIONS}
        return Turn(
            answer if stop else "The episode is over.",
            self._written(action),
            valid=action.kind is not Kind.NONE,
            solved=scored.score == 1,
            finished=True,
            score=scored.score,
            scores=scores,
            outcome=outcomes.get(stop, Outcome.FAILED) if stop else Outcome.FAILED,
            note=self._note(),
        )

    def _blame_sites(self, always: bool = False) -> None:
        """Raise SitesLost if a site of this task is down. Checked only if the browser has no page, or if ``always``."""
        look = getattr(self._sites, "is_alive", None)
        if look is None or not (always or self._running().is_without_page):
            return
        assert self._lease is not None
        asked = {name: url for name, url in self._urls.items() if name in self._named_sites}
        if not look(replace(self._lease, urls=asked)):
            problem = f"a site of {', '.join(sorted(asked))} is gone"
            raise SitesLost(f"{problem}: the browser shows {self._running().seen.text[:200]!r}")

    def _artefacts(self) -> str:
        if not self.playing.artefacts:
            return ""
        return str(Path(self.playing.artefacts) / f"{self.record['task_id']}-{uuid.uuid4().hex[:8]}")


def _bounds(scored: Scored, judge: str) -> dict[str, float] | None:
    """Return the score without a judge, and the score if a judge accepted everything. None if there is a judge."""
    if judge != "none":
        return None
    return {"rules": scored.score, "rules_at_best": scored.score if scored.verdict else 1.0}


@cache
def _fixed(config: str) -> FixedSites:
    return FixedSites(SitesConfig.from_json(json.loads(config)))
