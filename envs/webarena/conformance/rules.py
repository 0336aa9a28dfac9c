"""Gates (comparisons with recorded rows) without a browser: parser, early stop, answers, URLs, counts of tasks."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from envs.webarena.actions.action import NOTHING, ActionParsingError
from envs.webarena.actions.early_stop import ANSWER, EarlyStop
from envs.webarena.actions.python_calls import parse_calls, render_call
from envs.webarena.actions.symbolic import parse_symbolic
from envs.webarena.conformance.gate import Gate, Row, compared, gate, rows_in
from envs.webarena.evaluators.evaluate import needs_judge
from envs.webarena.evaluators.judge import NoJudge, NoVerdict
from envs.webarena.evaluators.string_match import string_match
from envs.webarena.evaluators.url_match import OR, url_match
from envs.webarena.site_set import Record
from envs.webarena.tasks import SITES, filled
from lemur_ray.host.json_files import toml_beside

_KNOWN = toml_beside(__file__)
BASES: Mapping[str, str] = _KNOWN["bases"]
"""Site URLs in the recorded rows."""
REASONS = (
    "Reach max steps 30",
    "Failed to parse actions for 3 times",
    "Same action for 3 times",
    "Same typing action for 3 times",
)
"""Reasons of early stops by the protocol. Those of forks (5 times) contain the answer of tasks 77 and 136."""


def parser_gates(folder: Path) -> Iterator[Gate]:
    """Yield gates on recorded results of upstream's action parser, and on writing them as Python calls and back."""
    rows = rows_in(folder, "id_action_parsing.json")

    def as_upstream(row: Row) -> bool:
        action = _parse(row["input"])
        return bool((action.to_upstream() if action else None) == row["parsed"])

    def the_same_again(row: Row) -> bool:
        action = _parse(row["input"])
        return bool(parse_calls(render_call(action)).action == action)

    yield gate("symbolic parser", compared(rows, as_upstream, _input))
    parsed = [row for row in rows if _parse(str(row.get("input", ""))) is not None]
    yield gate("python-call round trip", compared(parsed, the_same_again, _input))


def _input(row: Row) -> str:
    return str(row["input"])[:40]


def _task(row: Row) -> str:
    return f"task {row['task_id']}"


def _parse(text: str) -> Any:
    try:
        return parse_symbolic(text)
    except ActionParsingError:
        return None


def early_stop_gate(folder: Path) -> Iterator[Gate]:
    """Yield the gate on recorded early stops of action sequences."""
    rows = rows_in(folder, "early_stop.json")
    yield gate("early stop", compared(rows, lambda row: _early_stop(row) == row["result"], lambda row: ""))


def _early_stop(row: Mapping[str, Any]) -> list[Any]:
    thresholds = row["thresholds"]
    rule = EarlyStop(row["max_steps"], thresholds["parsing_failure"], thresholds["repeating_action"])
    stop = rule.check([_parse(text) or NOTHING for text in row["actions"]])
    return [stop is not None, stop.reason if stop else ""]


def answer_gates(folder: Path, records: Mapping[int, Record]) -> Iterator[Gate]:
    """Yield two gates: whether our scores of answers (by rules, without a judge) and of URLs equal those in ``folder``,
    in the files string_match_scores.json and url_match_scores.json. A gate without its file has no rows and is not met.
    Answers with a full stop to a reference of one character may differ (``exempt``). ``records``: WebArena's tasks by
    id. Raises ValueError for a file that is no JSON list."""
    rows = rows_in(folder, "string_match_scores.json")
    exempt: list[Row] = []

    def as_scored(row: Row) -> bool:
        if _rule_score(records[row["task_id"]], row["answer"]) == row["score"]:
            return True
        if not (row.get("single_char_ref") and "." in row["answer"]):
            return False
        exempt.append(row)
        return True

    result = gate("string_match, upstream", compared(rows, as_scored, _task))
    yield replace(result, exempt=len(exempt))
    rows = rows_in(folder, "url_match_scores.json")

    def as_matched(row: Row) -> bool:
        return _url_score(records[row["task_id"]], row["url"]) == row["score"]

    yield gate("url_match, upstream", compared(rows, as_matched, _task))


def _rule_score(record: Record, answer: str) -> float | None:
    try:
        return string_match(record, answer, NoJudge())
    except NoVerdict:
        return None


def _url_score(record: Record, url: str, strict: bool = False) -> float:
    return url_match(filled(record, BASES)["eval"]["reference_url"], url, strict=strict)


def task_gates(records: Sequence[Record]) -> Iterator[Gate]:
    """Yield gates on the 812 tasks: their counts, and scores of N/A, of early-stop texts and of altered URLs."""
    count: Callable[[Callable[[Record], str]], Counter[str]] = lambda key: Counter(key(one) for one in records)  # noqa: E731
    counted = {
        "tasks": (len(records), 812),
        "task ids": ([one["task_id"] for one in records], list(range(812))),
        "sites": (count(lambda one: "+".join(one["sites"])), _KNOWN["sites"]),
        "storage_state": (count(_state), _KNOWN["storage_state"]),
        "eval_types": (count(lambda one: "+".join(one["eval"]["eval_types"])), _KNOWN["eval_types"]),
        "placeholders": (_placeholders(records), _KNOWN["placeholders"]),
        "templates": (len({one["intent_template_id"] for one in records}), 190),
    }
    wrong = tuple(name for name, (ours, expected) in counted.items() if ours != expected)
    yield Gate("loader", len(records), wrong, note="counts of the specification: sites, states, evaluators")
    needing = sum(map(needs_judge, records))
    split = (len(records) - needing, needing) == (694, 118)
    yield Gate("judge split", len(records), () if split else (f"{len(records) - needing} / {needing}",))
    asked = [one for one in records if "string_match" in one["eval"]["eval_types"]]
    yield gate(
        "N/A rule", ((f"task {one['task_id']}", _rule_score(one, "N/A") == _expected_of_na(one)) for one in asked)
    )
    yield gate(
        "early-stop text",
        (
            (f"task {one['task_id']}", not any(_rule_score(one, ANSWER.format(reason=why)) for why in REASONS))
            for one in asked
        ),
    )
    yield gate("strict url_match", _strict_rows(records))


def _state(record: Record) -> str:
    return (record["storage_state"] or "").removeprefix("./.auth/").removesuffix("_state.json")


def _placeholders(records: Sequence[Record]) -> dict[str, int]:
    texts = "\n".join(map(str, records))
    return {name: count for name in SITES if (count := texts.count(f"__{name}__"))}


def _expected_of_na(record: Record) -> float | None:
    """Return the expected score of the answer N/A to a task; None if only a judge can give it."""
    fuzzy = record["eval"]["reference_answers"].get("fuzzy_match")
    if fuzzy is None:
        return 0.0
    return 1.0 if fuzzy == "N/A" else _rule_score(record, "N/A")


def _strict_rows(records: Sequence[Record]) -> Iterator[tuple[str, bool]]:
    """Yield for each reference URL whether strict ``url_match`` accepts it, but no longer path and no other host."""
    for record in records:
        if "url_match" not in record["eval"]["eval_types"]:
            continue
        for gold in filled(record, BASES)["eval"]["reference_url"].split(OR):
            parts = urlsplit(gold)
            longer = urlunsplit(parts._replace(path=parts.path.rstrip("/") + "asdf"))
            foreign = f"http://other.test/{parts.netloc}{parts.path}"
            scores = [_url_score(record, url, strict=True) for url in (gold, longer, foreign)]
            yield f"task {record['task_id']}", scores == [1.0, 0.0, 0.0]
