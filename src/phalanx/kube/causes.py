"""Causes of failed system calls in messages to users."""

from __future__ import annotations

import os
import ssl


def cause_text(error: Exception) -> str:
    """Return the cause of an error without errno, file name and address, which the message names itself.

    The text of an OSError of Python is `[Errno 2] No such file or directory: 'x'`.
    """
    if not isinstance(error, OSError) or isinstance(error, ssl.SSLError):
        return str(error)
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno)
    return error.strerror or str(error) or type(error).__name__
