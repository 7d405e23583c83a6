"""A node as the scheduler sees it."""

from __future__ import annotations

import msgspec

from phalanx.model.devices.cards import Card
from phalanx.model.resources import Requests
from phalanx.model.selectors import Taint

HOLD = Taint("phalanx.dev/defragmentation", "", "NoSchedule")
"""Keeps those whom `phalanx defrag` moves from coming back, until all of them are where they should be."""


CORDONED = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
"""What a cordoned node is said to have, and has once the node controller has seen it."""


class Node(msgspec.Struct, frozen=True):
    """`allocatable` is what the kubelet offers, `pods` included; a resource that is absent is offered zero times.

    `problems` names what could not be read (such a resource counts as absent, the rest of the node works). `images`
    are those that it has already (normalised name, bytes), `features` what its kubelet declares, `cards` the
    devices that pods may share. `cordoned_by` is what the annotation says by which we cordon for maintenance.
    """

    name: str
    uid: str = ""
    allocatable: Requests = ()
    labels: tuple[tuple[str, str], ...] = ()
    taints: tuple[Taint, ...] = ()
    unschedulable: bool = False
    problems: tuple[str, ...] = ()
    images: tuple[tuple[str, int], ...] = ()
    features: tuple[str, ...] = ()
    cards: tuple[Card, ...] = ()
    cordoned_by: str = ""
