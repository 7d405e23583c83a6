"""Errors of the API: each is a metav1.Status with the message of kube-apiserver.

kubectl and client-go read `reason`, `details.causes` and `details.retryAfterSeconds`, and print `message`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from phalanx_local.objects import Json, encode


class StatusCause(Protocol):
    """Interface of a cause in an Invalid error; phalanx_local.validation.FieldError implements it."""

    @property
    def field(self) -> str: ...
    @property
    def reason(self) -> str: ...
    @property
    def message(self) -> str: ...


class FieldCause(NamedTuple):
    """Invalid field of a request, as a cause in the error; `reason` is one of metav1's FieldValue... constants."""

    field: str
    reason: str
    message: str


def required(field: str, detail: str = "") -> FieldCause:
    return FieldCause(field, "FieldValueRequired", f"Required value: {detail}" if detail else "Required value")


def wrong_value(field: str, value: object, detail: str) -> FieldCause:
    return FieldCause(field, "FieldValueInvalid", f"Invalid value: {encode(value).decode()}: {detail}")


def forbidden_field(field: str, detail: str) -> FieldCause:
    return FieldCause(field, "FieldValueForbidden", f"Forbidden: {detail}")


def unsupported_value(field: str, value: object, supported: Sequence[str]) -> FieldCause:
    listed = ", ".join(f'"{item}"' for item in supported)
    text = f"Unsupported value: {encode(value).decode()}: supported values: {listed}"
    return FieldCause(field, "FieldValueNotSupported", text)


class Qualified(Protocol):
    """Interface of a resource that error messages name: `pods`, `podgroups.scheduling.volcano.sh`."""

    @property
    def group(self) -> str: ...
    @property
    def plural(self) -> str: ...
    @property
    def kind(self) -> str: ...


class StatusError(Exception):
    """Rejected request; `status` is the body of the response."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Json | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.details = details
        self.headers = headers or {}
        self.list_meta: Json = {}

    @property
    def status(self) -> Json:
        body: Json = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.list_meta,
            "status": "Failure",
            "message": str(self),
        }
        if self.reason:
            body["reason"] = self.reason
        if self.details is not None:
            body["details"] = self.details
        body["code"] = self.code
        return body


def qualified(resource: Qualified) -> str:
    """Return a resource's name for error messages: `plural` for the core group, `plural.group` for other groups."""
    return f"{resource.plural}.{resource.group}" if resource.group else resource.plural


def _details(resource: Qualified, name: str) -> Json:
    details: Json = {"name": name}
    if resource.group:
        details["group"] = resource.group
    details["kind"] = resource.plural
    return details


def not_found(resource: Qualified, name: str) -> StatusError:
    return StatusError(404, "NotFound", f'{qualified(resource)} "{name}" not found', _details(resource, name))


def already_exists(resource: Qualified, name: str) -> StatusError:
    text = f'{qualified(resource)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", text, _details(resource, name))


def conflict(resource: Qualified, name: str, why: str) -> StatusError:
    text = f'Operation cannot be fulfilled on {qualified(resource)} "{name}": {why}'
    return StatusError(409, "Conflict", text, _details(resource, name))


def stale(resource: Qualified, name: str) -> StatusError:
    """Return the 409 for an update with a resourceVersion that is not the latest."""
    why = "the object has been modified; please apply your changes to the latest version and try again"
    return conflict(resource, name, why)


def apply_conflict(message: str, causes: Sequence[tuple[str, str]]) -> StatusError:
    """Return the 409 for a server-side apply that changes fields of other managers; causes are (path, sentence)."""
    listed = [{"reason": "FieldManagerConflict", "message": text, "field": path} for path, text in causes]
    return StatusError(409, "Conflict", message, {"causes": listed})


def bad_patch(message: str, code: int) -> StatusError:
    """Return the error for a patch: malformed (400), not applicable to the object (422), or an internal error in
    kube-apiserver too (500)."""
    reasons = {400: "BadRequest", 413: "RequestEntityTooLarge", 422: "Invalid"}
    if code == 422:
        # Upstream does not name the operation that failed.
        message = "the server rejected our request due to an error in our request"
    return StatusError(code, reasons.get(code, ""), message, {} if code == 422 else None)


