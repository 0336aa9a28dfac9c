"""Wording of a MINT episode apart from its task: that of the published runs, or this project's.

A replay must repeat the recorded prompts byte by byte, so their wording is read from the runs themselves
(``DATA/mint/outputs``). Without recorded runs the same protocol has this project's wording."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from envs.mint.recording import MintEpisode, after_observation, read_recording
from envs.mint.tools import Tool, tools_of
from lemur_ray.host.json_files import toml_beside

SEPARATOR = "\n---\n"
_STEPS, _PROPOSALS = "{max_steps}", "{max_propose}"
_RECORDED_STEPS, _RECORDED_PROPOSALS = "You have 5 chances", "solution 2 times"
WORDS = toml_beside(__file__)
"""This project's wording of the messages, and of the teacher's prompt."""


@dataclass(frozen=True)
class Wording:
    """The sentences that all episodes of one subset share, apart from example and task."""

    instruction: str
    """Contains ``{max_steps}`` and ``{max_propose}``."""
    tools: str
    """Description of the functions, ending in two line breaks; empty without functions."""
    lead: str
    """Text that precedes the task in a prompt."""
    not_understood: str
    """Observation after a reply without code and solution."""

    def first_message(self, example: str, prompt: str, *, max_steps: int = 5, max_propose: int = 2) -> str:
        """The complete first message to the model. ``example``: the family's in-context example; ``prompt``: the task's
        text; ``max_steps``, ``max_propose``: the maxima it states."""
        instruction = self.instruction.replace(_STEPS, str(max_steps)).replace(_PROPOSALS, str(max_propose))
        return SEPARATOR.join([f"{instruction}{self.tools}\n", f"\n{example}\n", f"\nTask:\n{prompt}\n"])


def own_wording(subset: str) -> Wording:
    """The wording of a subset's messages in this project's words, for use without recorded runs."""
    tools, lead = _described(tools_of(subset)), WORDS["leads"].get(subset, "")
    return Wording(WORDS["instruction"], tools, lead, WORDS["not_understood"])


def recorded_wording(outputs: Path, subset: str, texts: Mapping[str, str]) -> Wording:
    """The wording of published runs in a folder (``<model>/<setting>/<subset>.results.jsonl.gz``); this project's for
    what no run shows. ``texts``: the tasks' texts by id. Raises ValueError if the first run's task is none of them."""
    own = own_wording(subset)
    paths = sorted(outputs.glob("*/*/*.results.jsonl.gz"), key=lambda path: not path.name.startswith(f"{subset}."))
    first = next(_episodes([path for path in paths if path.name.startswith(f"{subset}.")]), None)
    if first is None:
        return own
    opening, *_ = first.first_message.partition(SEPARATOR)
    opening = opening.removesuffix("\n")
    listing = opening.find("\n[1] ")
    tools = opening[opening.rfind("\n\n", 0, listing) + 2 :] if listing >= 0 else ""
    instruction = opening.removesuffix(tools)
    for recorded, name, number in ((_RECORDED_STEPS, _STEPS, "5"), (_RECORDED_PROPOSALS, _PROPOSALS, "2")):
        instruction = instruction.replace(recorded, recorded.replace(number, name))
    return Wording(instruction, tools, _lead(first, texts), next(_not_understood(paths), own.not_understood))


def _described(tools: Sequence[Tool]) -> str:
    if not tools:
        return ""
    described = "\n\n".join(f"[{i}] {tool.signature}\n{tool.description}" for i, tool in enumerate(tools, 1))
    return f"{WORDS['tools_header']}{described}\n\n"


def _lead(episode: MintEpisode, texts: Mapping[str, str]) -> str:
    text = texts.get(episode.task)
    if text is None or not episode.question.endswith(text):
        raise ValueError(f"recorded task {episode.subset} {episode.task} is none of this benchmark")
    return episode.question.removesuffix(text)


def _not_understood(paths: Sequence[Path]) -> Iterator[str]:
    for episode in _episodes(paths):
        for turn in episode.turns:
            if (
                turn.observation is not None
                and turn.reply
                and not any(t in turn.reply for t in ("<execute>", "<solution>"))
            ):
                yield after_observation(turn.observation)


def _episodes(paths: Sequence[Path]) -> Iterator[MintEpisode]:
    for path in paths:
        yield from read_recording(path).episodes.values()
