"""The annotation in which a binding says, signed, which cards its pod got.

What device plugins read stands beside it in their words, and whoever owns the pod may write that.
"""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.dialects.devices.device_results import cards_named
from phalanx.dialects.signatures import Signer
from phalanx.model.devices.cards import Family

DEVICE_PLAN = "phalanx.dev/device-plan"
_SUBJECT = "device-plan"


def device_plan(annotations: Mapping[str, str], signer: Signer, uid: str, node: str) -> dict[str, str]:
    """What to write beside these annotations of a binding: `<family>/<signature>/<card>,<card>`."""
    for family in Family:
        cards = cards_named(family, annotations)
        signature = signer.sign(_SUBJECT, uid, node, family, *cards) if cards else ""
        if signature:
            return {DEVICE_PLAN: f"{family}/{signature}/{','.join(cards)}"}
    return {}


def planned_cards(annotations: Mapping[str, str], signer: Signer, uid: str, node: str) -> tuple[str, ...] | None:
    """Their ids; None where we have signed no such thing for this pod on this node."""
    family, _, rest = annotations.get(DEVICE_PLAN, "").partition("/")
    signature, _, listed = rest.partition("/")
    cards = tuple(listed.split(","))
    return cards if listed and signer.believes(signature, _SUBJECT, uid, node, family, *cards) else None
