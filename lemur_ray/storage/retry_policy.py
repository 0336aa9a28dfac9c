"""Timeouts of requests to buckets, and errors of buckets with advice for the user; the same for every client."""

import asyncio
import os
from collections.abc import Awaitable
from enum import StrEnum
from typing import Any, TypeVar

from lemur_ray.host.exit_codes import ExitCode

_T = TypeVar("_T")

_PATIENCE_S = 100.0
_SLOWEST_BYTES_PER_S = 250_000
"""Slowest acceptable transfer: an upload's timeout is longer by its size divided by this."""


class BucketProblem(StrEnum):
    """Kind of a bucket error: no such bucket, no answer, a service in trouble or overloaded, or a refused request."""

    ABSENT = "absent"
    SILENT = "silent"
    BUSY = "busy"
    REFUSED = "refused"


class BucketError(OSError):
    """A bucket does not exist, does not answer or refuses a request: the message has advice, ``problem`` the kind."""

    problem = BucketProblem.REFUSED

    @property
    def exit_code(self) -> ExitCode:
        """Exit code of a job that this error ends: TRY_AGAIN if the problem may pass by itself, else NEEDS_PERSON."""
        passes = self.problem in (BucketProblem.SILENT, BucketProblem.BUSY)
        return ExitCode.TRY_AGAIN if passes else ExitCode.NEEDS_PERSON

    def of_kind(self, problem: BucketProblem) -> "BucketError":
        """Set ``problem`` and return this error."""
        self.problem = problem
        return self


def request_timeout_s() -> float:
    """Timeout in seconds of one request with all its retries: LEMUR_BUCKET_PATIENCE_S, default 100."""
    return float(os.environ.get("LEMUR_BUCKET_PATIENCE_S") or _PATIENCE_S)


def idle_timeout_s() -> float:
    """Seconds without data after which a request is retried: an eighth of ``request_timeout_s``, at least 0.5."""
    return max(0.5, request_timeout_s() / 8)


async def with_deadline(answer: Awaitable[_T], where: str, num_bytes: int = 0) -> _T:
    """Await ``answer`` and return its result. Raises BucketError that names ``where`` after ``request_timeout_s``, plus
    time for an upload of ``num_bytes``."""
    limit_s = request_timeout_s() + num_bytes / _SLOWEST_BYTES_PER_S
    try:
        return await asyncio.wait_for(answer, limit_s)
    except TimeoutError as error:
        raise timeout_error(where, limit_s) from error


def timeout_error(where: str, limit_s: float) -> BucketError:
    """BucketError for ``where``, a bucket that did not answer within ``limit_s`` seconds."""
    return BucketError(
        f"{where} did not answer within {limit_s:.0f} s: look whether the service and the network are up, then run the "
        "same command again"
    ).of_kind(BucketProblem.SILENT)


def refusal_error(where: str, code: Any, reason: str, name: str = "") -> BucketError:
    """BucketError for an error response of the bucket ``where``, with advice by HTTP status ``code``. ``reason``: the
    service's message. name: error name of the service, for statuses with several causes."""
    reason, status = " ".join(str(reason).split())[:200], int(code) if str(code).isdigit() else 0
    todo = ADVICE_BY_CODE.get(name) or {
        400: "it rejects the request: check whether the name of the bucket is right",
        401: "its credentials are missing or have expired: log in again, or give the host's service account access",
        403: "these credentials may not do that: give them the right to read and write objects there",
        404: "there is no such bucket: make it first, or correct its name",
        301: _REGION,
        429: "it limits the rate of requests, also after retries: wait, or use fewer hosts",
    }.get(status, "the service is in trouble: run the same command again later")
    problem = BucketProblem.REFUSED
    if name not in ADVICE_BY_CODE and status == 404:
        problem = BucketProblem.ABSENT
    elif name not in ADVICE_BY_CODE and (status in (408, 429) or status >= 500):
        problem = BucketProblem.BUSY
    return BucketError(f"{where} answered {code} ({reason}): {todo}").of_kind(problem)


_LOG_IN = "its credentials have expired: log in again, or give the host's service account access"
_REGION = "the bucket lies in another region: set AWS_REGION to it"
_CLOCK = "the clock of this host is wrong: let it be set (NTP); jobs/doctor.py --cluster compares those of all hosts"
ADVICE_BY_CODE = {
    **dict.fromkeys(("ExpiredToken", "ExpiredTokenException", "InvalidToken", "TokenRefreshRequired"), _LOG_IN),
    **dict.fromkeys(
        ("PermanentRedirect", "AuthorizationHeaderMalformed", "IllegalLocationConstraintException"), _REGION
    ),
    "RequestTimeTooSkewed": _CLOCK,
}
"""Advice for the user by Amazon's names of errors."""


def credentials_error(where: str, error: Exception) -> BucketError:
    """BucketError, with advice, for credentials that are missing or cannot be renewed. ``where``: the bucket;
    ``error``: the client's exception."""
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    return BucketError(
        f"{where}: this host's credentials cannot be used ({reason}): log in again, or give its service account "
        "access; where they are right, look whether its clock is"
    )


def missing_bucket_error(url: str) -> BucketError:
    """BucketError for a bucket that does not exist, with advice."""
    message = f"{url}: there is no such bucket: make it first, or correct its name"
    return BucketError(message).of_kind(BucketProblem.ABSENT)
