"""Why something is not placed: made where the decision is made, carried unchanged to everyone who asks."""

from __future__ import annotations

import msgspec

from phalanx.model.gang import GangKey


class NodeCount(msgspec.Struct, frozen=True):
    """`count` nodes are out for `reason`."""

    reason: str
    count: int


class Verdict(msgspec.Struct, frozen=True):
    """One dominant reason, the counts behind it, and the smallest change that would help.

    `code` is CamelCase and stable. `message` is one stable sentence: equal situations give equal texts.
    `unschedulable` is False where the cause is a quota or a turn in the queue, on which an autoscaler must not
    act. `needed` members are asked for, `placeable` of them would fit, `members` exist. `nodes` count a node once
    for each resource that it lacks, as kube-scheduler does. `change` is the smallest change that would help, as an
    imperative sentence, "" if none is known. `fault` is True where the declaration itself is at fault, so that no
    node could ever help.
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


class GangVerdict(msgspec.Struct, frozen=True):
    """What was decided about one gang in a cycle; `verdict` is None when it got all it asked for."""

    gang: GangKey
    verdict: Verdict | None


class PodVerdict(msgspec.Struct, frozen=True):
    """The same for a pod that belongs to no gang."""

    uid: str
    verdict: Verdict | None
