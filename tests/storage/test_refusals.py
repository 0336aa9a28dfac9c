"""What a bucket refuses is one sentence that says what to do, whatever its client calls it."""

from typing import Any

import fsspec
import pytest
from botocore.exceptions import ClientError
from gcsfs.core import GCSFileSystem
from google.auth.exceptions import RefreshError
from s3fs.core import S3FileSystem
from s3fs.errors import translate_boto_error

from lemur_ray.storage.file_system import file_system
from lemur_ray.storage.published_folder import check_writable, output_file
from lemur_ray.storage.retry_policy import BucketError
from tests.storage.bucket_server import Service


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (401, r"gs://bucket answered 401 .*credentials are missing or have expired: log in again"),
        (403, r"gs://bucket answered 403 .*these credentials may not do that: give them the right to read and write"),
    ],
)
def test_what_google_refuses_says_what_to_do(
    google: Service, monkeypatch: pytest.MonkeyPatch, status: int, said: str
) -> None:
    monkeypatch.setenv("LEMUR_BUCKET_PATIENCE_S", "30")
    fsspec.filesystem("gs").clear_instance_cache()
    google.trouble(status=status, times=10**6)
    fs, path = file_system("gs://bucket/folder/a")
    for ask in (fs.cat_file, fs.info, fs.find, lambda there: fs.pipe_file(there, b"x")):
        with pytest.raises(BucketError, match=said):
            ask(path)
    with pytest.raises(BucketError, match=said):
        check_writable("gs://bucket/folder")


def test_credentials_that_cannot_be_renewed_are_a_sentence_that_knows_of_clocks(
    google: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def expired(*_: Any, **__: Any) -> None:
        raise RefreshError("invalid_grant: Invalid JWT: Token must be a short-lived token; check iat and exp values")

    monkeypatch.setattr(GCSFileSystem, "_request", expired)  # whose own tries take half a minute
    fs, path = file_system("gs://bucket/a")
    with pytest.raises(
        BucketError, match=r"gs://bucket: .*cannot be used \(invalid_grant.*: log in again, .*its clock"
    ):
        fs.cat_file(path)


@pytest.mark.parametrize(
    ("status", "code", "said"),
    [
        (403, "AccessDenied", "these credentials may not do that: give them the right"),
        (400, "ExpiredToken", "its credentials have expired: log in again"),
        (403, "RequestTimeTooSkewed", r"the clock of this host is wrong: let it be set \(NTP\)"),
        (301, "PermanentRedirect", "the bucket lies in another region: set AWS_REGION to it"),
        (400, "AuthorizationHeaderMalformed", "the bucket lies in another region: set AWS_REGION to it"),
        (503, "SlowDown", "the service is in trouble: run the same command again later"),
    ],
)
def test_what_amazon_refuses_says_what_to_do(
    amazon: str, monkeypatch: pytest.MonkeyPatch, status: int, code: str, said: str
) -> None:
    async def refused(self: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        about = {"Error": {"Code": code, "Message": "as it says"}, "ResponseMetadata": {"HTTPStatusCode": status}}
        raise translate_boto_error(ClientError(about, method))  # type: ignore[arg-type]

    monkeypatch.setattr(S3FileSystem, "_call_s3", refused)
    fs, path = file_system(f"{amazon}/folder/a")
    with pytest.raises(BucketError, match=rf"s3://bucket-\w+ answered {status} \({code} .*as it says\): {said}"):
        fs.cat_file(path)


def test_a_file_is_made_where_it_may_be_and_stands_there_with_what_is_made_beside_it(google: Service) -> None:
    fs, there = file_system("gs://bucket/made/out.jsonl")
    with output_file("gs://bucket/made/out.jsonl", beside=(".json",)) as path:
        path.write_text("lines")
        path.with_name("out.jsonl.json").write_text("counts")
        assert google.objects.names("bucket") == []
    assert (fs.cat_file(there), fs.cat_file(f"{there}.json")) == (b"lines", b"counts")
    with pytest.raises(BucketError, match="there is no such bucket: make it first"), output_file("gs://none/x.jsonl"):
        raise AssertionError("was begun")
