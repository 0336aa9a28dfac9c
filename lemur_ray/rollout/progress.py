"""The progress line of a run: counts of episodes, rate, time left, tokens, cost, refused requests of endpoints; and
counts of cut replies."""

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, TextIO

from lemur_ray.agents.endpoint_retries import DEFAULT_THINKING_TOKENS
from lemur_ray.agents.messages import Cut
from lemur_ray.agents.throttle import Pressure
from lemur_ray.agents.trajectory import Episode, Outcome, Step
from lemur_ray.host.durations import duration
from lemur_ray.rollout.attempt import Prices
from lemur_ray.rollout.episode_record import CALL_IN_TEXT
from lemur_ray.text.tools_in_words import OPEN


class TokenTotals:
    """Sums of tokens over episodes: the policy's, and those of calls that environments make (``outside_in``,
    ``outside_out``). ``add`` counts an episode's steps."""

    def __init__(self) -> None:
        self.tokens_in = self.tokens_out = 0
        self.outside_in = self.outside_out = 0.0

    def add(self, steps: Iterable[Step]) -> None:
        for step in steps:
            self.tokens_in += step.prompt_tokens
            self.tokens_out += step.completion_tokens
            self.outside_in += sum(counts.get("prompt_tokens", 0) for counts in step.outside.values())
            self.outside_out += sum(counts.get("completion_tokens", 0) for counts in step.outside.values())

    def costs(self, prices: Prices) -> tuple[float, float]:
        """(cost of the policy's tokens, cost of the environments' external calls), in the currency of ``prices``."""
        outside = self.outside_in * prices.outside_in + self.outside_out * prices.outside_out
        return prices.cost(self.tokens_in, self.tokens_out), outside / 1e6


MAX_CUT_SHARE = 0.05
"""Share of cut replies above which a run is warned of."""
NUM_TASKS_OF_WARNING = 20
"""Number of tasks after which a run is warned of cut replies while it goes on."""
_ADVICE = {
    Cut.LENGTH: ("ended at the token limit", "--reply-tokens raises it"),
    Cut.THOUGHTS: ("hold reasoning alone", f"--thinking-tokens {4 * DEFAULT_THINKING_TOKENS} leaves more room for it"),
    Cut.EMPTY: ("are empty", "--thinking-tokens leaves room for reasoning that the endpoint hides"),
}


class CutReplies:
    """Counts cut replies (``messages.Cut``: the token limit, reasoning alone, empty) by kind, turn (from 1) and task.
    An empty reply without token counts is not counted: it comes from a policy without a model. ``calls_in_text``:
    number of replies with a tool call in their text although tools were offered natively."""

    def __init__(self, episodes: Iterable[Episode] = ()) -> None:
        self.replies = self.calls_in_text = 0
        self.num_tasks = 0
        """Number of distinct tasks with a reply"""
        self.kinds, self.turns, self.tasks = Counter[str](), Counter[int](), Counter[str]()
        self._seen: set[str] = set()
        self.add(episodes)

    def add(self, episodes: Iterable[Episode]) -> None:
        for episode in episodes:
            self._seen.add(episode.key.task)
            self.replies += len(episode.trajectory.steps)
            for turn, step in enumerate(episode.trajectory.steps, 1):
                self.calls_in_text += OPEN in step.reply and bool(episode.trajectory.tools_of(turn - 1))
                if step.cut and (step.cut != Cut.EMPTY or step.prompt_tokens or step.completion_tokens):
                    self.kinds[step.cut] += 1
                    self.turns[turn] += 1
                    self.tasks[episode.key.task] += 1
        self.num_tasks = len(self._seen)

    @property
    def share(self) -> float | None:
        """Share of the replies that are cut, 0 to 1; None without replies."""
        return self.kinds.total() / self.replies if self.replies else None

    def to_json(self) -> dict[str, Any]:
        """Counts as ``{"count": 3, "n": 120, "share": 0.025, "kinds": {"length": 3}}``; n is the number of replies."""
        counts = {"count": self.kinds.total(), "n": self.replies, "share": self.share}
        return {**counts, "kinds": dict(sorted(self.kinds.items()))}

    def warnings(self) -> Iterator[str]:
        """Yield sentences with the counts and the flags that help, if more than 5 % of the replies are cut, and if more
        than 5 % have tool calls in their text."""
        if self.calls_in_text > MAX_CUT_SHARE * self.replies:
            yield f"{self.calls_in_text} of {self.replies} replies: {CALL_IN_TEXT}"
        if not self.share or self.share <= MAX_CUT_SHARE:
            return
        kinds = [(Cut(kind), count) for kind, count in self.kinds.most_common()]
        parts = "; ".join(f"{count} {_ADVICE[kind][0]} ({_ADVICE[kind][1]})" for kind, count in kinds)
        whole = f"{self.kinds.total()} of {self.replies} replies of {self.num_tasks} tasks are cut"
        yield f"{whole}, so the rate says little of the model: {parts}"


