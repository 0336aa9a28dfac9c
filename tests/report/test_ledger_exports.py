"""Ledgers searched, and written as logs that inspect_ai opens."""

from __future__ import annotations

import json
import os
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_samples import episode, write_ledger

from lemur_ray.agents.messages import Message
from lemur_ray.agents.trajectory import Episode, Outcome, Step, Trajectory
from lemur_ray.report.ledgers.export_and_search import export_eval_logs, find_text, search_ledgers
from lemur_ray.report.ledgers.inspect_log import sample_id
from lemur_ray.report.ledgers.stored_episodes import anchor_of

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("LEMUR_CLIENTS", ROOT / ".venv-clients")) / "bin" / "python"
READ = """
import json, sys
from inspect_ai.log import read_eval_log, read_eval_log_sample_summaries
log = read_eval_log(sys.argv[1], resolve_attachments=True)
samples = [
    {"id": s.id, "epoch": s.epoch, "target": s.target, "messages": [(m.role, m.text) for m in s.messages],
     "score": s.scores["lemur_ray"].value if s.scores else None, "error": s.error.message if s.error else None,
     "limit": s.limit.type if s.limit else None,
     "events": [(e.event, len(e.input), e.output.completion) for e in s.events],
     "tokens": sum(u.total_tokens for u in s.model_usage.values())}
    for s in log.samples
]
print(json.dumps({
    "version": log.version, "status": log.status, "task": log.eval.task, "model": log.eval.model,
    "args": log.eval.task_args, "accuracy": log.results.scores[0].metrics["accuracy"].value, "samples": samples,
    "summaries": len(read_eval_log_sample_summaries(sys.argv[1])),
}))
"""


def played() -> list[Episode]:
    steps = (
        Step("think: héllo", "ls", "file.txt", 0.0, True, 1.0, 0.5, 100, 10, reasoning="hmm, Needle in thoughts"),
        Step("submit 7", "7", "wrong\x1b[2J", 0.0, True, 1.0, 0.5, 120, 3),
    )
    opening = (Message("system", "be brief"), Message("user", "How many needles?"))
    first = replace(episode("fs1/0", Outcome.FAILED), trajectory=Trajectory(opening, steps), reference="8")
    return [
        first,
        episode("fs1%2F0", Outcome.SOLVED, epoch=1),
        episode("b", Outcome.TURN_LIMIT),
        episode("c", Outcome.ENV_ERROR),
    ]


def test_a_search_names_turn_speaker_and_an_address_that_stays(tmp_path: Path) -> None:
    write_ledger(tmp_path, played())
    found = list(find_text([tmp_path], "NEEDLE"))
    assert [(f.turn, f.who) for f in found] == [(0, "user"), (1, "thoughts")]
    assert {f.anchor for f in found} == {anchor_of(played()[0].key)}
    *_, last = search_ledgers([tmp_path], "wrong")
    assert json.loads(last) == {"find": "wrong", "messages": 1, "episodes": 1}
    assert not [line for line in search_ledgers([tmp_path], "wrong") if "\x1b" in line]
    with pytest.raises(ValueError, match="nothing to look for"):
        list(find_text([tmp_path], ""))


def test_several_runs_go_into_a_folder_and_not_into_one_file(tmp_path: Path) -> None:
    folders = [write_ledger(tmp_path / p, [episode("a", Outcome.SOLVED, policy=p)]) for p in ("nano-chat", "expert")]
    with pytest.raises(ValueError, match="2 runs, and a log holds one"):
        list(export_eval_logs(folders, tmp_path / "x.eval"))
    *paths, _ = export_eval_logs(folders, tmp_path / "logs")
    assert sorted(Path(path).name for path in paths) == [
        "alfworld-text-expert-01234567.eval", "alfworld-text-nano-chat-01234567.eval",
    ]  # fmt: skip
    with pytest.raises(ValueError, match="no episodes"):
        list(export_eval_logs([], tmp_path / "x.eval"))


def test_ids_of_samples_are_parts_of_file_names_and_stay_apart() -> None:
    assert len({sample_id(task) for task in ("a/b", "a%2Fb", "a_b")}) == 3
    assert "/" not in sample_id("a/b/c")


def test_a_log_holds_a_sample_for_each_episode(tmp_path: Path) -> None:
    write_ledger(tmp_path, played())
    list(export_eval_logs([tmp_path], tmp_path / "log.eval"))
    with zipfile.ZipFile(tmp_path / "log.eval") as log:
        assert log.testzip() is None
        names = log.namelist()
        assert names[-1] == "header.json"
        assert "samples/fs1%2F0_epoch_1.json" in names
        assert "samples/fs1%252F0_epoch_2.json" in names
        assert len(json.loads(log.read("summaries.json"))) == 4


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON.exists(), reason=f"no evaluation clients at {PYTHON}: run make clients")
def test_inspect_reads_the_log_as_we_wrote_it(tmp_path: Path) -> None:
    write_ledger(tmp_path, played())
    known = {"0123456789abcdef": {"settings": {"prompt": "full"}, "configs": []}}
    (tmp_path / "evaluations.json").write_text(json.dumps(known))
    list(export_eval_logs([tmp_path], tmp_path / "log.eval"))
    done = subprocess.run([str(PYTHON), "-c", READ, str(tmp_path / "log.eval")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    log: dict[str, Any] = json.loads(done.stdout)
    about = [log[name] for name in ("version", "status", "task", "model", "args", "summaries")]
    assert about == [2, "success", "alfworld/text", "nano-chat", {"prompt": "full"}, 4]
    assert log["accuracy"] == pytest.approx(1 / 3)
    first, solved, cut, missing = (next(s for s in log["samples"] if s["id"] == i) for i in
                                   ("fs1%2F0", "fs1%252F0", "b", "c"))  # fmt: skip
    assert first["messages"] == [
        ["system", "be brief"], ["user", "How many needles?"], ["assistant", "think: héllo"], ["user", "file.txt"],
        ["assistant", "submit 7"], ["user", "wrong\x1b[2J"],
    ]  # fmt: skip
    assert (first["target"], first["score"], first["tokens"]) == ("8", "I", 233)
    assert first["events"] == [["model", 2, "think: héllo"], ["model", 4, "submit 7"]]
    assert (solved["score"], solved["epoch"]) == ("C", 2)
    assert cut["limit"] == "turn"
    assert missing["score"] is None
    assert "blame: env" in missing["error"]
