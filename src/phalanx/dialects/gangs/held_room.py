"""Signed annotation on a bound leader that lists the nodes on which resources are held for the gang's later
members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from phalanx.dialects.signatures import Signer
from phalanx.model.gang import GangKey

HELD_ROOM = "phalanx.dev/held-room"
_SUBJECT = "held-room"
# Limit above the size of any leader's gang, for the annotation's content.
_MOST = 10_000


def encode_held(nodes: Iterable[str], signer: Signer, uid: str, gang: GangKey) -> dict[str, str]:
    """Return the annotation `<signature>/<node>:<pods>,<node>:<pods>` for a leader; empty without nodes or a
    key."""
    text = ",".join(f"{node}:{count}" for node, count in sorted(Counter(nodes).items()))
    signature = signer.sign(_SUBJECT, uid, gang.namespace, gang.name, text) if text else ""
    return {HELD_ROOM: f"{signature}/{text}"} if signature else {}


def decode_held(text: str, signer: Signer, uid: str, gang: GangKey) -> tuple[str, ...] | None:
    """Return the held node of each later member from a leader's annotation; None without our signature for this pod
    and gang."""
    signature, _, listed = text.partition("/")
    if not listed or not signer.believes(signature, _SUBJECT, uid, gang.namespace, gang.name, listed):
        return None
    nodes: list[str] = []
    for entry in listed.split(","):
        node, _, count = entry.rpartition(":")
        if not (node and count.isascii() and count.isdecimal() and len(nodes) + int(count[:6]) <= _MOST):
            return None
        nodes += [node] * int(count[:6])
    return tuple(nodes)