def forbidden(resource: Qualified, name: str, why: str, causes: list[Json] | None = None) -> StatusError:
    details = _details(resource, name)
    if causes:
        details["causes"] = causes
    subject = f'{qualified(resource)} "{name}"' if name else qualified(resource)
    return StatusError(403, "Forbidden", f"{subject} is forbidden: {why}", details)


def invalid(resource: Qualified, name: str, causes: Sequence[StatusCause]) -> StatusError:
    """Return the 422 for an object with invalid fields, one cause per field; the message joins them like
    kube-apiserver."""
    texts = [f"{cause.field}: {cause.message}" if cause.field else cause.message for cause in causes]
    joined = texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"
    kind = f"{resource.kind}.{resource.group}" if resource.group else resource.kind
    details: Json = {"name": name}
    if resource.group:
        details["group"] = resource.group
    details["kind"] = resource.kind
    details["causes"] = [
        {"reason": cause.reason, "message": cause.message, "field": cause.field} for cause in causes
    ]
    return StatusError(422, "Invalid", f'{kind} "{name}" is invalid: {joined}', details)


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


class UndecodableError(StatusError):
    """Error 400 for a body that does not decode as an object of the kind. In a patch, the error is a 422 about the
    patch."""

    def __init__(self, message: str) -> None:
        super().__init__(400, "BadRequest", message)

    def of_patch(self, patched: object) -> StatusError:
        shown = encode(encode(patched).decode()).decode()
        why = f"Invalid value: {shown}: {self}"
        cause = {"reason": "FieldValueInvalid", "message": why, "field": "patch"}
        return StatusError(422, "Invalid", f' "" is invalid: patch: {why}', {"causes": [cause]})


def invalid_options(kind: str, *causes: StatusCause) -> StatusError:
    """Return the 422 for invalid or contradictory query parameters (ListOptions, CreateOptions, ...)."""
    listed = [{"reason": item.reason, "message": item.message, "field": item.field} for item in causes]
    details: Json = {"group": "meta.k8s.io", "kind": kind, "causes": listed}
    text = ", ".join(f"{item.field}: {item.message}" for item in causes)
    return StatusError(422, "Invalid", f'{kind}.meta.k8s.io "" is invalid: {text}', details)


def no_such_resource() -> StatusError:
    """Return the 404 for an unknown resource of a served group."""
    return StatusError(404, "NotFound", "the server could not find the requested resource", {})


def nameless(code: int, message: str) -> StatusError:
    """Return an error without a reason, as kube-apiserver does in some places."""
    return StatusError(code, "", message)


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def method_not_allowed() -> StatusError:
    text = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", text, {})


def not_acceptable(accepted: Sequence[str]) -> StatusError:
    text = "only the following media types are accepted: " + ", ".join(accepted)
    return StatusError(406, "NotAcceptable", text, {})


def unsupported_media_type(accepted: Sequence[str]) -> StatusError:
    text = "the body of the request was in an unknown format - accepted media types include: "
    return StatusError(415, "UnsupportedMediaType", text + ", ".join(accepted))


def too_large(limit: int) -> StatusError:
    return StatusError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {limit}")


def expired(message: str) -> StatusError:
    return StatusError(410, "Expired", message)


def too_many_requests(message: str, retry_after: int, causes: list[Json] | None = None) -> StatusError:
    details: Json = {}
    if causes:
        details["causes"] = causes
    if retry_after:
        details["retryAfterSeconds"] = retry_after
    headers = {"Retry-After": str(retry_after)} if retry_after else {}
    return StatusError(429, "TooManyRequests", message, details, headers)


def revision_too_large(asked: int, current: int) -> StatusError:
    """Return the 504 for a list at a future revision; clients wait and retry the request."""
    details: Json = {
        "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
        "retryAfterSeconds": 1,
    }
    text = f"Timeout: Too large resource version: {asked}, current: {current}"
    return StatusError(504, "Timeout", text, details)


def internal(message: str) -> StatusError:
    text = f"Internal error occurred: {message}"
    return StatusError(500, "InternalError", text, {"causes": [{"message": message}]})


def unavailable(message: str) -> StatusError:
    return StatusError(503, "ServiceUnavailable", message, {"retryAfterSeconds": 1})
