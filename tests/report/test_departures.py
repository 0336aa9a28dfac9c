"""What was not as upstream has it where a run was played is kept outside the recipe's hash, beside its settings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from lemur_ray.agents.messages import Sampling
from lemur_ray.report.inputs import read_settings
from lemur_ray.report.pages.agents_section import section
from lemur_ray.report.policy_results import policy_result
from lemur_ray.report.run_metadata import RunMetadata
from lemur_ray.rollout.evaluation_config import Settings
from lemur_ray.rollout.evaluation_folder import save_settings
from tests.report.report_samples import alfworld

SAID = "sandbox without gdb (apt-get install -y gdb)"


def test_departures_are_kept_beside_the_settings_and_change_no_hash(tmp_path: Path) -> None:
    settings = Settings(Sampling(), {"prompt": "full"})
    save_settings(tmp_path, settings, {"a": 1}, lambda stored: stored)
    before = json.loads((tmp_path / "evaluations.json").read_text())
    save_settings(tmp_path, settings, {"a": 1}, lambda stored: stored, [SAID])
    save_settings(tmp_path, settings, {"a": 1}, lambda stored: stored, [SAID])
    after = json.loads((tmp_path / "evaluations.json").read_text())
    assert list(after) == list(before) == [settings.hash]
    assert after[settings.hash] == {**before[settings.hash], "departures": [SAID]}
    assert read_settings(tmp_path)[settings.hash] == {"prompt": "full", "departures": [SAID]}


def test_departures_stand_beside_the_run_in_the_table_of_numbers(tmp_path: Path) -> None:
    played = alfworld("openai:m@1", 0.5, 1, per_kind=2)
    said = RunMetadata({played[0].key.recipe: {"prompt": "full", "departures": [SAID]}}).about(played)
    assert SAID in said.departures
    assert said.here == (SAID,)
    assert SAID in section("alfworld/text", [replace(policy_result(played, said), name="m")])
