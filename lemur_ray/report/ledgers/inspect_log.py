"""Export of a run as a log of inspect_ai (``.eval``, version 2), which ``inspect view`` opens.

A ZIP of ``header.json``, ``summaries.json`` and ``samples/{id}_epoch_{n}.json``, written sample by sample. Episodes
without a start time get times derived from the ledger's modification time. Uses inspect's format, not its code."""

import json
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from lemur_ray.agents.messages import Message
from lemur_ray.agents.trajectory import Episode, Outcome, Step
from lemur_ray.report.escape import slug
from lemur_ray.report.ledgers.stored_episodes import StoredEpisode, anchor_of
from lemur_ray.rollout.evaluation_folder import PLUGIN_METADATA

Json = dict[str, Any]
SCORER = "lemur_ray"
LIMITS = {
    Outcome.TURN_LIMIT: "turn", Outcome.TOKEN_LIMIT: "token", Outcome.TIME_LIMIT: "working",
    Outcome.COST_LIMIT: "cost", Outcome.CONTEXT_OVERFLOW: "context",
}  # fmt: skip
"""Outcomes that are limits, by inspect's names."""


def write_log(path: Path, run: Sequence[StoredEpisode], settings: Mapping[str, Any]) -> None:
    """Write the episodes of one run to the file ``path`` as a log of inspect_ai. ``settings``: of the run's recipe,
    maybe empty. Raises LedgerError if a ledger has changed since, OSError if ``path`` cannot be written."""
    written = datetime.fromtimestamp(run[0].place.path.stat().st_mtime, UTC)
    created = min((when for e in run if (when := _when(e.started))), default=written)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with zipfile.ZipFile(unfinished, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
            summaries = []
            for stored in run:
                sample = _sample(stored.load(), _when(stored.started) or created)
                archive.writestr(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", _text(sample))
                summaries.append(_summary(sample))
            archive.writestr("summaries.json", _text(summaries))
            archive.writestr("header.json", _text(_header(run, settings, created)))
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def write_logs(
    where: Path, runs: Sequence[Sequence[StoredEpisode]], settings: Mapping[str, Mapping[str, Any]]
) -> list[Path]:
    """Write one run to the file ``where``, or each of several into a folder of that name. Returns the paths.
    ``settings``: by recipe. Raises ValueError for several runs if ``where`` is the name of a file."""
    is_file = where.suffix == ".eval"
    if is_file and len(runs) > 1:
        raise ValueError(f"--eval {where}: {len(runs)} runs, and a log holds one; give a folder, or --episodes of one")
    paths = []
    for run in runs:
        key = run[0].key
        name = slug(f"{key.benchmark}-{key.policy}-{key.recipe[:8]}")
        paths.append(where if is_file else where / f"{name}.eval")
        write_log(paths[-1], run, settings.get(key.recipe, {}))
    return paths


def sample_id(task: str) -> str:
    """A task's id with slashes and percent signs escaped, for file names; distinct for distinct tasks."""
    return task.replace("%", "%25").replace("/", "%2F")


def _text(value: Any) -> str:
    return json.dumps(value, allow_nan=False, separators=(",", ":"))


def _header(run: Sequence[StoredEpisode], settings: Mapping[str, Any], created: datetime) -> Json:
    key, scored = run[0].key, [e for e in run if e.outcome.scored]
    solved = sum(e.outcome is Outcome.SOLVED for e in scored)
    usage = _usage([step for e in run for step in e.trajectory.steps])
    epochs = max(e.key.epoch for e in run) + 1
    when = created.isoformat()
    rate = {"accuracy": {"name": "accuracy", "value": solved / len(scored)}} if scored else {}
    score = {"name": SCORER, "scorer": SCORER, "scored_samples": len(scored), "metrics": rate}
    ids = list(dict.fromkeys(sample_id(e.key.task) for e in run))
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "eval_id": key.recipe, "run_id": key.recipe, "task_id": key.recipe, "created": when, "task": key.benchmark,
            "task_args": {name: value for name, value in settings.items() if name != PLUGIN_METADATA},
            "dataset": {"name": key.benchmark, "samples": len(ids), "sample_ids": ids},
            "model": key.policy, "config": {"epochs": epochs}, "metadata": {"recipe": key.recipe},
            "scorers": [{"name": SCORER}],
        },
        "plan": {"name": "plan", "steps": []},
        "results": {
            "total_samples": len(run), "completed_samples": len(scored),
            "scores": [{**score, "unscored_samples": len(run) - len(scored)}],
        },
        "stats": {"started_at": when, "completed_at": when, "model_usage": {key.policy: usage}},
    }  # fmt: skip


def _when(started: str) -> datetime | None:
    try:
        when = datetime.fromisoformat(started)
    except ValueError:
        return None  # not stored, or in another format
    return when if when.tzinfo else when.replace(tzinfo=UTC)


