"""Numbers of a round and of a run: counts of episodes, rates with intervals, games gained and lost, and warnings about
a round of reinforcement that goes wrong."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lemur_ray.agents.trajectory import Episode, Outcome
from lemur_ray.host.durations import duration
from lemur_ray.host.home import resolve_out
from lemur_ray.improve.config import BadInput
from lemur_ray.report.statistics import mcnemar, wilson
from lemur_ray.rollout.evaluation_folder import LEDGER
from lemur_ray.rollout.ledger import LedgerError, read_episodes
from lemur_ray.train.run.folder import read_object

RESULT = "result.json"
"""File of a run folder that is written when the run is finished."""

MOST_MISSING = 0.1
"""Share of the held-out episodes that may be missing in a result."""
MOST_FLAT = 0.9
"""Share of groups without differences above which little is learned from a round."""
LEAST_ENTROPY = 0.1
"""Share of the first round's entropy below which replies hardly vary any more."""
MOST_REPEATED = 0.5
"""Share of turns with the reply of the turn before above which a model repeats itself."""
COLLAPSED_WINS = 0.5
"""Share of the first round's rate of won episodes; a model that hardly varies and wins less than this has collapsed."""


def round_numbers(episodes: Sequence[Episode], teaches: bool) -> dict[str, Any]:
    """Counts of a round's episodes, as stored in its record ``played``. teaches: an expert played part of the turns,
    which do not count as the model's own."""
    scored = [episode for episode in episodes if episode.outcome.scored]
    steps = [step for episode in scored for step in episode.trajectory.steps]
    own = [step for step in steps if step.instead or not step.weight] if teaches else steps
    pairs = [
        pair for episode in scored for pair in zip(episode.trajectory.steps, episode.trajectory.steps[1:], strict=False)
    ]
    after = [step for before, step in pairs if not before.valid and (step.instead or not step.weight)]
    agreement = {
        "agreed": sum(bool(step.instead) for step in own), "after_refused": len(after),
        "agreed_after_refused": sum(bool(step.instead) for step in after),
    }  # fmt: skip
    return {
        "episodes": len(episodes), "missing": len(episodes) - len(scored),
        "won": sum(episode.outcome is Outcome.SOLVED for episode in scored),
        "turns": len(steps), "own_turns": len(own), "refused": sum(not step.valid for step in own),
        "overlong": sum(episode.outcome is Outcome.CONTEXT_OVERFLOW for episode in scored),
        **(agreement if teaches else {}),
    }  # fmt: skip


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


def round_line(number: int, num_rounds: int, played: Mapping[str, Any], trained: Mapping[str, Any]) -> str:
    """One line of text about a trained round. played, trained: its records in ``rounds.jsonl``. number: of the round,
    from 1; num_rounds: of the run."""
    own = played["own_turns"]
    parts = [f"agrees with the teacher {_percent(played['agreed'], own)}"] if "agreed" in played and own else []
    parts += [f"refused {_percent(played['refused'], own)}"] if own else []
    parts += [f"won {played['won']} of {played['episodes'] - played['missing']}"]
    parts += [f"{played['missing']} missing"] if played["missing"] else []
    parts += [f"{played['mixed']} of {played['groups']} groups differ"] if "groups" in played else []
    parts += [f"{duration(played['play_s'])} playing", f"{duration(trained['learn_s'])} learning"]
    return f"round {number}/{num_rounds}: {', '.join(parts)}"


def result_line(result: Mapping[str, Any], page: Path) -> str:
    """One line about a run: held-out rates before and after, games gained and lost, the best round if it is not the
    last, the path of the page. result: content of ``result.json``."""
    rates = (f"{one['solved']} of {one['n']}" for one in (result["before"], result["after"]))
    change = f"gained {result['gained']}, lost {result['lost']}, p {result['p']:.2g}"
    best, last = result["best"], result["rounds"]
    after = f"; best after round {best['round']}: {best['solved']} of {best['n']}" if best["round"] != last else ""
    over = ""
    if other := result.get("compared_to"):
        over = f"; over {other['run']}, {other['solved']} of {other['n']}: gained {other['gained']}, lost "
        over += f"{other['lost']}, p {other['p']:.2g}"
    return f"held out {' -> '.join(rates)} ({change}){after}{over}: {page}"


def best_round(evaluations: Mapping[int, Sequence[Episode]]) -> int | None:
    """Number of the round with the highest held-out rate, the last one of several; 0: the start. Evaluations with too
    many missing episodes do not count; None if none does. evaluations: by the number of the round before."""
    rates = {number: rate(episodes) for number, episodes in evaluations.items()}
    counted = [n for n, one in rates.items() if one["n"] and one["missing"] <= MOST_MISSING * len(evaluations[n])]
    return max(counted, key=lambda number: (rates[number]["rate"], number), default=None)


def rate(episodes: Sequence[Episode]) -> dict[str, Any]:
    """Success rate of an evaluation: ``n`` scored episodes, ``solved`` ones, their ``rate`` (None without any), its 95
    % ``interval`` (Wilson) as [low, high], and ``missing``, the number of unscored episodes."""
    scored = [episode for episode in episodes if episode.outcome.scored]
    solved = sum(episode.outcome is Outcome.SOLVED for episode in scored)
    interval = wilson(solved, len(scored))
    return {
        "n": len(scored), "solved": solved, "rate": round(solved / len(scored), 4) if scored else None,
        "interval": [round(interval.low, 4), round(interval.high, 4)], "missing": len(episodes) - len(scored),
    }  # fmt: skip


def comparison(before: Sequence[Episode], after: Sequence[Episode]) -> dict[str, Any]:
    """Numbers of tasks that both scored (``paired``), ``gained`` and ``lost`` from ``before`` to ``after``, McNemar's
    exact ``p``, and their ids (``gained_tasks``, ``lost_tasks``). A task's last episode counts."""
    solved = [
        {e.key.task: e.outcome is Outcome.SOLVED for e in episodes if e.outcome.scored} for episodes in (before, after)
    ]
    common = sorted(solved[0].keys() & solved[1].keys())
    gained = [task for task in common if solved[1][task] and not solved[0][task]]
    lost = [task for task in common if solved[0][task] and not solved[1][task]]
    p = round(mcnemar(len(lost), len(gained)), 6)
    return {"paired": len(common), "gained": len(gained), "lost": len(lost), "p": p, "gained_tasks": gained,
            "lost_tasks": lost}  # fmt: skip


def last_evaluation(run: str) -> tuple[bool, list[Episode]]:
    """Whether the finished run ``run`` was a control, and its held-out episodes after the last round. run: folder,
    absolute or relative to $LEMUR_HOME. Raises BadInput if it is none, or its episodes are gone or damaged."""
    try:
        folder = Path(resolve_out(run, ""))
        result = read_object(f"{folder}/{RESULT}")
        return result["control"], read_episodes(folder / "heldout" / str(result["rounds"]) / LEDGER)
    except (OSError, ValueError, KeyError, LedgerError) as error:
        raise BadInput(f"--compare-to {run}: expected the folder of a finished improvement run ({error!r})") from error


def _percent(part: int, whole: int) -> str:
    return f"{round(100 * part / whole)} %"
