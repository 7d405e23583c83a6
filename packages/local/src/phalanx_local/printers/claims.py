"""`kubectl get` columns of ResourceClaims, ResourceClaimTemplates and ResourceSlices."""

from __future__ import annotations

from phalanx_local.objects import Json, dig, metadata, sequence, text
from phalanx_local.printers.base import AGE, NAME, Printer, age, column


def _state(claim: Json) -> str:
    words = []
    terminating = metadata(claim).get("deletionTimestamp") is not None
    if terminating:
        words.append("deleted")
    if dig(claim, "status", "allocation") is not None:
        words.append("allocated")
        if sequence(dig(claim, "status", "reservedFor")):
            words.append("reserved")
    elif not terminating:
        words.append("pending")
    return ",".join(words)


RESOURCE_CLAIM_PRINTER = Printer(
    (NAME, column("State"), AGE),
    lambda claim, now: [text(metadata(claim).get("name")), _state(claim), age(claim, now)],
)

RESOURCE_SLICE_PRINTER = Printer(
    (NAME, column("Node"), column("Driver"), column("Pool"), AGE),
    lambda item, now: [
        text(metadata(item).get("name")),
        text(dig(item, "spec", "nodeName")),
        text(dig(item, "spec", "driver")),
        text(dig(item, "spec", "pool", "name")),
        age(item, now),
    ],
)
