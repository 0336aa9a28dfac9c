"""MINT's simulated user (teacher), who gives feedback in words after every turn that did not end an episode.

It is any policy (usually an OpenAI endpoint), or a recorded run. The parts of the teacher's prompt and their order
follow mint-bench 3f7f12c; the wording is this project's, as no log has upstream's. ``ground_truth`` adds the solution;
without it the teacher still sees "Your answer is wrong.", which comes from the grader.

If the teacher has no feedback, or its endpoint rejects this question alone, the turn has none; a trajectory that is too
long is shown without its oldest turns. A teacher that knows the solution and gives it away is asked once more, and
after that the solution is removed from its feedback; one that solved the task itself may give it away, as upstream. All
of these events are counted."""

import contextlib
import re
from dataclasses import dataclass
from typing import Literal

from envs.mint.recording import PREFIX, MintEpisode
from envs.mint.wording import WORDS
from lemur_ray.agents.external_calls import ContentRefused, Count, ExternalCallError, ask_quoting, external_call
from lemur_ray.agents.messages import (
    ChatReply,
    ChatRequest,
    ContextOverflow,
    EndpointRefused,
    Message,
    Policy,
    PolicyUnreachable,
    Sampling,
)
from lemur_ray.agents.recording import Recording

FeedbackKind = Literal["textual", "binary"]
STOPS = ("\nObservation:", "\nTask:", "\nAssistant:")
MAX_TOKENS = 1024
ATTEMPTS = 2
GOOD, BAD = "This is GOOD.", "This is BAD."
MOST_SHOWN = 400_000
"""Initial maximum characters of a trajectory. Halved when the teacher's context is too short."""
LEAST_SHOWN = 500
LEFT_OUT = "[...]"
_SEPARATOR = "\n\n---\n\n"
_WORDS = WORDS["teacher"]


class FeedbackMissing(ExternalCallError):
    """Raised if the teacher gives no usable answer: the episode has to be played again."""


@dataclass(frozen=True)
class Situation:
    """What a teacher sees: the task (its data set ``subset``, ``prompt`` and, if it may see it, ``solution``), and the
    episode after turn number ``turn``, from 0."""

    subset: str
    task_id: str
    turn: int
    example: str
    """In-context example with feedback, of the task's family."""
    tools: str
    """Description of the assistant's tools; empty without any."""
    prompt: str
    dialogue: tuple[Message, ...]
    """Messages after the first one; the last is the reply of this turn."""
    observation: str
    """Observation of this turn with its count-down."""
    solution: str = ""


class ModelTeacher:
    """Teacher that asks a model (``policy``). With ``kind`` "binary" its answer is reduced to GOOD or BAD.
    ``ground_truth``: whether it is shown the solution."""

    def __init__(self, policy: Policy, kind: FeedbackKind = "textual", ground_truth: bool = False) -> None:
        self.policy, self.kind, self.ground_truth = policy, kind, ground_truth
        self._most_shown = MOST_SHOWN

    def feedback(self, situation: Situation) -> str:
        """The model's feedback on the last turn, possibly empty. Raises FeedbackMissing if it cannot answer,
        EndpointRefused if a retry would be useless."""
        telling, lost = "", ""
        with external_call("teacher") as count:
            for attempt in range(ATTEMPTS):
                try:
                    reply = self._reply(situation, attempt, count)
                except EndpointRefused:
                    raise
                except ContentRefused:
                    lost = ""
                    break
                except PolicyUnreachable as error:
                    lost = f"{type(error).__name__}: {error}"
                    continue
                count(prompt_tokens=reply.usage.prompt_tokens, completion_tokens=reply.usage.completion_tokens)
                answer = reply.text.strip() if self.kind == "textual" else binary(reply.text)
                if not answer:
                    continue
                withheld = discreet(answer, situation)
                if withheld == answer:
                    return answer
                count(disclosed=1)
                if not self.ground_truth:
                    return answer
                telling = withheld
            if lost and not telling:
                raise FeedbackMissing(f"teacher {self.policy.name}: no {self.kind} feedback: {lost[:300]}")
            if not telling:
                count(unsaid=1)
        return telling

    def _reply(self, situation: Situation, attempt: int, count: Count) -> ChatReply:
        """Reply to the longest trajectory that the teacher can read. Raises ContentRefused, PolicyUnreachable, and
        FeedbackMissing if even the shortest prompt is too long."""
        sampling = Sampling(max_tokens=MAX_TOKENS, temperature=0.0, seed=attempt, stop=STOPS)
        episode = f"teacher|{situation.subset}|{situation.task_id}"
        while True:
            whole = trajectory(situation)
            shown = trajectory(situation, self._most_shown)
            text = teacher_prompt(situation, self.kind, self.ground_truth, shown)
            try:
                reply = ask_quoting(self.policy, ChatRequest((Message("user", text),), sampling, episode))
            except ContextOverflow as error:
                if self._most_shown < LEAST_SHOWN:
                    raise FeedbackMissing(f"teacher {self.policy.name}: its context is too short: {error}") from error
                self._most_shown = min(self._most_shown, len(shown)) // 2
                continue
            if shown != whole:
                count(shortened=1)
            return reply


class RecordedTeacher:
    """Teacher that repeats the feedback of a recording."""

    def __init__(self, recording: Recording[MintEpisode]) -> None:
        self._episodes = recording.episodes

    def feedback(self, situation: Situation) -> str:
        """Recorded feedback of this turn; empty without any. Raises FeedbackMissing for an unknown task."""
        episode = self._episodes.get(situation.task_id)
        if episode is None:
            raise FeedbackMissing(f"no recorded feedback for task {situation.task_id!r}")
        turns = episode.turns
        return (turns[situation.turn].feedback or "") if situation.turn < len(turns) else ""


