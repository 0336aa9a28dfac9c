"""Recognises errors of a full disk."""

from __future__ import annotations

import errno


def is_full_disk(error: BaseException) -> bool:
    """Whether a write failed because its disk, or its user's share of that (a quota), has no room left."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)
