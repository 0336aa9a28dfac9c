"""Recognises errors that mean a full disk."""

from __future__ import annotations

import errno


def is_full_disk(error: BaseException) -> bool:
    """Whether ``error`` means that the disk is full or the user's disk quota is used up."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
