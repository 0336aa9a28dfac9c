"""Remote files of data sets on the Hugging Face Hub (or at HF_ENDPOINT), through ``huggingface_hub``.

The library's own download does not resume in a new process, so only its metadata query and its ranged reading are
used. It takes the token from HF_TOKEN or ``hf auth login``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO

import httpx2
from huggingface_hub import get_token
from huggingface_hub.errors import (
    FileMetadataError,
    GatedRepoError,
    HfHubHTTPError,
    OfflineModeIsEnabled,
    RemoteEntryNotFoundError,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import get_hf_file_metadata, hf_hub_url, http_get
from huggingface_hub.utils import build_hf_headers, disable_progress_bars

from lemur_ray.outside_data.source import Address, FetchError
from lemur_ray.outside_data.transfer import Interrupted, RemoteInfo

DEFAULT_ENDPOINT = "https://huggingface.co"


def endpoint() -> str:
    """URL of the Hub."""
    return (os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")


def gated(repo: str) -> str:
    """What to do about a gated data set, for people."""
    page = f"{endpoint()}/datasets/{repo}"
    if get_token() is None:
        return (
            f"{repo} is gated (or private): accept its terms at {page} and set HF_TOKEN to a token of the account that "
            "did"
        )
    return (
        f"{repo} is gated and the account of your token may not read it: accept its terms at {page} with that account"
    )


class HubFile:
    """A file of a data set at one commit."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._url = hf_hub_url(
            address.repo, address.file, repo_type="dataset", revision=address.commit, endpoint=endpoint()
        )
        if not sys.stderr.isatty():
            disable_progress_bars()

    def look(self) -> RemoteInfo:
        """See ``Remote``."""
        with self._translated_errors():
            metadata = get_hf_file_metadata(self._url, headers=build_hf_headers())  # ``transfer`` asks again
        revision = metadata.commit_hash or ""
        if self._address.is_pinned and revision != self._address.commit:
            raise FetchError(
                f"{endpoint()} serves commit {revision or 'unknown'} of {self._address.repo}, expected "
                f"{self._address.commit}: it is no Hub or a mirror of another version (HF_ENDPOINT)"
            )
        return RemoteInfo(metadata.size, metadata.etag or "", revision)

    def append(self, file: BinaryIO, have: int, info: RemoteInfo) -> None:
        """See ``Remote``."""
        with self._translated_errors():
            http_get(
                self._url, file, resume_size=have, headers=build_hf_headers(), expected_size=info.size,
                displayed_filename=self._address.file,
            )  # fmt: skip

    @contextmanager
    def _translated_errors(self) -> Iterator[None]:
        """Translate the client's errors into FetchError and Interrupted."""
        repo, commit, file = self._address.repo, self._address.commit, self._address.file
        try:
            yield
        except (RevisionNotFoundError, RemoteEntryNotFoundError) as error:
            raise FetchError(
                f"{endpoint()} has no {file} in {repo} at {commit}: its owners removed or renamed it; a copy that you "
                "bring is checked in the same way"
            ) from error
        except (GatedRepoError, RepositoryNotFoundError) as error:
            status = error.response.status_code
            none = f"{endpoint()} has no data set {repo}, or does not show it to you"
            raise FetchError(none if status == 404 else gated(repo)) from error
        except HfHubHTTPError as error:
            status = error.response.status_code
            if status in (401, 403):
                raise FetchError(gated(repo)) from error
            if status in (408, 429) or status >= 500:
                asked = error.response.headers.get("Retry-After", "")
                raise Interrupted(
                    f"{endpoint()} answered {status}", float(asked) if asked.isdigit() else 0.0
                ) from error
            raise FetchError(f"{endpoint()} answered {status} for {file} of {repo}") from error
        except OfflineModeIsEnabled as error:
            raise FetchError("HF_HUB_OFFLINE is set: unset it, or bring the file") from error
        except FileMetadataError as error:
            raise FetchError(f"{endpoint()} does not answer as a Hub does (HF_ENDPOINT): {error}") from error
        except httpx2.HTTPError as error:
            raise Interrupted(f"{endpoint()}: {type(error).__name__}: {error}") from error
        except OSError as error:
            if error.errno is None and "Consistency check" in str(error):
                raise Interrupted(f"{file} of {repo} was cut short") from error
            raise
