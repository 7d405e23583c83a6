"""AdmissionReview (admission.k8s.io/v1): the question that an API server asks, and our answer."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import msgspec

from phalanx.model.text.decoding import decode_json

API_VERSION = "admission.k8s.io/v1"


class ReviewError(ValueError):
    """What was sent is no question that can be answered; the text says why."""


class UserInfo(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class ReviewedResource(msgspec.Struct, frozen=True):
    group: str = ""
    resource: str = ""

    def __str__(self) -> str:
        """Written plural.group."""
        return f"{self.resource}.{self.group}".rstrip(".")


class ReviewRequest(msgspec.Struct, frozen=True, rename="camel"):
    """`object` is None for a deletion, `old_object` for a creation."""

    uid: str
    operation: str
    name: str = ""
    namespace: str = ""
    sub_resource: str = ""
    resource: ReviewedResource = ReviewedResource()
    dry_run: bool = False
    user_info: UserInfo = UserInfo()
    object: dict[str, Any] | None = None
    old_object: dict[str, Any] | None = None


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str = ""
    kind: str = ""
    request: ReviewRequest | None = None


class Denial(msgspec.Struct, frozen=True):
    """`code` 0 leaves it to the API server, as upstream does."""

    message: str
    code: int = 0
    reason: str = ""


def read_review(body: bytes) -> ReviewRequest:
    """The question. Raises ReviewError."""
    try:
        review = decode_json(body, _Review)
    except msgspec.DecodeError as error:
        raise ReviewError(f"the body is no AdmissionReview: {error}") from error
    if (review.api_version, review.kind) != (API_VERSION, "AdmissionReview"):
        found = f"{review.api_version[:60]}, Kind={review.kind[:60]}"
        raise ReviewError(f"expected {API_VERSION}, Kind=AdmissionReview, got {found}")
    if review.request is None or not review.request.uid:
        raise ReviewError("the AdmissionReview has no request with a uid")
    return review.request


def write_review(uid: str, patch: Sequence[object] = (), denial: Denial | None = None) -> bytes:
    """The answer: a denial, or yes, with a patch where there is something to fill in."""
    response: dict[str, Any] = {"uid": uid, "allowed": denial is None}
    if denial is not None:
        status: dict[str, Any] = {"message": denial.message}
        if denial.code:
            status |= {"code": denial.code, "reason": denial.reason}
        response["status"] = status
    elif patch:
        response["patchType"] = "JSONPatch"
        response["patch"] = base64.b64encode(msgspec.json.encode(patch)).decode()
    return msgspec.json.encode({"apiVersion": API_VERSION, "kind": "AdmissionReview", "response": response})
