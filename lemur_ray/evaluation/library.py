"""Evaluations from Python: ``evaluate`` plays a benchmark with any policy and returns an ``Evaluation``."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lemur_ray.agents.baselines.function_policy import Function, register
from lemur_ray.agents.messages import Policy
from lemur_ray.agents.trajectory import Episode
from lemur_ray.benchmarks.discovery import find, names
from lemur_ray.evaluation.evaluate import evaluate as evaluate_config
from lemur_ray.report.ledgers.stored_episodes import StoredEpisode, stored_episodes
from lemur_ray.rollout.benchmark_tasks import options_of
from lemur_ray.rollout.evaluation_config import EvalConfig
from lemur_ray.rollout.evaluation_folder import LEDGER, evaluation_folders, with_local_folder

if TYPE_CHECKING:
    import datasets
    import pandas


@dataclass(frozen=True)
class Evaluation:
    """A finished or stored evaluation (``load_evaluation``): folder, and numbers of its report (``headline``)."""

    folder: Path
    """Local folder with episodes.jsonl, report.json and index.html; the copy of one in a bucket has episodes.jsonl."""
    headline: Mapping[str, Any]
    """The numbers of the report: success_rate, its 95 % interval, counts by outcome, ..."""
    policy: str = ""
    """Name of the policy whose episodes are meant; empty: all of the folder."""

    @property
    def page(self) -> Path:
        """Path of the report's page (index.html), to be opened in a browser."""
        return self.folder / "index.html"

    def episodes(self) -> list[Episode]:
        """All episodes with conversations. Raises LedgerError for an invalid ledger, FileNotFoundError without one."""
        return [stored.load() for stored in self._stored()]

    def rows(self) -> list[dict[str, Any]]:
        """One flat dict for each episode: its key, outcome, score, number of turns, tokens and seconds."""
        return [_row(episode) for episode in self._stored()]

    def to_pandas(self) -> "pandas.DataFrame":
        """``rows`` as a DataFrame. Raises ImportError without pandas."""
        import pandas

        return pandas.DataFrame(self.rows())

    def to_dataset(self) -> "datasets.Dataset":
        """``rows`` and a column ``messages``, conversations in OpenAI's form, as a ``datasets.Dataset`` for TRL."""
        import datasets

        rows = [
            {
                **_row(episode),
                "messages": [message.to_json() for message in episode.trajectory.messages()],
                **({"tools": list(tools)} if (tools := episode.trajectory.tools_of(None)) else {}),
            }
            for episode in self.episodes()
        ]
        return datasets.Dataset.from_list(rows)

    def _stored(self) -> list[StoredEpisode]:
        stored = stored_episodes(self.folder / LEDGER)
        return [one for one in stored if self.policy in ("", one.key.policy)]

    def _repr_html_(self) -> str:
        """The headline numbers as an HTML table, which notebooks show."""
        plain = {name: value for name, value in self.headline.items() if isinstance(value, (int, float, str))}
        cells = "".join(f"<tr><td>{name}</td><td>{value}</td></tr>" for name, value in plain.items())
        return f"<table>{cells}</table>"


def evaluate(
    policy: str | Function | Policy,
    benchmark: str = "alfworld/text",
    *,
    limit: int = 0,
    out: str = "",
    actors: int = 0,
    in_flight: int = 8,
    **options: Any,
) -> Evaluation:
    """Play tasks of a benchmark with a policy; the same call again resumes.

    policy: a value of ``--policy`` (``"openai:http://127.0.0.1:8000/v1"``, ``"expert"``), a function from messages in
    OpenAI's form to the text of the reply, or an object with ``name`` and ``reply`` (``Policy``). A function with other
    code is another policy. limit: number of tasks, 0 for the benchmark's default. out: folder of the results, also in a
    bucket, by default below LEMUR_HOME. actors: number of Ray actors that play; 0: threads in this process, without
    Ray. in_flight: episodes at a time. options: any flag of ``jobs/agent_eval.py`` for this benchmark, with
    underscores.

    Raises ValueError for an unknown benchmark or option, EvaluationError with all that is missing, EndpointRefused
    (``agents.messages``) if the function raises or returns anything but a str, LedgerError or SyncError for a damaged
    folder."""
    own = options_of(benchmark, find(benchmark))
    of_benchmark = {field.name for field in fields(own)} & options.keys()
    known = {field.name for field in fields(EvalConfig)} | of_benchmark
    if unknown := sorted(options.keys() - known):
        raise ValueError(f"evaluate: {benchmark} has no option {', '.join(unknown)}")
    config: EvalConfig[Any] = EvalConfig(
        own(**{name: options.pop(name) for name in of_benchmark}),
        benchmark,
        policy if isinstance(policy, str) else f"function:{register(policy)}",
        limit=limit, out=out, actors=actors, in_flight=in_flight, **options,
    )  # fmt: skip
    headline = with_local_folder(config.out, lambda out: evaluate_config(replace(config, out=out), config))
    return Evaluation(evaluation_folders([headline["out"]])[0], headline)


def load_evaluation(out: str | Path, policy: str = "") -> Evaluation:
    """The evaluation that a folder holds, also in a bucket; relative paths are below LEMUR_HOME. policy: its name in
    the episodes, if the folder holds evaluations of several. Raises FileNotFoundError or EvaluationError without a
    ledger, LedgerError for an invalid one, ValueError if it holds none or several evaluations (of that policy)."""
    from lemur_ray.report.tables import summarise

    folder = evaluation_folders([str(out)])[0]
    episodes = [one for one in stored_episodes(folder / LEDGER) if policy in ("", one.key.policy)]
    runs = sorted({(one.key.benchmark, one.key.policy, one.key.recipe) for one in episodes})
    if len(runs) != 1:
        raise ValueError(f"{out} holds {len(runs)} evaluations{f' of {policy}' if policy else ''} (benchmark, policy, "
                         f"recipe): {', '.join(map(str, runs)) or 'none'}; choose one with policy=")  # fmt: skip
    return Evaluation(folder, {**summarise(episodes).headline(), "out": str(out)}, policy)


def list_benchmarks() -> Sequence[str]:
    """Names of all benchmarks that can be loaded: the built-in ones, then installed ones. Imports each of them."""
    return list(names())


def _row(episode: Episode) -> dict[str, Any]:
    steps = episode.trajectory.steps
    return {
        **asdict(episode.key),
        "category": episode.category, "outcome": episode.outcome.value, "score": episode.score, "turns": len(steps),
        "prompt_tokens": sum(step.prompt_tokens for step in steps),
        "completion_tokens": sum(step.completion_tokens for step in steps),
        "seconds": episode.wall_s, "detail": episode.detail,
    }  # fmt: skip
