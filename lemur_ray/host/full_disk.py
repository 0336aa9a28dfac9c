"""Recognises errors that mean a full disk."""

import errno


def is_full_disk(error: BaseException) -> bool:
    """Whether ``error`` is an OSError for a full disk or a used-up disk quota."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