def token_costs(episodes: Iterable[Episode], prices: Prices) -> dict[str, Any]:
    """Cost of all episodes' last attempts as ``{"cost": {"policy": 1.07, "outside": 0.4}}``, where "outside" is for
    calls that environments make; an empty dict if all prices are 0."""
    if prices == Prices():
        return {}
    totals = TokenTotals()
    for episode in episodes:
        totals.add(episode.trajectory.steps)
    policy, outside = totals.costs(prices)
    return {"cost": {"policy": round(policy, 6), "outside": round(outside, 6)}}


Suffix = Callable[[int, float], str]
"""Text at the end of the progress line, given the number of episodes that have ended and their cost."""


class Progress:
    """Counts a run's episodes and writes its progress to ``stream``: on a terminal in one line that is rewritten, else
    in a new line every ``every_s`` seconds. ``clock``: monotonic seconds."""

    def __init__(
        self,
        stream: TextIO,
        clock: Callable[[], float],
        *,
        label: str = "",
        every_s: float = 10.0,
        prices: Prices | None = None,
        suffix: Suffix | None = None,
    ) -> None:
        """``label``: start of the line; ``suffix``: function that returns its end. ``every_s`` infinite: only the last
        line is written, because a person plays in the terminal."""
        self._stream = stream
        self._clock = clock
        self._label = label
        self._prices = prices or Prices()
        self._suffix = suffix
        self._live = stream.isatty() and every_s < math.inf
        self._every_s = 0.5 if self._live else every_s
        self._total = self._done = self._solved = self._missing = self._retries = self._resumed = 0
        self._tokens, self._cut, self._warned = TokenTotals(), CutReplies(), False
        self._started = self._shown = clock()

    def begin(self, total: int, finished: Sequence[Episode]) -> None:
        """Start the counts of a run of ``total`` episodes; those in ``finished`` are in the ledger already."""
        self._started = self._clock()
        self._shown = -math.inf if self._every_s < math.inf else self._started
        self._total, self._resumed = total, len(finished)
        for episode in finished:  # one at a time, because each is read from a file
            self.ended(episode)
        if finished:
            self._write(f"resuming: {len(finished)} of {total} episodes are in the ledger and are not played again\n")

    def ended(self, *episodes: Episode) -> None:
        for episode in episodes:
            self._done += 1
            self._solved += episode.outcome is Outcome.SOLVED
            self._missing += not episode.outcome.scored
            self._tokens.add(episode.trajectory.steps)
            self._warn_of_cut_replies(episode)

    def _warn_of_cut_replies(self, episode: Episode) -> None:
        """Count the replies of an episode, and write one warning after the first tasks of a run if many are cut."""
        if self._warned:
            return
        self._cut.add([episode])
        if self._cut.num_tasks >= NUM_TASKS_OF_WARNING:
            self._warned = True
            for warning in self._cut.warnings():
                self._write(f"{self._label}: {warning}\n".removeprefix(": "))

    def retried(self) -> None:
        self._retries += 1

    def show(self, in_flight: int, waiting: int, pressure: Pressure | None = None) -> None:
        if self._clock() - self._shown < self._every_s:
            return
        self._shown = self._clock()
        line = self.line(in_flight, waiting, pressure)
        self._write(f"\r\x1b[K{line}" if self._live else f"{line}\n")

    def finish(self) -> None:
        self._write((f"\r\x1b[K{self.line(0, 0)}" if self._live else self.line(0, 0)) + "\n")

    def line(self, in_flight: int, waiting: int, pressure: Pressure | None = None) -> str:
        """The progress line, such as "alfworld/text 37/120 done, 21 solved, 32 in flight, 1.90/s, 0:44 left, 312k
        tokens in, 9k out, cost 0.17"."""
        rate = (self._done - self._resumed) / max(self._clock() - self._started, 1e-9)
        parts = [f"{self._done}/{self._total} done", f"{self._solved} solved", f"{in_flight} in flight"]
        parts += [f"{self._missing} missing"] if self._missing else []
        parts += [f"{self._retries} retries"] if self._retries else []
        parts += [f"{waiting} wait for a retry"] if waiting else []
        parts += [f"{rate:.2f}/s"]
        if rate > 0 and self._done < self._total:
            parts += [f"{duration(round((self._total - self._done) / rate))} left"]
        parts += [f"{self._tokens.tokens_in / 1000:.0f}k tokens in", f"{self._tokens.tokens_out / 1000:.0f}k out"]
        if self._prices != Prices():
            parts += [f"cost {self._cost:.2f}"]
        if pressure is not None and pressure.limit:
            parts += [f"endpoint refuses: {pressure.limit} requests at once, {pressure.waiting} wait"]
        if pressure is not None and pressure.refused:
            parts += [f"{pressure.refused} refused"]
        if self._suffix is not None:
            parts += [self._suffix(self._done, self._cost)]
        return f"{self._label} {', '.join(parts)}".strip()

    @property
    def _cost(self) -> float:
        return sum(self._tokens.costs(self._prices))

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