def _sample(episode: Episode, created: datetime) -> Json:
    key, steps = episode.key, episode.trajectory.steps
    opening = [_message(m) for m in episode.trajectory.opening]
    turns = [m for s in steps for m in (_reply(s, key.policy), *map(_message, s.messages()[1:]))]
    solved = episode.outcome is Outcome.SOLVED
    answer = next((s.action for s in reversed(steps) if s.action is not None), None)
    explanation = "; ".join(filter(None, (episode.outcome.value, episode.detail, episode.note)))
    sample: Json = {
        "id": sample_id(key.task),
        "epoch": key.epoch + 1,
        "input": opening,
        "target": episode.reference,
        "messages": opening + turns,
        "output": _output(steps[-1], key.policy) if steps else {"model": key.policy, "choices": []},
        "scores": {},
        "metadata": {
            "task": key.task, "category": episode.category, "outcome": episode.outcome.value,
            "blame": episode.blame.value, "attempts": episode.attempts, "retried": list(episode.retried),
            "anchor": anchor_of(key), **({"cluster": episode.cluster} if episode.cluster else {}),
        },
        "model_usage": {key.policy: _usage(steps)},
        **({"started_at": created.isoformat()} if episode.started else {}),
        "total_time": episode.wall_s,
        "working_time": sum(step.policy_s - step.waited_s + step.env_s for step in steps),
        "turn_count": len(steps),
        "uuid": anchor_of(key),
        "events": list(_events(episode, created)),
        "events_data": {"messages": opening + turns, "calls": []},
    }  # fmt: skip
    if episode.outcome.scored:
        value = {"value": "C" if solved else "I", "answer": answer, "explanation": explanation}
        graded = {name: {"value": score} for name, score in episode.scores.items()}
        sample["scores"] = {SCORER: value, "score": {"value": episode.score}, **graded}
    else:
        message = f"{episode.outcome.value} (blame: {episode.blame.value}): {episode.detail}"
        sample["error"] = {"message": message, "traceback": episode.detail, "traceback_ansi": episode.detail}
    if limit := LIMITS.get(episode.outcome):
        sample["limit"] = {"type": limit, "limit": float(len(steps)), "reason": explanation}
    return sample


def _summary(sample: Json) -> Json:
    names = ("id", "epoch", "target", "scores", "model_usage", "total_time", "working_time", "uuid", "turn_count")
    summary: Json = {name: sample[name] for name in names}
    first = next((m["content"] for m in reversed(sample["input"]) if m["role"] == "user"), "")
    summary |= {"input": first[:500], "metadata": {k: v for k, v in sample["metadata"].items() if k != "retried"}}
    summary |= {"error": sample["error"]["message"]} if "error" in sample else {}
    summary |= {"limit": sample["limit"]["type"]} if "limit" in sample else {}
    return summary | {"completed": True, "message_count": len(sample["messages"])}


def _message(message: Message) -> Json:
    call = {"tool_call_id": message.tool_call_id, "function": message.name} if message.role == "tool" else {}
    return {"role": message.role, "content": message.content, **call}


def _reply(step: Step, model: str) -> Json:
    parts = [{"type": "reasoning", "reasoning": step.reasoning}, {"type": "text", "text": step.reply}]
    calls = [
        {"id": c.id, "function": c.name, "arguments": _arguments(c.arguments), "type": "function"}
        for c in step.tool_calls
    ]
    reply = {"role": "assistant", "content": parts if step.reasoning else step.reply, "model": model}
    return {**reply, **({"tool_calls": calls} if calls else {})}


def _arguments(text: str) -> Json:
    """The arguments of a call; those that are no JSON object in a field of their own."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = text
    return value if isinstance(value, dict) else {"arguments": value}


def _output(step: Step, model: str) -> Json:
    choice = {"message": _reply(step, model), "stop_reason": "stop"}
    output: Json = {"model": model, "choices": [choice], "completion": step.reply, "usage": _usage([step])}
    return output | {"time": step.policy_s}


def _usage(steps: Sequence[Step]) -> Json:
    tokens_in, tokens_out = sum(s.prompt_tokens for s in steps), sum(s.completion_tokens for s in steps)
    return {"input_tokens": tokens_in, "output_tokens": tokens_out, "total_tokens": tokens_in + tokens_out}


def _events(episode: Episode, created: datetime) -> Iterator[Json]:
    """One model event per turn. Its input is a range of the sample's messages, so that no message is stored twice."""
    before, at = len(episode.trajectory.opening), 0.0
    for number, step in enumerate(episode.trajectory.steps):
        tools = [tool["function"] for tool in episode.trajectory.tools_of(number)]
        choice = "auto" if tools else "none"
        yield {
            "event": "model", "uuid": f"{anchor_of(episode.key)}-{number + 1}", "model": episode.key.policy,
            "input": [], "input_refs": [[0, before]], "tools": tools, "tool_choice": choice, "config": {},
            "output": _output(step, episode.key.policy), "timestamp": (created + timedelta(seconds=at)).isoformat(),
            "working_start": at, "working_time": step.policy_s,
            "metadata": {"reward": step.reward, "valid": step.valid, "action": step.action, "env_s": step.env_s},
        }  # fmt: skip
        at += step.policy_s + step.env_s
        before += len(step.messages())
