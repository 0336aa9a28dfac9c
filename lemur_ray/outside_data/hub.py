"""Remote files of data sets on the Hugging Face Hub (or at HF_ENDPOINT), through ``huggingface_hub``.

The library's own download does not resume in a new process, so only its metadata query and its ranged reading are
used. It takes the token from HF_TOKEN or ``hf auth login``."""

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

import httpx2
from huggingface_hub import HfApi, errors, get_token
from huggingface_hub.file_download import HfFileMetadata, get_hf_file_metadata, hf_hub_url, http_get
from huggingface_hub.hf_api import RepoFile
from huggingface_hub.utils import build_hf_headers, disable_progress_bars

from lemur_ray.outside_data.http_ranges import HttpRanges, asked_wait_s
from lemur_ray.outside_data.source import Address, FetchError, fixed_part, matches
from lemur_ray.outside_data.transfer import Interrupted, RemoteInfo

DEFAULT_ENDPOINT = "https://huggingface.co"


def endpoint() -> str:
    """URL of the Hugging Face Hub without a trailing slash: HF_ENDPOINT, else the public one."""
    return (os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")


def gated(repo: str) -> str:
    """Message on how to get access to the gated data set ``repo`` (OWNER/NAME), with or without a token."""
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
    """A ``transfer.Remote``: a file of a data set on the Hub, at one commit."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._url = hf_hub_url(
            address.repo, address.file, repo_type="dataset", revision=address.commit, endpoint=endpoint()
        )
        if not sys.stderr.isatty():
            disable_progress_bars()

    def look(self) -> RemoteInfo:
        metadata = self.metadata()
        return RemoteInfo(metadata.size, metadata.etag or "", metadata.commit_hash or "")

    def metadata(self) -> HfFileMetadata:
        """Size, version and location of the file. Raises Interrupted for a temporary failure, FetchError if the file is
        missing or not accessible, or of another commit."""
        with _translated_errors(self._address):
            metadata = get_hf_file_metadata(self._url, headers=build_hf_headers())  # the caller asks again
        revision = metadata.commit_hash or ""
        if self._address.is_pinned and revision != self._address.commit:
            raise FetchError(
                f"{endpoint()} serves commit {revision or 'unknown'} of {self._address.repo}, expected "
                f"{self._address.commit}: it is no Hub or a mirror of another version (HF_ENDPOINT)"
            )
        return metadata

    def append(self, file: BinaryIO, have: int, info: RemoteInfo) -> None:
        """Download what follows the first ``have`` bytes into ``file``, which is positioned there. Raises Interrupted
        for a temporary failure (try again), FetchError for any other."""
        with _translated_errors(self._address):
            http_get(
                self._url, file, resume_size=have, headers=build_hf_headers(), expected_size=info.size,
                displayed_filename=self._address.file,
            )  # fmt: skip


class HubRanges:
    """``ByteRanges`` of a file of the Hub at one commit; queries its location once, and again when that expires.
    ``size``: bytes as listed, -1: unknown."""

    def __init__(self, address: Address, size: int = -1, version: str = "") -> None:
        self._address, self.size, self.version = address, size, version
        self._file = self._located()

    def fetch(self, begin: int, end: int) -> bytes:
        try:
            return self._file.fetch(begin, end)
        except FetchError:
            self._file.close()
            self._file = self._located()
            return self._file.fetch(begin, end)

    def close(self) -> None:
        self._file.close()

    def _located(self) -> HttpRanges:
        seen = HubFile(self._address).metadata()
        same_host = urlsplit(seen.location).netloc == urlsplit(endpoint()).netloc
        if self.size < 0:
            self.size = -1 if seen.size is None else seen.size
        file = HttpRanges(seen.location, self.size, headers=build_hf_headers() if same_host else None)
        self.size = file.size
        return file


def hub_address(uri: str) -> Address:
    """Parse ``hf://datasets/OWNER/NAME[@REVISION]/PATTERN``. Raises ValueError for another form."""
    match = re.fullmatch(r"hf://datasets/([\w.-]+/[\w.-]+?)(?:@([^/]+))?/(.+)", uri)
    if not match:
        raise ValueError(f"{uri}: expected hf://datasets/OWNER/NAME[@REVISION]/PATTERN")
    repo, revision, file = match.groups()
    return Address("hub", uri, repo, unquote(revision or "main"), file)


def list_hub_files(uri: str) -> list[tuple[str, int, str]]:
    """(URI with its commit, bytes, hash of the content) of every file that matches, sorted by name. The revision is
    resolved once, then every URI names its commit. Raises ValueError as ``hub_address``, FetchError if the data set is
    missing or not accessible, Interrupted for a temporary failure."""
    address = hub_address(uri)
    with _translated_errors(address):
        hub = HfApi(endpoint=endpoint())
        commit = str(hub.repo_info(address.repo, revision=address.commit, repo_type="dataset", timeout=60).sha)
        folder = fixed_part(address.file).rpartition("/")[0]
        tree = hub.list_repo_tree(address.repo, folder or None, recursive=True, revision=commit, repo_type="dataset")
        files = [entry for entry in tree if isinstance(entry, RepoFile) and matches(entry.path, address.file)]
    root = f"hf://datasets/{address.repo}@{commit}"
    return [
        (f"{root}/{file.path}", file.size, file.lfs.sha256 if file.lfs else file.blob_id)
        for file in sorted(files, key=lambda file: file.path.split("/"))
    ]


@contextmanager
def _translated_errors(address: Address) -> Iterator[None]:
    """Translate the client's errors into FetchError and Interrupted."""
    repo, commit, file = address.repo, address.commit, address.file
    try:
        yield
    except (errors.RevisionNotFoundError, errors.RemoteEntryNotFoundError) as error:
        raise FetchError(
            f"{endpoint()} has no {file} in {repo} at {commit}: its owners removed or renamed it; a copy that you "
            "bring is checked in the same way"
        ) from error
    except (errors.GatedRepoError, errors.RepositoryNotFoundError) as error:
        status = error.response.status_code
        none = f"{endpoint()} has no data set {repo}, or does not show it to you"
        raise FetchError(none if status == 404 else gated(repo)) from error
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        if status in (401, 403):
            raise FetchError(gated(repo)) from error
        if status in (408, 429) or status >= 500:
            raise Interrupted(f"{endpoint()} answered {status}", asked_wait_s(error.response.headers)) from error
        raise FetchError(f"{endpoint()} answered {status} for {file} of {repo}") from error
    except errors.OfflineModeIsEnabled as error:
        raise FetchError("HF_HUB_OFFLINE is set: unset it, or bring the file") from error
    except errors.FileMetadataError as error:
        raise FetchError(f"{endpoint()} does not answer as a Hub does (HF_ENDPOINT): {error}") from error
    except httpx2.HTTPError as error:
        raise Interrupted(f"{endpoint()}: {type(error).__name__}: {error}") from error
    except OSError as error:
        if error.errno is None and "Consistency check" in str(error):
            raise Interrupted(f"{file} of {repo} was cut short") from error
        raise
