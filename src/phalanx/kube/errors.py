"""What can go wrong between us and an API server, as three exceptions with one meaning each."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from phalanx.model.text.decoding import decode_json

__all__ = ["ApiError", "ConfigError", "ConnectionLost", "Fenced", "Unreachable", "api_error"]


class ApiError(Exception):
    """The server answered, and the answer is no (an HTTP status outside 2xx).

    ``reason`` is the machine-readable word of the Status body ("NotFound", "Conflict", "Expired", ...), or a
    word for the HTTP status when a proxy answered instead of an API server. ``retry_after`` is in seconds,
    from the Retry-After header or the Status details, and None when the server named no time.
    """

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        *,
        retry_after: float | None = None,
        details: Mapping[str, Any] | None = None,
        request: str = "",
        from_api_server: bool = True,
    ) -> None:
        super().__init__(status, reason, message)
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after
        self.details: dict[str, Any] = dict(details or {})
        self.request = request
        #: False when the body is neither a Status nor the API server's own plain text: a proxy or load
        #: balancer spoke, so a 404 says nothing about what exists.
        self.from_api_server = from_api_server

    def __str__(self) -> str:
        where = f" ({self.request})" if self.request else ""
        return f"{self.status} {self.reason}: {self.message}{where}"

    @property
    def gone(self) -> bool:
        """The resourceVersion or continue token is too old to go on from; list again."""
        return self.status == 410 or self.reason in ("Gone", "Expired")


class ConnectionLost(Exception):  # noqa: N818 - an event, like BrokenPipe, not always an error
    """No answer, or not all of it. If the request was a write, whether it happened is unknown."""


class Unreachable(ConnectionLost):
    """No connection could be made, so nothing was sent: a repeat is safe for every verb."""


class Fenced(Unreachable):
    """Nothing was sent, as this process may not write any more: its lease has run out."""


class ConfigError(Exception):
    """A kubeconfig or credential that cannot be used; the text names the file and the entry."""


# The words that an API server itself uses, for answers whose body carries none.
_REASONS: Mapping[int, str] = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    406: "NotAcceptable",
    409: "Conflict",
    410: "Expired",
    413: "RequestEntityTooLarge",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    502: "BadGateway",
    503: "ServiceUnavailable",
    504: "Timeout",
}
_PLAIN_TEXT_LIMIT = 400


def _seconds(header: str | None, now: float) -> float | None:
    """Retry-After in either of its forms (RFC 9110 section 10.2.3); None when absent or not understood."""
    if not header:
        return None
    try:
        return max(0.0, float(int(header[:20])))
    except ValueError:
        pass
    try:
        return max(0.0, parsedate_to_datetime(header).timestamp() - now)
    except (TypeError, ValueError):
        return None


def api_error(
    status: int, body: bytes, retry_after: str | None = None, *, request: str = "", now: float = 0.0
) -> ApiError:
    """Read an error answer. ``now`` (Unix seconds) is only used for a Retry-After given as a date."""
    wait = _seconds(retry_after, now)
    try:
        parsed: Any = decode_json(body)
    except msgspec.DecodeError:
        parsed = None
    if isinstance(parsed, dict) and parsed.get("kind") == "Status":
        return status_error(parsed, status, wait, request=request)
    text = body[:_PLAIN_TEXT_LIMIT].decode("utf-8", "replace").strip()
    return ApiError(
        status,
        _REASONS.get(status, "Unknown"),
        text or "no body",
        retry_after=wait,
        request=request,
        # kube-apiserver answers paths that it does not serve with this line instead of a Status.
        from_api_server=text.startswith("404 page not found"),
    )


def status_error(
    status: Mapping[str, Any], code: int = 0, retry_after: float | None = None, *, request: str = ""
) -> ApiError:
    """An ApiError from a decoded ``kind: Status`` object (an error body, or the object of an ERROR event)."""
    details = status.get("details")
    details = details if isinstance(details, dict) else {}
    named = details.get("retryAfterSeconds")
    if retry_after is None and isinstance(named, int) and named > 0:
        retry_after = float(named)
    own = status.get("code")
    code = code or (own if isinstance(own, int) else 500)
    return ApiError(
        code,
        str(status.get("reason") or _REASONS.get(code, "Unknown")),
        str(status.get("message") or "no message"),
        retry_after=retry_after,
        details=details,
        request=request,
    )
