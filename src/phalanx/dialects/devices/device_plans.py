"""Signed annotation with the shared GPUs of a bound pod.

The annotations that device plugins read can be edited by the pod's owner.
"""

from __future__ import annotations

from collections.abc import Mapping

from phalanx.dialects.devices.device_results import cards_named
from phalanx.dialects.signatures import Signer
from phalanx.model.devices.cards import Family

DEVICE_PLAN = "phalanx.dev/device-plan"
_SUBJECT = "device-plan"


def device_plan(annotations: Mapping[str, str], signer: Signer, uid: str, node: str) -> dict[str, str]:
    """Return the annotation `<family>/<signature>/<GPU>,<GPU>` that the scheduler adds to a pod's binding; empty
    for a pod without shared GPUs."""
    for family in Family:
        cards = cards_named(family, annotations)
        signature = signer.sign(_SUBJECT, uid, node, family, *cards) if cards else ""
        if signature:
            return {DEVICE_PLAN: f"{family}/{signature}/{','.join(cards)}"}
    return {}


def planned_cards(annotations: Mapping[str, str], signer: Signer, uid: str, node: str) -> tuple[str, ...] | None:
    """Return the GPU ids in a pod's signed annotation; None without our signature for this pod and node."""
    family, _, remaining = annotations.get(DEVICE_PLAN, "").partition("/")
    signature, _, listed = remaining.partition("/")
    cards = tuple(listed.split(","))
    return cards if listed and signer.believes(signature, _SUBJECT, uid, node, family, *cards) else None
