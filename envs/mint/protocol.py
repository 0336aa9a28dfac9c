"""The accounting of a MINT episode, steps and proposals, and the count-down lines in its messages.

Steps, chances and count-down lines are those of mint-bench 3f7f12c (Apache-2.0); tests recompute the 12,291 such lines
of the published runs."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal

Event = Literal["propose_solution", "use_tool", "invalid_action"]
WRONG_ANSWER = "Your answer is wrong."
NO_OUTPUT = "[Executed Successfully with No Output]"


@dataclass
class Accounting:
    """Counts the steps (turns) and proposals (answers) of an episode against their maximum."""

    max_steps: int = 5
    max_propose: int = 2
    counts: Counter[str] = field(default_factory=Counter)

    def count(self, event: Event) -> None:
        self.counts[event] += 1

    @property
    def steps_left(self) -> int:
        return self.max_steps - self.counts.total()

    @property
    def proposals_left(self) -> int:
        return self.max_propose - self.counts["propose_solution"]

    @property
    def out_of_proposals(self) -> bool:
        return self.proposals_left <= 0

    def message(self, text: str) -> str:
        """The observation: ``text``, then lines with the steps and proposals that are left."""
        lines = f"Observation:\n{text}\n"
        lines += f"You have {self.steps_left} steps left and {self.proposals_left} chances to propose solution left.\n"
        if self.steps_left <= 1:
            lines += "You should take the last step to propose a solution.\n"
        return lines


def with_feedback(message: str, feedback: str) -> str:
    """The observation, followed by the simulated user's feedback unless it is empty."""
    return f"{message}\nExpert feedback:\n{feedback}\n" if feedback else message
