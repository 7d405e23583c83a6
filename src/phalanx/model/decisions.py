"""What a cycle hands to the executor."""

from __future__ import annotations

import enum

import msgspec

from phalanx.model.gang import GangKey
from phalanx.model.pod import PlanMark, Pod
from phalanx.model.preparations import Preparation
from phalanx.model.verdict import GangVerdict, PodVerdict


class Bind(msgspec.Struct, frozen=True, gc=False):
    """Put one pod on one node. `gang` is None for a pod on its own. `cause` ties it to the cycle's log lines.

    `preparations` come before the binding: those of all pods of a decision (binds with the same `together`) before
    any of their bindings. `annotations` are written to the pod with the binding. `held` are the nodes on which room
    is held for the members that it makes, one entry a member.
    """

    uid: str
    namespace: str
    name: str
    node: str
    gang: GangKey | None = None
    mark: PlanMark | None = None
    cause: str = ""
    preparations: tuple[Preparation, ...] = ()
    annotations: tuple[tuple[str, str], ...] = ()
    together: str = ""
    held: tuple[str, ...] = ()


class Admit(msgspec.Struct, frozen=True):
    """Let a group's controller create its pods (Volcano's phase Inqueue)."""

    gang: GangKey


class EvictionReason(enum.StrEnum):
    """Why a pod is evicted; the value is the reason of its event."""

    PREEMPTED = "Preempted"  # for something of higher priority in its queue or quota
    RECLAIMED = "Reclaimed"  # it uses borrowed amounts, which are reclaimed
    RESCHEDULED = "Rescheduled"  # to be placed better elsewhere
    REVOKED = "Revoked"  # its time on this node is over


class Evict(msgspec.Struct, frozen=True):
    """Take one pod off its node. `preemptor` is who gets the room, as people call it ("gang a/train", "pod a/x";
    "" for nobody in particular). `message` is a clause about why, which does not name it again. `gang` is
    the victim's own. All evictions of one decision share its `cause`, and so do the nominations that hold what they
    free.
    """

    uid: str
    namespace: str
    name: str
    node: str
    reason: EvictionReason
    message: str
    preemptor: str = ""
    gang: GangKey | None = None
    cause: str = ""

    @classmethod
    def of(
        cls,
        pod: Pod,
        reason: EvictionReason,
        message: str,
        *,
        cause: str,
        gang: GangKey | None,
        preemptor: str = "",
    ) -> Evict:
        """`gang` is the one that the pod is a member of."""
        return cls(pod.uid, pod.namespace, pod.name, pod.node, reason, message, preemptor, gang, cause)

    @property
    def sentence(self) -> str:
        """All of it: `preempted by gang a/train (priority 0 is below priority 10)`."""
        return eviction_sentence(self.reason, self.preemptor, self.message)


def eviction_sentence(reason: EvictionReason, preemptor: str, message: str) -> str:
    """Return `preempted by gang a/train (priority 0 is below priority 10)`; either part may be empty."""
    by = f" by {preemptor}" if preemptor else ""
    return f"{reason.value.lower()}{by}" + (f" ({message})" if message else "")


class Nominate(msgspec.Struct, frozen=True):
    """Hold room on a node for a pod that waits for evicted pods to leave (status.nominatedNodeName); "" for `node`
    takes the nomination back. Then `successor` may be the cause of the decision for which those leave who were told
    to for this pod."""

    uid: str
    namespace: str
    name: str
    node: str
    cause: str = ""
    successor: str = ""


class Failure(msgspec.Struct, frozen=True):
    """Something raised while it was planned for, or asked: `what` (a gang, a pod, a plugin at an extension point),
    `why` in short, the `plugin` that raised ("" for none), and the traceback as text."""

    what: str
    why: str
    plugin: str
    trace: str


class Plan(msgspec.Struct):
    """The outcome of one cycle, in the order in which it was decided.

    `binds` of one gang (and of one gang group) stand together. The `nominations` of a decision are to be written
    before its `evictions`. `gangs` and `pods` hold verdicts that are news: those
    that differ from what was last said, or that concern members who have not heard it. `complete` is False when
    the time budget ended the cycle early. `failures` tell what raised: whom it concerned was set aside, and
    everybody else was planned for as usual.
    """

    cycle: int
    binds: list[Bind] = []
    nominations: list[Nominate] = []
    evictions: list[Evict] = []
    admissions: list[Admit] = []
    gangs: list[GangVerdict] = []
    pods: list[PodVerdict] = []
    complete: bool = True
    failures: list[Failure] = []
