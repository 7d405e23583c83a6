"""The annotation in which a gang's plan leaves its trace on each pod that it binds."""

from __future__ import annotations

import re

from phalanx.dialects.signatures import Signer
from phalanx.model.gang import GangKey
from phalanx.model.pod import PlanMark

PLAN_ANNOTATION = "phalanx.dev/gang-plan"
_MARK = re.compile(r"(?s)(.+)/([0-9]{1,12})/([0-9]{1,12})/([^/]*)")
# What the signature says that it is about, so that one for something else is none for this.
_SUBJECT = "gang-plan"


def encode_mark(mark: PlanMark, signer: Signer, uid: str, gang: GangKey) -> str:
    """The mark on the pod with this uid as a member of this gang: `<plan>/<size>/<time>/<signature>`."""
    return f"{mark}/{signer.sign(*_parts(mark, uid, gang))}"


def decode_mark(text: str, signer: Signer, uid: str, gang: GangKey) -> PlanMark | None:
    """None where we have made no such mark for this pod and gang: then the pod is judged as if it had none."""
    found = _MARK.fullmatch(text)
    if found is None:
        return None
    mark = PlanMark(found[1], int(found[2]), int(found[3]))
    return mark if mark.size >= 1 and signer.believes(found[4], *_parts(mark, uid, gang)) else None


def _parts(mark: PlanMark, uid: str, gang: GangKey) -> tuple[str | int, ...]:
    return _SUBJECT, uid, gang.namespace, gang.name, mark.plan, mark.size, mark.time
