"""Checks, from attempts made on each host, whether every host can use a bucket through each client that a job uses."""

import re
from collections.abc import Mapping

from lemur_ray.doctor.hosts.grouped_findings import by_reason
from lemur_ray.doctor.machine import Check
from lemur_ray.storage.bucket_access import AccessFailure
from lemur_ray.storage.retry_policy import BucketProblem


def access(url: str, attempts: Mapping[str, Mapping[str, AccessFailure | None]]) -> Check:
    """The check whether all hosts can use the bucket ``url``. ``attempts``: host -> client library -> why writing,
    reading and removing an object failed; None for success."""
    tried = {host: {c: why for c, why in clients.items() if why is not None} for host, clients in attempts.items()}
    failures = {host: failed for host, failed in tried.items() if failed}
    if not failures:
        clients = ", ".join(dict.fromkeys(client for of_host in attempts.values() for client in of_host))
        summary = f"{url}: written, read and removed by {clients or 'nobody'} on {len(attempts)} hosts"
        return Check("bucket", "ok", summary, required=True)
    problems = {failure.problem for failed in failures.values() for failure in failed.values()}
    reasons = by_reason({host: _sentence(failed) for host, failed in failures.items()})
    return Check("bucket", "missing", f"{url}: {reasons}", _fix(url, problems), True)


def _sentence(failures: Mapping[str, AccessFailure]) -> str:
    """The failures of one host as a sentence; clients with the same reason are listed together."""
    clients: dict[str, list[str]] = {}
    reasons: dict[str, str] = {}
    for client, failure in failures.items():
        key = re.sub(r"\(.*?\)", "", failure.reason)  # details in brackets differ between clients
        clients.setdefault(key, []).append(client)
        reasons.setdefault(key, failure.reason)
    return ", and ".join(f"by {', '.join(names)}: {reasons[key]}" for key, names in clients.items())


def _fix(url: str, problems: set[BucketProblem]) -> str:
    scheme, _, rest = url.partition("://")
    name = rest.partition("/")[0]
    if BucketProblem.ABSENT in problems:
        if scheme == "s3":
            return f"aws s3 mb s3://{name} --region REGION"
        return f"gcloud storage buckets create gs://{name} --location REGION   # that of the hosts"
    if BucketProblem.SILENT in problems:
        endpoint = "s3.REGION.amazonaws.com" if scheme == "s3" else "storage.googleapis.com"
        return f"curl -sI https://{endpoint}   # on such a host: look at its network policy, DNS and routes"
    if scheme == "s3":
        return (
            f"give the hosts' role s3:ListBucket, GetObject, PutObject and DeleteObject on {name}, and set AWS_REGION"
        )
    member = "--member MEMBER --role roles/storage.objectUser   # MEMBER: the service account of the hosts"
    return f"gcloud storage buckets add-iam-policy-binding gs://{name} {member}"
