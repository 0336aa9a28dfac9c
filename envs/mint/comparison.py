"""Compares a replayed MINT episode with its recording, turn by turn. A cell is the code of one turn.

| number | counts |
|---|---|
| counters, count-down, terminate reason | those that are exactly equal |
| observations of cells | exact, equal after normalising, same class of error, different; search cells apart |
| other observations | equal, different |

Normalising removes paths, addresses, cell numbers, whitespace, and all but the last line of a traceback."""

import re
from collections import Counter
from collections.abc import Sequence
from functools import partial

from envs.mint.recording import MintEpisode, name_of, read_recording, split_observation
from lemur_ray.agents.recording import NOT_EXECUTED, RecordingFormat
from lemur_ray.agents.replay_comparison import Comparison, EpisodeComparison
from lemur_ray.agents.trajectory import Episode, Outcome, Step, Task

_DASHES = "-" * 75
_ERROR_LINE = re.compile(r"^[\w.]*(?:Error|Exception|Interrupt|Exit|Warning)\b.*", re.MULTILINE)
_MAX_PROPOSE = 2


def compare(episode: Episode, recorded: MintEpisode) -> EpisodeComparison:
    """Compare a replay with its recording: the counts in the module's table, and cells whose observations differ."""
    steps = episode.trajectory.steps
    counts = Counter(
        same_counters=int(counters_of(steps) == {name: n for name, n in recorded.counts.items() if n}),
        same_terminate_reason=int(terminate_reason(episode) == recorded.terminate_reason),
    )
    cells: Counter[str] = Counter()
    answers: Counter[str] = Counter()
    different = []
    for number, (step, turn) in enumerate(zip(steps, recorded.turns, strict=False)):
        if turn.observation is None:
            continue
        theirs, ours = split_observation(turn.observation), split_observation(step.observation)
        if theirs.left is not None:
            counts.update(count_downs=1, same_count_downs=int(theirs.left == ours.left))
        if step.action is None or not step.action.startswith("<execute>"):
            answers["equal" if theirs.text == ours.text else "different"] += 1
            continue
        if ours.text.startswith(NOT_EXECUTED):
            continue
        kind = likeness(theirs.text, ours.text)
        cells[f"search_{kind}" if "wikipedia_search" in step.action else kind] += 1
        if kind == "different":
            different.append((number, theirs.text, ours.text))
    return EpisodeComparison(counts, cells, answers, tuple(different))


COMPARISON = Comparison(
    compare, ("same_counters", "same_terminate_reason", "count_downs", "same_count_downs"), has_cells=True
)


def recorded_as(subset: str) -> RecordingFormat:
    """Recording format of one subset: the reader of its logs, and the comparison with a replay."""
    return RecordingFormat(partial(read_recording, subset=subset), COMPARISON, name_of, prompt_of)


def prompt_of(task: Task) -> str:
    """A task's question, worded as in the logs."""
    return str(task.options.get("prompt", ""))


def counters_of(steps: Sequence[Step]) -> dict[str, int]:
    """Number of steps of MINT's kinds: invalid_action, propose_solution, use_tool; kinds with 0 are left out."""
    actions = [step.action for step in steps]
    proposals = sum(action is not None and action.startswith("<solution>") for action in actions)
    invalid = actions.count(None)
    used = len(actions) - proposals - invalid
    counts = {"invalid_action": invalid, "propose_solution": proposals, "use_tool": used}
    return {name: count for name, count in counts.items() if count}


def terminate_reason(episode: Episode) -> str:
    """MINT's name for how an episode ended: task_success, error, max_propose_steps or max_steps."""
    if episode.outcome is Outcome.SOLVED:
        return "task_success"
    if episode.outcome is Outcome.CONTEXT_OVERFLOW:
        return "error"
    proposals = counters_of(episode.trajectory.steps).get("propose_solution", 0)
    return "max_propose_steps" if proposals >= _MAX_PROPOSE else "max_steps"


def likeness(recorded: str, ours: str) -> str:
    """Similarity of two observations, best first: "exact", "normalised" (equal after ``normalised``), "same_error"
    (class of exception), "different"."""
    if recorded == ours:
        return "exact"
    if normalised(recorded) == normalised(ours):
        return "normalised"
    theirs = _error_class(recorded)
    return "same_error" if theirs is not None and theirs == _error_class(ours) else "different"


def normalised(text: str) -> str:
    """An observation reduced to what two runs have in common: of an error of IPython only the output before it and its
    last line; addresses, file paths and cell numbers replaced by constants; white space collapsed."""
    if "Traceback (most recent call last)" in text or "Cell In[" in text or _ERROR_LINE.search(text):
        lines = _ERROR_LINE.findall(text) or [line for line in text.splitlines() if line.strip()]
        text = f"{text.split(_DASHES)[0].strip()} | {lines[-1]}"
    text = re.sub(r"0x[0-9a-f]{6,}", "ADDRESS", text)
    text = re.sub(r"File .*?[:,]", "FILE", text)
    text = re.sub(r"(In|Out)\[\d+\]", r"\1[]", text)
    return " ".join(text.split())


def _error_class(text: str) -> str | None:
    lines = _ERROR_LINE.findall(text)
    return lines[-1].split(":")[0] if lines else None
