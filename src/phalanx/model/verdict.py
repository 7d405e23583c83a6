"""Why something is not placed: made where the decision is made, carried unchanged to everyone who asks."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from phalanx.model.gang import GangKey

#: The code of gangs whose members that exist are fewer than they need.
NOT_ENOUGH_MEMBERS = "NotEnoughMembers"
WAITING_FOR_VOLUMES = "WaitingForVolumes"


class NodeCount(msgspec.Struct, frozen=True, omit_defaults=True):
    """`count` nodes are out for `reason`. `resource` is the one that they lack, "" where the reason is another."""

    reason: str
    count: int
    resource: str = ""


class NamedObject(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    """An object that a text names. `kind` is that of the API, or Gang, User or Topology; `namespace` is "" for
    objects of the cluster."""

    kind: str
    name: str
    namespace: str = ""

    @property
    def title(self) -> str:
        """The object as people call it: `Gang ns/train`, `Queue research`."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


Objects = tuple[NamedObject, ...] | None
"""What a text names; None where that is not known, so that the text is for viewers who may see everything."""


def gang_object(key: GangKey) -> NamedObject:
    return NamedObject("Gang", key.name, key.namespace)


def joined_objects(*parts: Objects) -> Objects:
    """Return what texts name together; None where that is unknown of one of them."""
    found: dict[NamedObject, None] = {}
    for part in parts:
        if part is None:
            return None
        found.update(dict.fromkeys(part))
    return tuple(found)


def named_nodes(names: Iterable[str]) -> tuple[NamedObject, ...]:
    return tuple(NamedObject("Node", name) for name in names)


class Verdict(msgspec.Struct, frozen=True):
    """One dominant reason, the counts behind it, and the smallest change that would help.

    `code` is CamelCase and stable. `message` is one stable sentence: equal situations give equal texts.
    `unschedulable` is False where the cause is a quota or a turn in the queue, on which an autoscaler must not
    act. `needed` members are asked for, `placeable` of them would fit, `members` exist. `nodes` count a node once
    for each resource that it lacks, as kube-scheduler does. `change` is the smallest change that would help, as an
    imperative sentence, "" if none is known. `fault` is True where the declaration itself is at fault, so that no
    node could ever help. `objects` are those that `message` and `change` name. `plugin` is the one that refuses
    admission, "" where none does. No view reads the texts: all that it
    decides by is in the other fields.
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

    @property
    def cause(self) -> tuple[str, str, Objects]:
        """What the verdict is about, whatever its counts: it is told as an event once."""
        return self.code, self.plugin, self.objects


class GangVerdict(msgspec.Struct, frozen=True):
    """What was decided about one gang in a cycle; `verdict` is None when it got all it asked for."""

    gang: GangKey
    verdict: Verdict | None


class PodVerdict(msgspec.Struct, frozen=True):
    """The same for a pod that belongs to no gang."""

    uid: str
    verdict: Verdict | None
