"""Signed annotation on each pod that the scheduler binds without a plan mark: proof and time of its binding.

Every user can create a pod with a node, and many can write the status of their pods. Only a pod with one of these
marks was placed by a scheduler with our keys, so only its rejection by a kubelet counts, and its time is the
beginning of its use of the node.
"""

from __future__ import annotations

import re

from phalanx.dialects.signatures import Signer

BINDING_ANNOTATION = "phalanx.dev/bound"
_MARK = re.compile(r"([0-9]{1,12})/([^/]*)")
# Subject within the signature, so that a signature for another purpose is invalid here.
_SUBJECT = "bound"


def encode_binding(signer: Signer, uid: str, node: str, time: int) -> dict[str, str]:
    """Return the annotation `<time>/<signature>` for a pod; empty without a key."""
    signature = signer.sign(_SUBJECT, uid, node, time)
    return {BINDING_ANNOTATION: f"{time}/{signature}"} if signature else {}


def decode_binding(text: str, signer: Signer, uid: str, node: str) -> int:
    """Return the time of the binding in seconds since the epoch; 0 without our signature for this pod and node."""
    match = _MARK.fullmatch(text)
    if match is None or not signer.believes(match[2], _SUBJECT, uid, node, int(match[1])):
        return 0
    return int(match[1])
