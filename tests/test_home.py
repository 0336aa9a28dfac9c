"""Where names on a command line lead."""

from pathlib import Path
from typing import Any

import pytest

from lemur_ray.host.home import find_model, outside_data, resolve_input, resolve_out


def test_a_model_is_a_run_by_name_or_a_folder_and_never_a_bucket(
    lemur_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = lemur_home / "runs" / "nano" / "checkpoints" / "5"
    (tmp_path / "cwd" / "nano").mkdir(parents=True)
    step.mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "cwd")
    assert find_model("nano") == find_model("runs/nano") == str(lemur_home / "runs" / "nano")
    assert find_model(str(step)) == find_model("nano/checkpoints/5") == str(step)
    assert find_model("random:nano") == "random:nano"
    assert find_model("random:nano@nano") == f"random:nano@{lemur_home / 'runs' / 'nano'}"
    for name in ("nona", "", "random:nano@nona"):
        with pytest.raises(ValueError, match=r"neither a folder nor a run in .*runs \(there: nano\)"):
            find_model(name)
    with pytest.raises(ValueError, match="local or mounted folder"):
        find_model("gs://bucket/nano")


def test_outputs_never_lie_in_the_working_directory(lemur_home: Any) -> None:
    assert resolve_out("", "runs/nano") == str(lemur_home / "runs/nano")
    assert resolve_out("mine", "runs/nano") == str(lemur_home / "mine")
    assert resolve_out("/x/y", "runs/nano") == "/x/y"
    assert resolve_out("gs://b/run/", "runs/nano") == "gs://b/run"


def test_a_file_to_read_may_be_in_the_working_directory(
    lemur_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cwd").mkdir()
    lemur_home.mkdir(exist_ok=True)
    monkeypatch.chdir(tmp_path / "cwd")
    (tmp_path / "cwd" / "chats.jsonl").write_text("")
    assert resolve_input("chats.jsonl") == str(tmp_path / "cwd" / "chats.jsonl")
    assert resolve_input("nowhere.jsonl") == "nowhere.jsonl"
    assert resolve_input("hf://datasets/o/n") == "hf://datasets/o/n"
    (lemur_home / "chats.jsonl").write_text("")
    assert resolve_input("chats.jsonl") == "chats.jsonl", "that of LEMUR_HOME comes first, as ever"


def test_data_of_others_lies_where_it_is_said_else_where_the_fetching_job_puts_it(lemur_home: Path) -> None:
    assert outside_data("") is None
    assert outside_data("/elsewhere") == Path("/elsewhere")
    (lemur_home / "data").mkdir(parents=True)
    assert outside_data("") == lemur_home / "data"
    assert outside_data("/elsewhere") == Path("/elsewhere")
