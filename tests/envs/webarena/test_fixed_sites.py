"""Sites that somebody else runs: their file, places that processes share, reset commands, and the benchmark on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from envs.webarena.benchmark import BENCHMARKS, WebOptions
from envs.webarena.browser.public_hosts import to_public
from envs.webarena.fixed_sites import FixedSites, SitesConfig
from envs.webarena.site_set import Chain, SitesLost
from lemur_ray.agents.task_leases import FileLeases
from lemur_ray.benchmarks.contract import EvaluationRequest
from lemur_ray.benchmarks.needs import missing_requirements
from tests.envs.webarena.small_site import SmallSite, record

HELD = """
import sys
from pathlib import Path
from envs.webarena.fixed_sites import FixedSites, SitesConfig
from lemur_ray.agents.task_leases import FileLeases
sites = FixedSites(SitesConfig.read(Path(sys.argv[1])), FileLeases(Path(sys.argv[2])))
print(sites.lease({}).name, flush=True)
sys.stdin.readline()
"""


def config(*sets: dict[str, Any]) -> SitesConfig:
    return SitesConfig.from_json({"sets": list(sets)})


def test_as_many_leases_as_there_are_places_spread_over_the_sets(tmp_path: Path) -> None:
    two = config(
        {"name": "a", "urls": {"MAP": "http://a"}, "places": 2}, {"name": "b", "urls": {"MAP": "http://b"}, "places": 1}
    )
    sites = FixedSites(two, FileLeases(tmp_path), wait_s=0.0)
    leases = [sites.lease(record()) for _ in range(3)]
    assert [lease.name for lease in leases] == ["a", "b", "a"]
    with pytest.raises(SitesLost, match="no place"):
        sites.lease(record())
    for _ in range(2):
        sites.release(leases[1])
    assert sites.lease(record()).name == "b"
    sites.close()


def test_a_place_is_free_again_when_its_process_is_killed(tmp_path: Path) -> None:
    file = tmp_path / "sites.json"
    file.write_text(json.dumps({"sets": [{"name": "a", "urls": {"MAP": "http://a"}, "places": 1}]}))
    sites = FixedSites(SitesConfig.read(file), FileLeases(tmp_path / "locks"), wait_s=0.0)
    with subprocess.Popen(
        [sys.executable, "-c", HELD, str(file), str(tmp_path / "locks")],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as other:  # fmt: skip
        assert other.stdout is not None
        assert other.stdout.readline() == "a\n"
        with pytest.raises(SitesLost):
            sites.lease(record())
        other.kill()
        other.wait()
    assert sites.lease(record()).name == "a"
    sites.close()


def test_a_set_is_reset_before_the_next_episode_however_the_one_before_ended(tmp_path: Path) -> None:
    log, fails = tmp_path / "log", tmp_path / "fails"
    not_utf8 = r"printf '\377'"
    script = f"{not_utf8}; test ! -e {fails} || exit 3; echo reset >> {log}"
    one = {"name": "a", "urls": {"MAP": "http://a"}, "places": 1, "reset_each": True, "reset": ["sh", "-c", script]}
    sites = FixedSites(config(one), FileLeases(tmp_path), wait_s=0.0)
    sites.release(sites.lease(record()))
    assert not log.exists(), "nobody has played on it before"
    sites.lease(record())
    assert log.read_text() == "reset\n"
    sites.close()  # as the end of a process does, killed or not
    again = FixedSites(config({**one, "name": "another file's"}), FileLeases(tmp_path), wait_s=0.0)
    fails.touch()
    for _ in range(2):
        with pytest.raises(SitesLost, match="ended with 3"):
            again.lease(record())
    fails.unlink()
    again.lease(record())
    assert log.read_text() == "reset\nreset\n"
    with pytest.raises(SitesLost, match="no place"):
        sites.lease(record())
    again.close()


def test_a_chain_stays_on_its_set_and_each_epoch_finds_it_reset(tmp_path: Path) -> None:
    log = tmp_path / "log"
    sets: list[dict[str, Any]] = [
        {"name": name, "urls": {"MAP": f"http://{name}"}, "reset": ["sh", "-c", f"echo {name} >> {log}"]}
        for name in "abcd"
    ]
    sites = FixedSites(config(*sets), FileLeases(tmp_path), wait_s=0.0)

    def played(*chain: int) -> str:
        lease = sites.lease(record(), Chain(*chain))
        sites.release(lease)
        return lease.name

    first = [played(copy, 2, epoch) for epoch in (0, 1) for copy in (0, 1, 0, 1)]
    assert "".join(first) == "ababcdcd", "two lanes of two sets"
    assert not log.exists(), "on none of them another epoch was played"
    again = FixedSites(config(*sets), FileLeases(tmp_path), wait_s=0.0)
    held = [again.lease(record(), Chain(0, 2, 2)) for _ in range(5)]
    assert [one.name for one in held] == ["a"] * 5, "as many as it has places"
    assert log.read_text() == "a\n", "once"
    with pytest.raises(SitesLost, match="no place"):
        again.lease(record(), Chain(0, 2, 2))
    sites.close()
    again.close()


def test_an_epoch_on_a_set_that_cannot_be_reset_is_a_sentence(tmp_path: Path) -> None:
    sites = FixedSites(config({"name": "a", "urls": {"MAP": "http://a"}}), FileLeases(tmp_path), wait_s=0.0)
    sites.release(sites.lease(record(), Chain(0)))
    for _ in range(6):
        with pytest.raises(SitesLost, match=r"as epoch 0 left it: epoch 1 needs a reset command in --sites-file"):
            sites.lease(record(), Chain(0, epoch=1))
    sites.release(sites.lease(record(), Chain(0)))
    sites.close()


def test_ordered_tasks_are_chains_on_the_sets_there_are_and_epochs_need_their_reset(tmp_path: Path) -> None:
    tasks, sites, order = (tmp_path / name for name in ("tasks.json", "sites.json", "order.json"))
    tasks.write_text(json.dumps([record(number) for number in range(4)]))
    order.write_text('{"1": [0], "3": [2]}')
    sets = [{"name": name, "urls": {"SHOPPING": f"http://{name}"}} for name in "ab"]
    benchmark = BENCHMARKS["webarena"]

    def chained(epochs: int = 1, **more: str) -> tuple[list[Any], list[str]]:
        sites.write_text(json.dumps({"sets": sets}))
        options = WebOptions(sites_file=str(sites), task_file=str(tasks), **more)
        found = list(benchmark.load(options, EvaluationRequest()))
        said = benchmark.details.unplayable(options, EvaluationRequest(epochs=epochs), found)
        assert {task.options.get("epoch") for task in found} <= {0, None}
        return [(task.lanes, (task.options.get("chain") or {}).get("copy")) for task in found], list(said)

    assert chained(2) == ([(2, 0)] * 4, []), "one chain, so each epoch has a set of its own"
    parts, said = chained(2, order=str(order))
    assert parts == [(1, 0), (1, 0), (1, 1), (1, 1)]
    assert "--epochs 2: tasks see what earlier ones did, and site set 'a' cannot be reset" in said[0]
    assert chained(2, order="any") == ([(0, None)] * 4, [])
    sets = [{**one, "reset": ["true"]} for one in sets]
    assert chained(5)[1] == []


@pytest.mark.parametrize(
    ("sets", "said"),
    [
        ([], "one or more"),
        ([{"name": "a", "urls": {}}], "no urls"),
        ([{"name": "a", "urls": {"MAP": "ftp://x"}}], "expected an http address"),
        ([{"name": "a", "urls": {"SHOPING": "http://x"}}], "unknown site 'SHOPING'"),
        ([{"name": "a", "urls": {"MAP": "http://x:port"}}], "port"),
        ([{"name": "a", "urls": {"MAP": "http://x"}, "places": 2.5}], "expected 1 or more"),
        ([{"name": "a", "urls": {"MAP": "http://x"}}, {"name": "b", "urls": {"MAP": "http://x/"}}], "one address"),
        ([{"name": "a", "urls": {"MAP": "http://x"}, "reset_each": True}], "needs a reset command"),
        ([{"name": "a", "urls": {"MAP": "http://x"}, "reset": "sh reset.sh"}], "expected a list of words"),
        ([{"name": "a", "urls": {"MAP": "shop.test:80"}}], "expected an http address, http://HOST:PORT"),
        ([{"name": "a", "urls": {"MAP": "http://x"}}, {"name": "b", "urls": {"MAP": "http://X:80/"}}], "one address"),
    ],
)
def test_a_file_that_cannot_be_meant_is_refused(tmp_path: Path, sets: list[dict[str, Any]], said: str) -> None:
    file = tmp_path / "sites.json"
    file.write_text(json.dumps({"sets": sets}))
    with pytest.raises(ValueError, match=said):
        SitesConfig.read(file)


def test_addresses_are_kept_as_a_browser_shows_them() -> None:
    urls = {"SHOPPING": "HTTP://Shop.Test:80/", "MAP": "https://map.test:443/Here", "REDDIT": "http://[::1]:9999"}
    (one,) = config({"urls": urls}).copies
    assert one.urls == {"SHOPPING": "http://shop.test", "MAP": "https://map.test/Here", "REDDIT": "http://[::1]:9999"}
    assert to_public("http://shop.test/pens", one.urls) == "http://onestopmarket.com/pens"


WHO = {"user": "u", "password": "p"}


def test_an_account_of_a_site_that_nobody_logs_in_at_is_refused() -> None:
    with pytest.raises(ValueError, match="accounts: unknown site 'shoping'"):
        SitesConfig.from_json({"sets": [{"urls": {"MAP": "http://a"}}], "accounts": {"shoping": WHO}})


def test_tasks_on_sites_without_an_address_are_named_before_the_first_episode(tmp_path: Path) -> None:
    tasks, sites = tmp_path / "tasks.json", tmp_path / "sites.json"
    target = {"url": "__REDDIT__/f", "locator": "", "required_contents": {"must_include": ["x"]}}
    others = [record(1, eval_types=["program_html"], program_html=[target]), {**record(2), "sites": ["map"]}]
    tasks.write_text(json.dumps([record(0), *others]))
    sites.write_text(json.dumps({"sets": [{"name": "a", "urls": {"SHOPPING": "http://x"}}]}))
    options, asked = WebOptions(sites_file=str(sites), task_file=str(tasks)), EvaluationRequest()
    benchmark = BENCHMARKS["webarena"]
    every = list(benchmark.load(options, asked))
    said = benchmark.details.unplayable(options, asked, every)
    assert [line[:45] for line in said] == [
        "1 of 3 tasks have to do with MAP, such as 2, ",
        "1 of 3 tasks have to do with REDDIT, such as ",
    ]
    assert "name one in --sites-file, or choose other --tasks" in said[0]
    assert not benchmark.details.unplayable(options, asked, every[:1])


def test_the_benchmark_says_in_a_line_each_what_it_lacks(tmp_path: Path, site: SmallSite) -> None:
    benchmark, asked = BENCHMARKS["webarena"], EvaluationRequest(data=tmp_path)
    options = WebOptions(chromium_executable=str(tmp_path / "none"))
    said = missing_requirements(benchmark.requirements(options, asked))
    assert len(said) == 3
    assert "apt-get install -y chromium" in said[0]
    assert "jobs/fetch_data.py webarena" in said[1]
    assert "--sites-file" in said[2]
    old = tmp_path / "chromium"
    old.write_text("#!/bin/sh\necho Chromium 90.0.4430.93\n")
    os.chmod(old, 0o755)
    (said_of_old, *_) = missing_requirements(benchmark.requirements(WebOptions(chromium_executable=str(old)), asked))
    assert "version 90, expected 120 or newer" in said_of_old


def test_tasks_wait_for_the_one_before_or_as_a_table_says(tmp_path: Path) -> None:
    tasks, sites, order = (tmp_path / name for name in ("tasks.json", "sites.json", "order.json"))
    tasks.write_text(json.dumps([record(number) for number in range(3)]))
    sites.write_text(json.dumps({"sets": [{"urls": {"SHOPPING": "http://x"}}]}))
    order.write_text('{"0": [2]}')
    load = BENCHMARKS["webarena"].load

    def waits(**more: str) -> list[tuple[str, tuple[str, ...]]]:
        options = WebOptions(sites_file=str(sites), task_file=str(tasks), **more)
        return [(task.id, task.after) for task in load(options, EvaluationRequest())]

    assert waits() == [("0", ()), ("1", ("0",)), ("2", ("1",))]
    assert waits(order=str(order)) == [("2", ()), ("0", ("2",)), ("1", ())]
    order.write_text('{"0": [7], "7": [8, 1], "8": [2]}')
    assert waits(order=str(order)) == [("2", ()), ("1", ()), ("0", ("2", "1"))], "7 and 8 are none of these tasks"
    assert waits(order="any") == [("0", ()), ("1", ()), ("2", ())]
