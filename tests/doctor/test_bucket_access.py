"""Whether hosts can use a bucket: asked through every client that a job uses, and one sentence for each that cannot."""

from __future__ import annotations

import pytest

from lemur_ray.doctor.hosts.bucket import access
from lemur_ray.doctor.hosts.host_facts import Asked
from lemur_ray.storage.bucket_access import AccessFailure, check_clients
from lemur_ray.storage.retry_policy import BucketProblem, missing_bucket_error, timeout_error
from tests.storage.bucket_server import Service
from tests.storage.conftest import amazon, google, moto_url  # noqa: F401  # fixtures

ALL = ["files", "pyarrow", "leases", "epath", "tensorstore"]


def failure(reason: str, problem: BucketProblem = BucketProblem.REFUSED) -> AccessFailure:
    return AccessFailure(problem, reason)


def test_every_client_writes_reads_and_removes_an_object(google: Service) -> None:  # noqa: F811
    assert Asked().bucket("gs://bucket/store", {}) == dict.fromkeys(ALL)
    assert google.objects.names("bucket") == []


def test_the_clients_of_s3_do_the_same_but_that_of_checkpoints(amazon: str) -> None:  # noqa: F811
    assert check_clients(f"{amazon}/store") == dict.fromkeys(ALL[:-2])


@pytest.mark.parametrize(
    ("url", "read_only", "problem", "said"),
    [
        ("gs://nowhere/store", False, BucketProblem.ABSENT, "gs://nowhere/store: there is no such bucket: make it"),
        ("gs://bucket/store", True, BucketProblem.REFUSED, "Forbidden"),
    ],
)
def test_what_a_client_cannot_do_is_its_sentence(
    google: Service,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    url: str,
    read_only: bool,
    problem: BucketProblem,
    said: str,
) -> None:
    monkeypatch.setenv("LEMUR_BUCKET_PATIENCE_S", "5")
    google.objects.read_only.update({"bucket"} if read_only else ())
    failures = check_clients(url)
    assert list(failures) == ALL
    assert {failure.problem for failure in failures.values() if failure} == {problem}
    found = {client: failure.reason for client, failure in failures.items() if failure}
    assert all(said in found[client] for client in ("files", "pyarrow", "leases", "epath")), found
    assert {text.partition("(")[0] for text in found.values()} == {found["files"].partition("(")[0]}, "said alike"
    assert not any("http" in text or "[" in text for text in found.values()), found


def test_a_bucket_that_answers_some_clients_only_is_said_for_those(google: Service) -> None:  # noqa: F811
    google.trouble(match="POST .*ifGenerationMatch", status=403, times=100)
    found = check_clients("gs://bucket/store")
    assert {client for client, why in found.items() if why} == {"leases"}


def test_there_is_one_sentence_a_failing_host_and_what_to_do() -> None:
    well: dict[str, AccessFailure | None] = dict.fromkeys(ALL)
    check = access("gs://b/store", {"head": well, "a": well})
    assert (check.status, check.required) == ("ok", True)
    assert (
        check.found
        == "gs://b/store: written, read and removed by files, pyarrow, leases, epath, tensorstore on 2 hosts"
    )
    assert (
        "add-iam-policy-binding gs://b " in access("gs://b/store", {"a": {"files": failure("gs://b answered 403")}}).fix
    )
    many = {f"host-{i}": {"files": failure("gs://b answered 403 (id 0)")} for i in range(64)}
    assert access("gs://b/x", many).found == (
        "gs://b/x: host-0, host-1, host-10, host-11 and 60 more: by files: gs://b answered 403 (id 0)"
    )
    alike = {
        "files": failure("gs://b answered 403 (Forbidden): ask"),
        "epath": failure("gs://b answered 403 (DENIED): ask"),
    }
    assert "by files, epath: gs://b answered 403 (Forbidden): ask" in access("gs://b/x", {"a": alike}).found
    gone, quiet = missing_bucket_error("gs://b/x"), timeout_error("gs://b", 15)
    assert "buckets create gs://b " in access("gs://b/x", {"a": {"files": failure(str(gone), gone.problem)}}).fix
    assert "curl" in access("gs://b/x", {"a": {"files": failure(str(quiet), quiet.problem)}}).fix
    refused = {**well, "files": failure("gs://b answered 403"), "leases": failure("gs://b answered 403")}
    refused["tensorstore"] = failure("no token")
    check = access("gs://b/store", {"head": well, "b": dict.fromkeys(ALL, failure("no network")), "a": refused})
    assert check.status == "missing"
    assert check.found == (
        "gs://b/store: a: by files, leases: gs://b answered 403, and by tensorstore: no token; "
        "b: by files, pyarrow, leases, epath, tensorstore: no network"
    )
    assert "gs://b " in check.fix
    assert "PutObject" in access("s3://b/x", {"a": {"files": failure("403")}}).fix


@pytest.mark.slow
def test_hosts_of_a_cluster_are_asked_where_their_driver_finds_the_bucket(
    google: Service,  # noqa: F811
    ray_local: str,
) -> None:
    import ray

    from lemur_ray.doctor.hosts.survey import ask

    if not ray.is_initialized():
        ray.init(address=ray_local, log_to_driver=False)
    (found,) = ask(bucket="gs://bucket/store").bucket.values()
    assert found == dict.fromkeys(ALL)
    (found,) = ask(bucket="gs://nowhere/store").bucket.values()
    assert found["files"]
    assert "there is no such bucket" in found["files"].reason
