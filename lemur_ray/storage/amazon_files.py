"""The fsspec file system of ``s3://``: s3fs with timeouts and errors that advise the user, without a listing cache.

AWS_ENDPOINT_URL selects another server than Amazon's."""

from typing import Any

import aiohttp
from botocore.exceptions import BotoCoreError
from s3fs.core import S3FileSystem

from lemur_ray.storage.retry_policy import (
    ADVICE_BY_CODE,
    BucketError,
    BucketProblem,
    idle_timeout_s,
    refusal_error,
    with_deadline,
)

_READS = 3  # attempts to read the body of an object


class AmazonFiles(S3FileSystem):
    """The file system of ``s3://``, with the arguments of ``S3FileSystem``; ``storage.file_system`` registers it."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        kwargs.setdefault("use_listings_cache", False)
        deadlines = {
            "connect_timeout": idle_timeout_s(),
            "read_timeout": idle_timeout_s(),
            "retries": {"mode": "standard", "max_attempts": 2},
        }
        kwargs["config_kwargs"] = deadlines | (kwargs.get("config_kwargs") or {})
        super().__init__(*args, **kwargs)

    async def read_version(self, bucket: str, key: str) -> tuple[bytes, str]:
        """Content and ETag (version) of the object ``key`` in ``bucket``. The body arrives after the response headers,
        where s3fs does not retry, so truncated reads are repeated here. Raises FileNotFoundError if there is no object,
        BucketError if the bucket fails."""
        where, read = f"s3://{bucket}", 0
        while True:
            answer = await self._call_s3("get_object", Bucket=bucket, Key=key)
            try:
                return bytes(await with_deadline(answer["Body"].read(), where)), str(answer["ETag"])
            except (BotoCoreError, aiohttp.ClientError) as error:
                if (read := read + 1) == _READS:
                    raise BucketError(
                        f"{where} broke off while it was read ({type(error).__name__}: {error}): look whether the "
                        "network is up, then run the same command again"
                    ).of_kind(BucketProblem.SILENT) from error

    async def _call_s3(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Send a request with s3fs's and botocore's retries. Raises BucketError, FileNotFoundError, FileExistsError."""
        where = f"s3://{kwargs.get('Bucket', '')}"
        body = kwargs.get("Body")
        try:
            call = super()._call_s3(method, *args, **kwargs)
            return await with_deadline(call, where, len(body) if isinstance(body, bytes) else 0)
        except (FileNotFoundError, FileExistsError):
            raise
        except BotoCoreError as error:
            raise BucketError(
                f"{where} cannot be reached ({type(error).__name__}: {error}): look whether the network is up, and "
                "which credentials and region this host has, then run the same command again"
            ).of_kind(BucketProblem.SILENT) from error
        except OSError as error:
            answer = getattr(error.__cause__, "response", None)
            status = (answer or {}).get("ResponseMetadata", {}).get("HTTPStatusCode")
            name = (answer or {}).get("Error", {}).get("Code", "")
            if status in (401, 403, 301, 429) or (status or 0) >= 500 or name in ADVICE_BY_CODE:
                raise refusal_error(where, status, f"{name} {error}", name) from error
            raise
