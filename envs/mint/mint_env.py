"""MINT-v0: one task of MINT's eight subsets, solved over a few turns by code that is run and answers that are graded.

| option | |
|---|---|
| ``subset``, ``id``, ``prompt``, ``reference``, ``example`` | the task (see ``tasks``) |
| ``answer_type``, ``games`` | for theoremqa, for alfworld |
| ``wording`` | wording of all messages apart from the task (see ``wording``); default: this project's |
| ``max_steps`` 5, ``max_propose`` 2 | turns, and proposals among them |
| ``grader`` strict or mint-2023 | which verdict ends the episode; both are in ``info["scores"]`` |
| ``option_rule`` legacy or head | TheoremQA's options, mint-2023 alone |
| ``parser`` tags or lenient | how a reply is parsed |
| ``tools`` run or skip | skip: code of the model is not run (a replay that only grades; not for alfworld) |
| ``recording`` | file of the run that is graded: skip shows its recorded observations |
| ``wikipedia`` none, live, index:FILE, answers:FILE or log:FILE | source of the search tool; without one, or for
 a query that a log lacks, the model's code gets an error; a failure of another source makes the episode lost |
| ``database_id`` | ignored: identifies the data |
| ``feedback`` none, textual or binary; ``ground_truth`` | the simulated user |
| ``teacher`` openai:URL#MODEL or log:FILE | source of the simulated user |

All code of a model runs in a sandbox."""

import dataclasses
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from envs.mint.judges import AnswerJudge, HouseholdJudge, Judge
from envs.mint.python_tool import SandboxedPython, ToolRefused
from envs.mint.recording import FEEDBACK, PREFIX, SUBSETS
from envs.mint.reply import PARSERS
from envs.mint.search.wikipedia import WikipediaUnavailable, wikipedia_search
from envs.mint.sources import recorded_observations, teacher_of, wikipedia_of
from envs.mint.tasks import MAX_PROPOSE, MAX_STEPS
from envs.mint.teacher import Situation, Teacher
from envs.mint.tools import tools_of
from envs.mint.wording import Wording, own_wording
from envs.text_env import Opening, TextEnv, Turn, check_whole_number, one_of
from lemur_ray.agents.external_calls import external_call
from lemur_ray.agents.messages import Message
from lemur_ray.agents.recording import NOT_EXECUTED
from lemur_ray.grading.mint import GRADERS, Grader
from lemur_ray.sandbox.sandbox import BACKENDS

_CHOICES: Mapping[str, tuple[Any, ...]] = {
    "subset": SUBSETS,
    "grader": ("strict", "mint-2023"),
    "option_rule": ("legacy", "head"),
    "parser": tuple(PARSERS),
    "tools": ("run", "skip"),
    "feedback": ("none", "textual", "binary"),
    "ground_truth": (False, True),
    "backend": tuple(BACKENDS),
}
MOST_SEARCHES = 100
"""Maximum searches in one episode, each of which queries an outside source."""
SEARCHES_S = 900.0
"""Maximum seconds of all searches together. Beyond that the source is too slow."""