Teacher = ModelTeacher | RecordedTeacher
"""Gives feedback on the last turn of an episode."""


def binary(feedback: str) -> str:
    """Reduce feedback to ``This is GOOD.`` or ``This is BAD.`` by its first sentence; empty if that is unclear."""
    first = re.split(r"(?<=[.!?])\s|\n", feedback.strip(), maxsplit=1)[0].upper()
    good, bad = re.search(r"\bGOOD\b", first), re.search(r"\bBAD\b", first)
    if bool(good) == bool(bad):
        return ""
    return GOOD if good else BAD


def discreet(answer: str, situation: Situation) -> str:
    """The teacher's answer with "[withheld]" in place of the solution; unchanged if the answer does not contain it."""
    replies = "\n".join(message.content for message in situation.dialogue if message.role == "assistant")
    shown = "\n".join(message.content for message in situation.dialogue)
    before = f"{situation.prompt}\n{shown}\n{situation.observation}"
    return without_solution(answer, situation.solution, before, replies)


def trajectory(situation: Situation, most_chars: int = MOST_SHOWN) -> str:
    """Text of the task and the turns so far. If it is longer than ``most_chars`` characters, the oldest turns are
    dropped, then the middle of the last one is cut out; the task stays complete."""
    lines = [
        f"{PREFIX}{message.content}\n" if message.role == "assistant" else message.content
        for message in situation.dialogue
    ]
    lines.append(situation.observation)
    length, kept = sum(map(len, lines)), len(lines)
    while length > most_chars and kept > 2:
        length -= len(lines[-kept])
        kept -= 1
    last = lines[-kept:]
    if length > most_chars:
        last = [_without_middle(line, most_chars // len(last)) for line in last]
    before = [LEFT_OUT] if kept < len(lines) else []
    return "\n".join([f"Task:\n{situation.prompt}\n", *before, *last]).strip()


def _without_middle(text: str, most_chars: int) -> str:
    half = most_chars // 2
    return text if len(text) <= most_chars else f"{text[:half]}{LEFT_OUT}{text[len(text) - half :]}"


def teacher_prompt(situation: Situation, kind: FeedbackKind, ground_truth: bool, happened: str = "") -> str:
    """The prompt for a teacher. ``happened``: text of the episode so far; empty: ``trajectory(situation)``. ``kind``:
    textual or binary feedback; ``ground_truth``: show the solution."""
    example = situation.example[max(0, situation.example.find("Task:")) :].strip()
    happened = happened or trajectory(situation)
    solution = situation.solution.strip() if ground_truth else ""
    shown = f"Correct solution (do not disclose it): {solution or 'NOT GIVEN'}"
    body = "\n\n".join(filter(None, [situation.tools.strip(), happened, shown, _WORDS[kind]]))
    return f"{_SEPARATOR.join([_WORDS['role'], example, body])}\n\nExpert feedback:"


WITHHELD = "[withheld]"
SHORTEST_LINE = 16
"""Minimum characters, without whitespace, of a program line that counts; a shorter one may occur by chance."""
_CALLED = r"(?:answer|solution|option|choice)\W+(?:is|was|be|equals|should be|would be)?\W*"
_EVERYDAY = frozenset({"yes", "no", "true", "false"})


def without_solution(feedback: str, solution: str, before: str, replies: str) -> str:
    """The feedback with "[withheld]" for the solution, or unchanged if it does not give the solution away. A short
    solution counts as given away if it occurs in the feedback and nowhere before, or if the feedback calls it the
    answer and the assistant never did; a program, if one of its longer lines occurs; a word like "yes" or a single
    digit only by being called the answer. ``before`` is everything the assistant has read or written so far,
    ``replies`` only what it has written."""
    solution = solution.strip()
    if not solution:
        return feedback
    if "\n" in solution or solution.startswith("assert "):
        return _without_lines(feedback, solution, before)
    for form in _forms(solution):
        alone = rf"(?<![\w.]){re.escape(form)}(?!\w|\.\d)"
        telling = rf"({_CALLED}){re.escape(form)}(?!\w|\.\d)"
        if len(form) > 1 and form.lower() not in _EVERYDAY and not re.search(alone, before, re.IGNORECASE):
            feedback = re.sub(alone, WITHHELD, feedback, flags=re.IGNORECASE)
        elif not re.search(alone, replies, re.IGNORECASE):
            feedback = re.sub(telling, rf"\g<1>{WITHHELD}", feedback, flags=re.IGNORECASE)
    return feedback


def _forms(solution: str) -> list[str]:
    """Spellings of a solution, longest first: itself and, if it is a number, others without trailing zeros."""
    forms = [solution]
    with contextlib.suppress(ValueError, OverflowError):
        number = float(solution.replace(",", ""))
        forms += [f"{number:g}", f"{number:,.0f}"] if number == int(number) else [f"{number:g}"]
    return sorted(set(forms), key=len, reverse=True)


def _without_lines(feedback: str, program: str, before: str) -> str:
    lines = {_squeezed(line) for line in program.splitlines() if len(_squeezed(line)) >= SHORTEST_LINE}
    lines = {line for line in lines if line not in _squeezed(before)}
    return "\n".join(WITHHELD if any(line in _squeezed(f) for line in lines) else f for f in feedback.split("\n"))


def _squeezed(text: str) -> str:
    return "".join(text.split())
