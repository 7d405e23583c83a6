"""Signed annotation on a bound or nominated leader that lists the nodes on which resources are held for the gang's
later members."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from phalanx.dialects.signatures import Signer
from phalanx.model.gang import GangKey

HELD_ROOM = "phalanx.dev/held-room"
_SUBJECT = "held-room"
# Limit above the size of any leader's gang, for the annotation's content.
_MOST = 10_000
# Ends the nominated node, which the annotation of a leader without a node begins with.
_NOMINATED = "@"


def encode_held(
    nodes: Iterable[str], signer: Signer, uid: str, gang: GangKey, nominated: str = ""
) -> dict[str, str]:
    """Return the annotation `<signature>/<node>:<pods>,<node>:<pods>` for a leader; empty without nodes or a key.

    For a leader that is only nominated, `<nominated>@` precedes the list.
    """
    text = ",".join(f"{node}:{count}" for node, count in sorted(Counter(nodes).items()))
    if text and nominated:
        text = f"{nominated}{_NOMINATED}{text}"
    signature = signer.sign(_SUBJECT, uid, gang.namespace, gang.name, text) if text else ""
    return {HELD_ROOM: f"{signature}/{text}"} if signature else {}


def decode_held(text: str, signer: Signer, uid: str, gang: GangKey, nominated: str = "") -> tuple[str, ...] | None:
    """Return the held node of each later member from a leader's annotation; None without our signature for this pod
    and gang.

    `nominated` is the nominated node of a leader without a node. The annotation of another state of the leader
    holds no room: a binding without held room does not remove it, and an owner of the pod can write it again.
    """
    signature, _, signed = text.partition("/")
    if not signed or not signer.believes(signature, _SUBJECT, uid, gang.namespace, gang.name, signed):
        return None
    stated, _, listed = signed.rpartition(_NOMINATED)
    if stated != nominated:
        return ()
    nodes: list[str] = []
    for entry in listed.split(","):
        node, _, count = entry.rpartition(":")
        if not (node and count.isascii() and count.isdecimal() and len(nodes) + int(count[:6]) <= _MOST):
            return None
        nodes += [node] * int(count[:6])
    return tuple(nodes)
