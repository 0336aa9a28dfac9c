"""Row counts and lengths of an instruction table, compared with the paper's Table 1.

The paper does not state the unit of its lengths, so both are reported: tokens of the model's tokenizer and words
between blanks. Lengths are means over turns; a system turn counts towards the next question."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lemur_ray.agents.messages import Message
from lemur_ray.text.tokenizer import Tokenizer

MEASURES = ("rounds", "prompt_tokens", "completion_tokens", "prompt_words", "completion_words")


@dataclass(frozen=True)
class Target:
    """One data set in Table 1 of the paper: conversations, mean rounds, mean prompt and completion lengths."""

    rows: int
    rounds: float
    prompt: float
    completion: float


TABLE_1 = {
    "oasst1": Target(34_546, 1.6, 34.9, 213.1),
    "openorca": Target(200_000, 1.0, 242.8, 174.1),
    "sharegpt": Target(81_319, 6.0, 96.7, 340.2),
    "evol": Target(51_952, 1.0, 93.9, 343.5),
}
"""Table 1 of the paper as printed. The rows sum to 367,817 although the text gives about 300K."""


def measures(messages: Sequence[Message], tokenizer: Tokenizer) -> dict[str, int]:
    """``MEASURES`` of an uncut conversation: number of answers ("rounds"), and lengths summed over its turns."""
    out = dict.fromkeys(MEASURES, 0)
    for message in messages:
        side = "completion" if message.role == "assistant" else "prompt"
        out["rounds"] += message.role == "assistant"
        out[f"{side}_tokens"] += len(tokenizer.encode(message.content.strip()))
        out[f"{side}_words"] += len(message.content.split())
    return out


def summary(rows: int, sums: Mapping[str, int]) -> dict[str, float]:
    """Number of conversations, mean rounds of a conversation, and mean lengths of a round; zeros for none. rows: number
    of conversations; sums: their ``MEASURES`` (rounds, tokens and words of prompts and completions), added up."""
    rounds = max(sums["rounds"], 1)
    return {
        "rows": rows,
        "rounds": sums["rounds"] / max(rows, 1),
        **{name: sums[name] / rounds for name in MEASURES if name != "rounds"},
    }


def lines(summaries: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Lines of a text table: the summary of each data set (by name, as from `summary`), its row of Table 1 if it has
    one, and the deviation in percent."""
    head = f"{'':>22} {'rows':>9} {'rounds':>7} {'prompt tok / words':>20} {'completion tok / words':>24}"
    out = [head]
    for name, one in summaries.items():
        out.append(
            f"{name:>22} {one['rows']:>9,} {one['rounds']:>7.2f} "
            f"{one['prompt_tokens']:>11.1f} / {one['prompt_words']:<6.1f} "
            f"{one['completion_tokens']:>15.1f} / {one['completion_words']:<6.1f}"
        )
        if name in TABLE_1:
            want = TABLE_1[name]
            out.append(
                f"{'Table 1':>22} {want.rows:>9,} {want.rounds:>7.2f} {want.prompt:>11.1f} {'':>8} "
                f"{want.completion:>15.1f}"
            )
            out.append(
                f"{'deviation':>22} {_percent(one['rows'], want.rows):>9} {_percent(one['rounds'], want.rounds):>7} "
                f"{_percent(one['prompt_tokens'], want.prompt):>11} / {_percent(one['prompt_words'], want.prompt):<6} "
                f"{_percent(one['completion_tokens'], want.completion):>15} / "
                f"{_percent(one['completion_words'], want.completion):<6}"
            )
    return out


def _percent(value: float, wanted: float) -> str:
    return f"{100 * (value / wanted - 1):+.1f}%"
