"""Signed annotation with the plan mark on each pod that a gang's plan binds: the id, size and time of the plan."""

from __future__ import annotations

import re

from phalanx.dialects.signatures import Signer
from phalanx.model.gang import GangKey
from phalanx.model.pod import PlanMark

PLAN_ANNOTATION = "phalanx.dev/gang-plan"
_MARK = re.compile(r"(?s)(.+)/([0-9]{1,12})/([0-9]{1,12})/([^/]*)")
# Subject within the signature, so that a signature for another purpose is invalid here.
_SUBJECT = "gang-plan"


def encode_mark(mark: PlanMark, signer: Signer, uid: str, gang: GangKey) -> str:
    """Return the annotation with the plan mark for a pod of this gang: `<plan>/<size>/<time>/<signature>`."""
    return f"{mark}/{signer.sign(*_parts(mark, uid, gang))}"


def decode_mark(text: str, signer: Signer, uid: str, gang: GangKey) -> PlanMark | None:
    """Return the plan mark in a pod's annotation; None without our signature for this pod and gang, which then
    counts as unmarked."""
    match = _MARK.fullmatch(text)
    if match is None:
        return None
    mark = PlanMark(match[1], int(match[2]), int(match[3]))
    return mark if mark.size >= 1 and signer.believes(match[4], *_parts(mark, uid, gang)) else None


def _parts(mark: PlanMark, uid: str, gang: GangKey) -> tuple[str | int, ...]:
    return _SUBJECT, uid, gang.namespace, gang.name, mark.plan, mark.size, mark.time
