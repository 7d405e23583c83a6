"""Node as the scheduler sees it."""

from __future__ import annotations

import msgspec

from phalanx.model.devices.cards import Card
from phalanx.model.resources import Requests
from phalanx.model.selectors import Taint

HOLD = Taint("phalanx.dev/defragmentation", "", "NoSchedule")
"""Taint that keeps pods off nodes which `phalanx defrag` empties, until all of its moves are done."""


CORDONED = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
"""Taint of a cordoned node, which the node controller adds after a delay."""


class Node(msgspec.Struct, frozen=True):
    """Node as last observed. `allocatable` is that of the kubelet, `pods` included; an absent resource is 0.

    `problems` lists unreadable fields (such a resource counts as absent, the rest of the node works). `images`
    are the images on the node (normalised name, bytes), `features` those that its kubelet declares, `cards` the
    devices that pods can share. `cordoned_by` is the value of the annotation with which Phalanx cordons for
    maintenance.
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
