"""Fault injection for tests of API clients.

    server.faults.answer("POST", r"/binding$", 409, times=3)
    server.faults.drop("POST", r"/binding$", after_write=True)
    server.faults.cut_watches(r"/pods$")

Rules are matched in the order of their addition; each is removed after `times` requests.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from phalanx_local.errors import StatusError


@dataclass(slots=True)
class FaultRule:
    """Injected fault for the next `times` requests whose method and path match (`*` is every method)."""

    method: str
    path: re.Pattern[str]
    times: int
    status: int = 0
    reason: str = ""
    message: str = ""
    retry_after: int | None = None
    after_write: bool = False
    drop: bool = False
    delay: float = 0.0
    seen: int = 0

    def error(self) -> StatusError:
        """Return the error response with which this fault rule answers."""
        details: dict[str, object] = {}
        headers = {}
        if self.retry_after is not None:
            details["retryAfterSeconds"] = self.retry_after
            headers["Retry-After"] = str(self.retry_after)
        return StatusError(self.status, self.reason, self.message, details, headers)


_REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    409: "Conflict",
    410: "Expired",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class Faults:
    """Active fault rules. All methods can be called while the server runs, on its event loop."""

    def __init__(self) -> None:
        self.rules: list[FaultRule] = []
        self._cut: Callable[[re.Pattern[str], StatusError | None], int] | None = None
        self._expire: Callable[[], None] | None = None

    def wire(self, cut: Callable[[re.Pattern[str], StatusError | None], int], expire: Callable[[], None]) -> None:
        """Set the functions by which faults end watches and expire the history of the running server."""
        self._cut, self._expire = cut, expire

    def answer(
        self,
        method: str,
        path: str,
        status: int,
        *,
        times: int = 1,
        retry_after: int | None = None,
        reason: str | None = None,
        message: str = "injected fault",
        after_write: bool = False,
    ) -> FaultRule:
        """Answer matching requests with an error Status; with `after_write` only after the request took effect."""
        rule = FaultRule(
            method.upper(),
            re.compile(path),
            times,
            status=status,
            reason=reason if reason is not None else _REASONS.get(status, "InternalError"),
            message=message,
            retry_after=retry_after,
            after_write=after_write,
        )
        return self._add(rule)

    def drop(self, method: str, path: str, *, times: int = 1, after_write: bool = False) -> FaultRule:
        """Close the connection of matching requests without a response, before or after the request took effect."""
        return self._add(FaultRule(method.upper(), re.compile(path), times, drop=True, after_write=after_write))

    def delay(self, method: str, path: str, seconds: float, *, times: int = 1) -> FaultRule:
        """Delay matching requests before the server processes them."""
        return self._add(FaultRule(method.upper(), re.compile(path), times, delay=seconds))

    def cut_watches(self, path: str = "", *, expired: bool = False) -> int:
        """End open watches whose path matches, optionally with an in-stream 410. Return their number."""
        assert self._cut is not None, "the server is not started"
        error = StatusError(410, "Expired", "too old resource version") if expired else None
        return self._cut(re.compile(path), error)

    def expire_history(self) -> None:
        """Make every earlier resourceVersion and continue token too old, like compaction."""
        assert self._expire is not None, "the server is not started"
        self._expire()

    def clear(self) -> None:
        self.rules.clear()

    def match(self, method: str, path: str) -> FaultRule | None:
        """Return the fault rule for a request and count one use of the rule; None if no rule matches."""
        for index, rule in enumerate(self.rules):
            if rule.method in ("*", method) and rule.path.search(path):
                rule.seen += 1
                rule.times -= 1
                if rule.times <= 0:
                    del self.rules[index]
                return rule
        return None

    def _add(self, rule: FaultRule) -> FaultRule:
        self.rules.append(rule)
        return rule
