"""Audit log of the API server: one JSON line per request."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from phalanx_local.authentication.authenticator import User
from phalanx_local.clock import Clock, micro_timestamp
from phalanx_local.objects import encode


class Audit:
    """Audit log in a file that only the file's owner can read; a watch is recorded at its end."""

    def __init__(self, path: Path, clock: Clock) -> None:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._file = os.fdopen(descriptor, "ab", buffering=0)
        self._clock = clock

    def note(
        self,
        method: str,
        uri: str,
        user: User | None,
        status: int,
        headers: Mapping[str, str],
        acting: User | None = None,
    ) -> None:
        """Write an audit line about a request of `user`, who impersonates `acting`."""
        entry = {
            "time": micro_timestamp(self._clock.now()),
            "user": user.name if user is not None else "",
            "userAgent": headers.get("User-Agent", ""),
            "method": method,
            "uri": uri,
            "code": status,
        }
        if acting is not None and acting is not user:
            entry["impersonatedUser"] = acting.name
        self._file.write(encode(entry) + b"\n")

    def close(self) -> None:
        self._file.close()
