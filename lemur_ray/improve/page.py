"""The page of an improvement run: rates over rounds, numbers of each round, games gained and lost turn by turn."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from lemur_ray.agents.trajectory import Episode
from lemur_ray.host.durations import duration
from lemur_ray.improve.config import ImproveConfig
from lemur_ray.improve.outcome import comparison, rate
from lemur_ray.report.ledgers.stored_episodes import anchor_of
from lemur_ray.report.pages.figures import Mark, intervals
from lemur_ray.report.pages.markup import Page, percent, percent_interval, table, tiles
from lemur_ray.report.pages.rendering import write_stream
from lemur_ray.report.pages.transcripts import transcript
from lemur_ray.report.statistics import wilson

PAGE = "index.html"
EXAMPLES = 3
"""Maximum number of games gained, and of games lost, that are shown turn by turn."""


@dataclass(frozen=True)
class RunPage:
    """Content of the page of a run: records of its rounds, held-out episodes by round, and the best round."""

    config: ImproveConfig
    name: str
    rounds: Sequence[tuple[int, Mapping[str, Any], Mapping[str, Any]]]
    """Number, record ``played`` and record ``trained`` of each round that was trained."""
    evaluations: Mapping[int, Sequence[Episode]]
    """Held-out episodes by the number of the round before; 0 is the start."""
    best: int | None
    """Round with the best held-out rate among those whose checkpoint is there; None if there is none."""
    written: str
    """Time of writing, for readers."""
    stopped: str = ""
    """Why the run ended early."""
    files: Sequence[str] = ("rounds.jsonl",)
    compared_to: Mapping[str, Any] | None = None
    """The last evaluation of another run and what was gained over it, as in ``result.json``; None without one."""

    def write(self, out: Path) -> Path:
        """Write the page into ``out``; returns its path."""
        config = self.config
        values = {
            "lede": _lede(config), "stopped": self.stopped, "tiles": self._tiles(), "rates": self._rates(),
            "temperature": f"{config.temperature:g}", "teaches": config.teaches, "rounds": self._table(),
            "examples": self._examples(), "files": self.files, "written": self.written,
        }  # fmt: skip
        write_stream(out / PAGE, "runs/improve", page=Page(f"Improvement run {self.name}"), **values)
        return out / PAGE

    def _ends(self) -> tuple[int, int]:
        """Numbers of the rounds whose evaluations are compared: the first and the last."""
        return min(self.evaluations), max(self.evaluations)

    def _tiles(self) -> Markup:
        if not self.evaluations:
            return Markup("")
        first, last = self._ends()
        shown = [(first, "held out before round 1")] + [(last, f"held out after round {last}")] * (last > first)
        if (best := self.best) is not None and best != last:
            shown.append(
                (best, f"best held out, {f'after round {best}' if best else 'at the start'}; its checkpoint is kept")
            )
        items = [(_rate_text(self.evaluations[number]), label) for number, label in shown]
        if last > first:
            both = comparison(self.evaluations[first], self.evaluations[last])
            items.append((f"+{both['gained']} \u2212{both['lost']}", f"games gained and lost, p {both['p']:.3g}"))
        if other := self.compared_to:
            kind = "control " if other["control"] else ""
            change = f"games gained and lost over it, p {other['p']:.3g}"
            items.append((f"{percent(other['rate'])} {percent_interval(*other['interval'])}", f"{kind}{other['run']}"))
            items.append((f"+{other['gained']} \u2212{other['lost']}", change))
        return tiles(items)

    def _rates(self) -> Markup:
        played = {number: record for number, record, _ in self.rounds}
        rows = []
        for number in sorted({*played, *self.evaluations}):
            marks = [_mark("held out", rate(self.evaluations[number]), 0)] if number in self.evaluations else []
            if (record := played.get(number)) is not None:
                n, solved = record["episodes"] - record["missing"], record["won"]
                bounds = wilson(solved, n)
                share = {"n": n, "rate": solved / n if n else None, "interval": (bounds.low, bounds.high)}
                marks.append(_mark("training", share, None))
            rows.append((f"round {number}" if number else "start", marks))
        return intervals(rows, label="Share of episodes won, after each round")

    def _table(self) -> Markup:
        lines = []
        for number, played, trained in self.rounds:
            own, n = played["own_turns"], played["episodes"] - played["missing"]
            agreed, after = _share(played.get("agreed"), own), played.get("after_refused", 0)
            line = [number, f"{played['won']} of {n}", _share(played["refused"], own), agreed]
            line += [_share(played.get("agreed_after_refused"), after), played.get("overlong"), _mixed(played)]
            line += [played.get("entropy"), trained["loss"], trained["grad_norm"], trained.get("mismatch_max")]
            lines.append([*line, duration(played["play_s"]), duration(trained["learn_s"])])
        header = ("round", "won", "refused", "agrees with teacher", "after a refused turn", "context full",
                  "groups that differ", "entropy", "loss", "gradient norm", "server to learner", "playing",
                  "learning")  # fmt: skip
        used = [i for i in range(len(header)) if i == 0 or any(line[i] is not None for line in lines)]
        return table([header[i] for i in used], [[line[i] for i in used] for line in lines])

    def _examples(self) -> list[tuple[str, str, list[Markup]]]:
        if len(self.evaluations) < 2:
            return []
        first, last = self._ends()
        of_task = [{one.key.task: one for one in self.evaluations[number]} for number in (first, last)]
        both = comparison(self.evaluations[first], self.evaluations[last])
        sections = []
        for kind in ("gained", "lost"):
            tasks = both[f"{kind}_tasks"][:EXAMPLES]
            shown = [
                transcript(episodes[task], anchor_of(episodes[task].key), who)
                for task in tasks
                for episodes, who in zip(of_task, ("at the start", f"after round {last}"), strict=True)
            ]
            count = f"{both[kind] or 'None'} of {both['paired']} games"
            text = f"{count}; {len(tasks)} of them, before and after:" if tasks else f"{count}."
            sections.append((f"Games {kind}", text, shown))
        return sections


def _lede(config: ImproveConfig) -> str:
    kind = f"{config.algorithm}{', control' if config.control else ''}"
    return f"{config.benchmark}, {kind}, from {config.init_from}"


def _rate_text(episodes: Sequence[Episode]) -> str:
    numbers = rate(episodes)
    return f"{percent(numbers['rate'])} {percent_interval(*numbers['interval'])}"


def _mark(label: str, numbers: Mapping[str, Any], colour: int | None) -> Mark:
    low, high = numbers["interval"]
    text = f"{label} {percent(numbers['rate'])} {percent_interval(low, high)} n {numbers['n']}"
    return Mark(label, numbers["rate"], low, high, text, colour)


def _share(part: int | None, whole: int) -> str | None:
    return None if part is None else percent(part / whole if whole else None)


def _mixed(played: Mapping[str, Any]) -> str | None:
    return f"{played['mixed']} of {played['groups']}" if "groups" in played else None
