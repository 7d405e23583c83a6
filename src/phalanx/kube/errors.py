"""Failures of a request to an API server, as three exceptions with one meaning each."""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from typing import Any

import msgspec

from phalanx.model.text.decoding import decode_json

__all__ = ["ApiError", "ConfigError", "ConnectionLost", "Fenced", "Unreachable", "api_error"]


class ApiError(Exception):
    """Error response of the API server (an HTTP status outside 2xx).

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
        #: False if the body is neither a Status nor the API server's own plain text: a proxy or load balancer
        #: answered, so a 404 is no information about the object.
        self.from_api_server = from_api_server

    def __str__(self) -> str:
        where = f" ({self.request})" if self.request else ""
        return f"{self.status} {self.reason}: {self.message}{where}"

    @property
    def gone(self) -> bool:
        """Whether the resourceVersion or continue token has expired, so that a new list is needed."""
        return self.status == 410 or self.reason in ("Gone", "Expired")

    @property
    def namespace_terminating(self) -> bool:
        """Return whether an object was refused because its namespace is being deleted."""
        causes = self.details.get("causes")
        is_cause = isinstance(causes, list) and any(
            isinstance(cause, dict) and cause.get("reason") == "NamespaceTerminating" for cause in causes
        )
        return self.status == 403 and (is_cause or "being terminated" in self.message)


class ConnectionLost(Exception):  # noqa: N818 - an event, like BrokenPipe, not always an error
    """Request without a response, or with an incomplete one. If the request was a write, its outcome is unknown."""


class Unreachable(ConnectionLost):
    """Request for which no connection was possible, so nothing was sent: every verb can be repeated safely."""


class Fenced(Unreachable):
    """Write that was not sent because the lease of this process has expired."""


class ConfigError(Exception):
    """Error for an unusable kubeconfig or credential; the text names the file and the entry."""


# The words of the API server itself, for responses without a word in their body.
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
    """Parse a Retry-After header in either of its forms (RFC 9110 section 10.2.3); None if absent or not
    understood."""
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
    """Return the ApiError of an error response. ``now`` (Unix seconds) is used for a Retry-After that is a date."""
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
        # kube-apiserver sends this line instead of a Status for paths that it does not serve.
        from_api_server=text.startswith("404 page not found"),
    )


def status_error(
    status: Mapping[str, Any], code: int = 0, retry_after: float | None = None, *, request: str = ""
) -> ApiError:
    """Return the ApiError of a decoded ``kind: Status`` object (an error body, or the object of an ERROR event)."""
    details = status.get("details")
    details = details if isinstance(details, dict) else {}
    seconds = details.get("retryAfterSeconds")
    if retry_after is None and isinstance(seconds, int) and seconds > 0:
        retry_after = float(seconds)
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