class MintEnv(TextEnv):
    """One MINT task: replies with ``<execute>`` (code to run) or ``<solution>`` (an answer to grade) in, MINT's
    messages out. The options of ``reset`` are in the table of the module."""

    option_names: ClassVar[frozenset[str]] = frozenset(
        {*_CHOICES, "id", "prompt", "reference", "example", "answer_type", "games", "wording", "max_propose"}
        | {"wikipedia", "teacher", "recording", "database_id"}
    )
    default_max_steps: ClassVar[int] = MAX_STEPS
    graders: ClassVar[tuple[str, ...]] = GRADERS

    _python: SandboxedPython | None = None
    _judge: Judge | None = None

    def begin(self, options: Mapping[str, Any]) -> Opening:
        self.close()
        chosen = {name: one_of(name, options.get(name, known[0]), known) for name, known in _CHOICES.items()}
        for name in ("subset", "id", "prompt", "example"):
            if not isinstance(options.get(name), str):
                raise ValueError(f"option {name}: {options.get(name)!r}, expected a text")
        max_propose = options.get("max_propose", MAX_PROPOSE)
        check_whole_number("max_propose", max_propose)
        subset = str(chosen["subset"])
        self._grader: Grader = chosen["grader"]
        self._parse = PARSERS[chosen["parser"]]
        self._steps_left, self._proposals_left = self.max_steps, max_propose
        self._tools = tools_of(subset)
        self._wording = _wording(options.get("wording"), subset)
        self._now = Situation(
            subset=subset,
            task_id=options["id"],
            turn=0,
            example=options["example"],
            tools=self._wording.tools,
            prompt=options["prompt"],
            dialogue=(),
            observation="",
            solution=str(options.get("reference", "")),
        )
        self._wikipedia = wikipedia_of(str(options.get("wikipedia", "none")))
        self._searches, self._searched_s = 0, 0.0
        self._is_replay = str(options.get("wikipedia", "")).startswith("log:")
        self._teacher: Teacher | None = None
        if chosen["feedback"] != "none":
            self._teacher = teacher_of(str(options.get("teacher", "")), chosen["feedback"], chosen["ground_truth"])
        self._seen = recorded_observations(str(options.get("recording", ""))).get(self._now.task_id, ())
        self._judge = self._judge_of(options, chosen["option_rule"], chosen["backend"])
        if chosen["tools"] == "run":
            self._python = SandboxedPython(self._tools, self._call, backend=chosen["backend"])
        elif subset == "alfworld":
            raise ValueError("option tools: skip is not for alfworld, where code plays the game")
        limits = {"max_steps": self.max_steps, "max_propose": max_propose}
        return Opening(self._wording.first_message(self._now.example, self._now.prompt, **limits), reply_prefix=PREFIX)

    def _judge_of(self, options: Mapping[str, Any], option_rule: Any, backend: str) -> Judge:
        task, answer_type = self._now, str(options.get("answer_type", ""))
        if task.subset == "alfworld":
            return HouseholdJudge(Path(str(options.get("games"))), task.task_id)
        return AnswerJudge(task.subset, task.prompt, options.get("reference"), answer_type, option_rule, backend)

    def hints(self) -> dict[str, Any]:
        """An empty dict: without hints, the random policy replies with an empty text."""
        return {}

    def respond(self, reply: str) -> Turn:
        judge = self._judge
        if judge is None:
            raise RuntimeError("no running episode: call reset first")
        action, text = self._act(reply, judge)
        scores: dict[str, float] = {grader: float(judge.solved(grader)) for grader in GRADERS}
        solved = judge.solved(self._grader)
        finished = not solved and (self._proposals_left <= 0 or judge.over(self._grader))
        message = _with_count_down(text, self._steps_left, self._proposals_left)
        dialogue = (*self._now.dialogue, *([Message("assistant", reply)] if reply.strip() else []))
        if self._teacher is not None and not solved and not finished and self._steps_left > 0:
            feedback = self._teacher.feedback(dataclasses.replace(self._now, dialogue=dialogue, observation=message))
            message += f"{FEEDBACK}{feedback}\n" if feedback else ""
        dialogue = (*dialogue, Message("user", message))
        self._now = dataclasses.replace(self._now, turn=self._now.turn + 1, dialogue=dialogue)
        return Turn(
            message,
            action,
            valid=action is not None and action != PROPOSED_NOTHING,
            solved=solved,
            finished=finished,
            score=float(solved),
            scores=scores,
        )

    def _act(self, reply: str, judge: Judge) -> tuple[str | None, str]:
        """Carry out a reply: (action in its tags, None without one; text of the observation)."""
        asked = self._parse(reply)
        self._steps_left -= 1
        if asked.kind == "propose":
            self._proposals_left -= 1
            if asked.content is None:
                return PROPOSED_NOTHING, self._wording.not_understood
            judge.propose(asked.content)
            text = "" if judge.solved(self._grader) else WRONG_ANSWER
            return f"<solution>{asked.content}</solution>", text
        if asked.content is None:
            return None, self._wording.not_understood
        text = self._not_run() if self._python is None else self._python.run(asked.content)
        return f"<execute>{asked.content}</execute>", text

    def _not_run(self) -> str:
        """Observation for code that is not run: a notice, followed by the recorded observation if there is one."""
        seen = self._seen[self._now.turn] if self._now.turn < len(self._seen) else None
        return f"{NOT_EXECUTED}\n{seen}" if seen else NOT_EXECUTED

    def _call(self, name: str, arguments: list[str]) -> str:
        """Answer a tool call of the model's code: a command or a search. Raises ToolRefused, WikipediaUnavailable."""
        if isinstance(self._judge, HouseholdJudge):
            return self._judge.command(next(t for t in self._tools if t.name == name), arguments)
        if self._wikipedia is None:
            raise ToolRefused("no search is available here")
        if not arguments[0].strip():
            raise ToolRefused("a search for nothing: expected a few words")
        self._searches += 1
        if self._searches > MOST_SEARCHES and not self._is_replay:
            raise ToolRefused(f"no more than {MOST_SEARCHES} searches for one task")
        if self._searched_s > SEARCHES_S:
            raise WikipediaUnavailable(f"{self._searches - 1} searches took {self._searched_s:.0f} s")
        began = time.monotonic()
        try:
            compat = self._grader == "mint-2023"
            with external_call(name):
                return wikipedia_search(arguments[0], self._wikipedia, task=self._now.task_id, compat=compat)
        except WikipediaUnavailable as error:
            if self._is_replay:  # the rest of the episode can still be compared
                raise ToolRefused(str(error)) from error
            raise
        finally:
            self._searched_s += time.monotonic() - began

    def close(self) -> None:
        if self._python is not None:
            self._python.close()
        self._python = self._judge = None


PROPOSED_NOTHING = "<solution>"
"""Action of a turn that proposes an empty solution."""
WRONG_ANSWER = "Your answer is wrong."


def _with_count_down(text: str, steps_left: int, proposals_left: int) -> str:
    """The observation: ``text``, then the lines of mint-bench 3f7f12c with the steps and proposals that are left. Tests
    recompute the 12,291 such lines of the published runs."""
    left = f"You have {steps_left} steps left and {proposals_left} chances to propose solution left.\n"
    left += "You should take the last step to propose a solution.\n" if steps_left <= 1 else ""
    return f"Observation:\n{text}\n{left}"


def _wording(given: Any, subset: str) -> Wording:
    if given is None:
        return own_wording(subset)
    names = [field.name for field in dataclasses.fields(Wording)]
    if not isinstance(given, Mapping) or sorted(given) != sorted(names):
        raise ValueError(f"option wording: expected a mapping of {', '.join(names)}")
    return Wording(**{name: str(given[name]) for name in names})
