"""What a round of reinforcement looks like when it goes wrong: warnings, and the reason to stop.

Pure functions of the numbers in the records of rounds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MOST_FLAT = 0.9
"""Share of groups without differences above which little is learned from a round."""
LEAST_ENTROPY = 0.1
"""Share of the first round's entropy below which replies hardly vary any more."""
MOST_REPEATED = 0.5
"""Share of turns with the reply of the turn before above which a model repeats itself."""
COLLAPSED_WINS = 0.5
"""Share of the first round's rate of won episodes; a model that hardly varies and wins less than this has collapsed."""


def alarms(numbers: Mapping[str, Any], first: Mapping[str, Any]) -> list[str]:
    """A sentence for each warning about a round, [] for none. numbers: counts of the round's record ``played``; first:
    those of the first round."""
    messages, groups = list[str](), numbers["groups"]
    if groups and (flat := numbers["flat"] / groups) > MOST_FLAT:
        alike = f", in {numbers['alike']} of them because all replies are the same" if numbers["alike"] else ""
        messages.append(f"{flat:.0%} of {groups} groups have no differences to learn from{alike}")
    if numbers["entropy"] < LEAST_ENTROPY * first["entropy"]:
        messages.append(f"entropy fell from {first['entropy']:.3f} to {numbers['entropy']:.3f} nats a token")
    if numbers["repeated"] > MOST_REPEATED:
        messages.append(f"{numbers['repeated']:.0%} of the replies repeat the one before")
    return messages


def collapse(numbers: Mapping[str, Any], first: Mapping[str, Any]) -> str:
    """Why a run stops: its model hardly varies any more, and wins much less than at the start. "": it goes on. numbers:
    counts of the round's record ``played``; first: those of the first round."""
    rate, rate_at_start = (one["won"] / max(1, one["episodes"] - one["missing"]) for one in (numbers, first))
    varies = numbers["entropy"] >= LEAST_ENTROPY * first["entropy"] and numbers["repeated"] <= MOST_REPEATED
    if varies or rate >= COLLAPSED_WINS * rate_at_start:
        return ""
    return (
        f"the model has collapsed: {alarms(numbers, first)[-1]}, and it won {rate:.0%} of its episodes instead of "
        f"{rate_at_start:.0%} in round 1, so"
    )
