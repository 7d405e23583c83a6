"""Request and response of an AdmissionReview (admission.k8s.io/v1)."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

import msgspec

from phalanx.model.text.decoding import decode_json

API_VERSION = "admission.k8s.io/v1"


class ReviewError(ValueError):
    """Error for a body that is no valid AdmissionReview; the text names the fault."""


class UserInfo(msgspec.Struct, frozen=True):
    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class ReviewedResource(msgspec.Struct, frozen=True):
    group: str = ""
    resource: str = ""

    def __str__(self) -> str:
        """Return the resource as plural.group."""
        return f"{self.resource}.{self.group}".rstrip(".")


class ReviewRequest(msgspec.Struct, frozen=True, rename="camel"):
    """Request of an AdmissionReview. `object` is None for a deletion, `old_object` for a creation."""

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
    """Denial of an admission request. With `code` 0 the API server chooses the code, as upstream does."""

    message: str
    code: int = 0
    reason: str = ""


def read_review(body: bytes) -> ReviewRequest:
    """Decode the request of an AdmissionReview. Raises ReviewError."""
    try:
        review = decode_json(body, _Review)
    except msgspec.DecodeError as error:
        raise ReviewError(f"the body is not an AdmissionReview: {error}") from error
    if (review.api_version, review.kind) != (API_VERSION, "AdmissionReview"):
        received = f"{review.api_version[:60]}, Kind={review.kind[:60]}"
        raise ReviewError(f"expected {API_VERSION}, Kind=AdmissionReview, got {received}")
    if review.request is None or not review.request.uid:
        raise ReviewError("the AdmissionReview has no request with a uid")
    return review.request


def write_review(uid: str, patch: Sequence[object] = (), denial: Denial | None = None) -> bytes:
    """Encode the response of an AdmissionReview: a denial, or an approval with a patch if there are defaults to
    add."""
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
