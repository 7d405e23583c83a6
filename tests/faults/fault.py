"""Faults: the requests that they match, and their effects."""

from __future__ import annotations

import enum
import os
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from .requests import Asked


class Watch(enum.Enum):
    """Ways in which a watch fails.

    CLOSED is a server's answer to a slow watcher, or a clean end; SILENT is a half-open connection: nothing
    arrives any more, not even its end; TRUNCATED ends in the middle of a line; GONE is 410 as an ERROR event.
    """

    CLOSED = "closed"
    RESET = "reset"
    SILENT = "silent"
    TRUNCATED = "truncated"
    GONE = "gone"


@dataclass
class Fault:
    """A fault in requests of a `verb` (`*`: all, `write`: those that change something) for a resource (a
    pattern): from the `nth` match on `times` times, or with a `probability` each.

    In this order: the request is delayed by `latency` seconds; with `status` it gets this answer, with `drop`
    its connection is cut, both before it has reached the server or, with `after`, when it has taken effect.
    `watch` is the fault of a watch after `lines` more lines.
    """

    verb: str = "*"
    resource: str = "*"
    nth: int = 1
    times: int = 1
    probability: float = 0.0
    latency: float = 0.0
    status: int = 0
    retry_after: int | None = None
    drop: bool = False
    after: bool = False
    watch: Watch | None = None
    lines: int = 0
    seen: int = field(default=0, init=False)
    struck: int = field(default=0, init=False)

    def strikes(self, request: Asked, draw: random.Random) -> bool:
        if self.watch is not None and request.verb != "watch":
            return False
        if self.verb == "write":
            if not request.writes:
                return False
        elif self.verb not in ("*", request.verb):
            return False
        if not fnmatchcase(request.resource, self.resource):
            return False
        self.seen += 1
        if self.probability:
            hit = self.struck < self.times and draw.random() < self.probability
        else:
            hit = self.nth <= self.seen < self.nth + self.times
        self.struck += hit
        return hit


ALWAYS = 10**9

REASONS = {
    403: "Forbidden",
    409: "Conflict",
    410: "Expired",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


def mixture(rate: float, times: int = 40) -> Sequence[Fault]:
    """Return a mixture of all faults; each kind has a maximum count, so that the disturbance ends."""
    return [
        Fault("*", probability=4 * rate, times=10 * times, latency=0.03),
        Fault("write", probability=rate, times=times, drop=True),
        Fault("write", probability=rate, times=times, drop=True, after=True),
        Fault("write", probability=rate, times=times, status=409),
        Fault("write", probability=rate, times=times, status=500),
        Fault("write", probability=rate, times=times, status=500, after=True),
        Fault("*", probability=rate, times=times, status=503),
        Fault("*", probability=rate, times=times, status=429, retry_after=1),
        Fault("list", probability=rate, times=times, status=410),
        *(
            Fault("watch", probability=2 * rate, times=times, watch=harm, lines=3)
            for harm in Watch
            if harm is not Watch.SILENT
        ),
        # The silence of a watch is noticed after two minutes: it has tests of its own.
    ]


def seeds(count: int) -> range:
    """Return one seed, or all of them with PHALANX_LONG=1: each takes three to ten seconds."""
    return range(count if os.environ.get("PHALANX_LONG") else 1)
