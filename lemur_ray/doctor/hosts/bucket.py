"""Whether every host can use a bucket, through each client that a job uses: judged from what the hosts found."""

from __future__ import annotations

import re
from collections.abc import Mapping

from lemur_ray.doctor.hosts.grouped_findings import by_reason
from lemur_ray.doctor.machine import Check


def access(url: str, found: Mapping[str, Mapping[str, str]]) -> Check:
    """``found``: by host, why each client could not write, read and remove an object; empty where it could."""
    failing = {host: sentence for host, clients in found.items() if (sentence := _sentence(clients))}
    if not failing:
        clients = ", ".join(dict.fromkeys(client for of_host in found.values() for client in of_host))
        said = f"{url}: written, read and removed by {clients or 'nobody'} on {len(found)} hosts"
        return Check("bucket", "ok", said, required=True)
    return Check("bucket", "missing", f"{url}: {by_reason(failing)}", _fix(url, "".join(failing.values())), True)


def _sentence(clients: Mapping[str, str]) -> str:
    """Of one host, clients that fail alike together; empty where none does."""
    alike: dict[str, list[str]] = {}
    whole: dict[str, str] = {}
    for client, why in clients.items():
        if why:
            key = re.sub(r"\(.*?\)", "", why)  # what a service adds differs from client to client
            alike.setdefault(key, []).append(client)
            whole.setdefault(key, why)
    return ", and ".join(f"by {', '.join(names)}: {whole[key]}" for key, names in alike.items())


def _fix(url: str, said: str) -> str:
    scheme, _, rest = url.partition("://")
    name = rest.partition("/")[0]
    if "no such bucket" in said:
        if scheme == "s3":
            return f"aws s3 mb s3://{name} --region REGION"
        return f"gcloud storage buckets create gs://{name} --location REGION   # that of the hosts"
    if "did not answer" in said or "no answer" in said:
        there = "s3.REGION.amazonaws.com" if scheme == "s3" else "storage.googleapis.com"
        return f"curl -sI https://{there}   # on such a host: look at its network policy, DNS and routes"
    if scheme == "s3":
        return (
            f"give the hosts' role s3:ListBucket, GetObject, PutObject and DeleteObject on {name}, and set AWS_REGION"
        )
    member = "--member MEMBER --role roles/storage.objectUser   # MEMBER: the service account of the hosts"
    return f"gcloud storage buckets add-iam-policy-binding gs://{name} {member}"
