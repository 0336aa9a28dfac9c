"""The numbers of a server: its own alone, and fine enough for a token of a millisecond."""

from types import SimpleNamespace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from lemur_ray.serve.engine.events import Stats
from lemur_ray.serve.http.metrics import Metrics


def metrics(**stats: Any) -> Metrics:
    engine: Any = SimpleNamespace(stats=Stats(**stats), num_slots=4, context=256, num_devices=1)
    return Metrics(engine)


def samples(page: Metrics) -> dict[str, float]:
    families = text_string_to_metric_families(page.render())
    return {sample.name + str(sample.labels or ""): sample.value for family in families for sample in family.samples}


def test_tokens_of_one_and_of_four_milliseconds_are_told_apart() -> None:
    page = metrics()
    page.more_tokens(1, 0.001)
    page.more_tokens(2, 0.008)
    page.more_tokens(0, 5.0)
    found = samples(page)
    counts = [
        found[f"lemur_between_tokens_seconds_bucket{{'le': '{le}'}}"] for le in ("0.0005", "0.001", "0.003", "0.005")
    ]
    assert counts == [0, 1, 1, 2]
    assert found["lemur_between_tokens_seconds_count"] == 2


def test_servers_of_one_process_do_not_add_up() -> None:
    one, other = metrics(active=1), metrics(requests=3, finished={"stop": 2})
    one.refused(404)
    one.first_token(0.5)
    assert samples(one)["lemur_refused_total{'status': '404'}"] == 1
    assert "lemur_refused_total{'status': '404'}" not in samples(other)
    assert (samples(one)["lemur_requests_total"], samples(other)["lemur_requests_total"]) == (0, 3)
    assert samples(other)["lemur_finished_total{'reason': 'stop'}"] == 2


def test_names_from_outside_are_bounded_and_no_series_says_when_it_began() -> None:
    page = metrics()
    page.ignored([f"p{i}" for i in range(150)] + ["we\nird", "p3"])
    named = {name: value for name, value in samples(page).items() if name.startswith("lemur_ignored_parameters_total")}
    assert len(named) == 101
    assert named["lemur_ignored_parameters_total{'name': 'other'}"] == 51
    assert named["lemur_ignored_parameters_total{'name': 'p3'}"] == 2
    assert "_created" not in page.render()
