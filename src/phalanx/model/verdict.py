"""Verdicts: reasons why a gang or pod is not placed, made at the place of the decision and carried unchanged to
every view."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from phalanx.model.gang import GangKey

#: Verdict code of gangs with fewer existing members than required.
NOT_ENOUGH_MEMBERS = "NotEnoughMembers"
WAITING_FOR_VOLUMES = "WaitingForVolumes"


class NodeCount(msgspec.Struct, frozen=True, omit_defaults=True):
    """Number of nodes that are excluded for a `reason`. `resource` is the one that these nodes lack, "" for another
    reason."""

    reason: str
    count: int
    resource: str = ""


class PodShape(msgspec.Struct, frozen=True):
    """Number of pending pods with equal requests, as (resource, quantity)."""

    count: int
    requests: tuple[tuple[str, str], ...]


class NamedObject(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    """API object that a message names. `kind` is a Kubernetes kind, or Gang, User or Topology; `namespace` is ""
    for cluster-scoped objects."""

    kind: str
    name: str
    namespace: str = ""

    @property
    def title(self) -> str:
        """Name of the object in messages: `Gang ns/train`, `Queue research`."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


Objects = tuple[NamedObject, ...] | None
"""Objects that a message names; None if unknown: then only viewers of all namespaces can read the message."""


def gang_object(key: GangKey) -> NamedObject:
    return NamedObject("Gang", key.name, key.namespace)


def joined_objects(*parts: Objects) -> Objects:
    """Return the objects that several messages name together; None if they are unknown for one of these
    messages."""
    found: dict[NamedObject, None] = {}
    for part in parts:
        if part is None:
            return None
        found.update(dict.fromkeys(part))
    return tuple(found)


def named_nodes(names: Iterable[str]) -> tuple[NamedObject, ...]:
    return tuple(NamedObject("Node", name) for name in names)


class Verdict(msgspec.Struct, frozen=True):
    """Reason why a gang or pod is not placed, with counts and the smallest change that would help.

    `code` is CamelCase and stable. `message` is one stable sentence: equal situations produce equal texts.
    `unschedulable` is False if the cause is a quota or the order of the queue, on which an autoscaler must not act.
    `needed` members are required, `placeable` of them would fit, `members` exist. `nodes` count a node once for
    each resource that it lacks, as kube-scheduler does. `change` is the smallest change that would help, as an
    imperative sentence, "" if none is known. `fault` is True if the declaration itself is invalid, so that no node
    could ever help. `objects` are named in `message` and `change`. `plugin` is the plugin that refuses admission,
    "" for none. `pod_shapes` are the pods for which an autoscaler is to create nodes. No
    view parses the texts: every decision of a view uses the other fields.
    """

    code: str
    message: str
    unschedulable: bool = True
    needed: int = 0
    placeable: int = 0
    members: int = 0
    nodes: tuple[NodeCount, ...] = ()
    change: str = ""
    fault: bool = False
    objects: Objects = None
    plugin: str = ""
    pod_shapes: tuple[PodShape, ...] = ()

    @property
    def cause(self) -> tuple[str, str, Objects]:
        """Cause of the verdict without its counts: an event is recorded once per cause."""
        return self.code, self.plugin, self.objects


class GangVerdict(msgspec.Struct, frozen=True):
    """Result for one gang in a cycle; `verdict` is None if all that the gang requested was placed."""

    gang: GangKey
    verdict: Verdict | None


class PodVerdict(msgspec.Struct, frozen=True):
    """Result for one single pod (without a gang) in a cycle; `verdict` is None if the pod was placed."""

    uid: str
    verdict: Verdict | None
