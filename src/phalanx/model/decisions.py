"""Decisions of one scheduling cycle, which the executor writes to the API."""

from __future__ import annotations

import enum

import msgspec

from phalanx.model.gang import GangKey
from phalanx.model.pod import PlanMark, Pod
from phalanx.model.preparations import Preparation
from phalanx.model.verdict import GangVerdict, PodVerdict


class Bind(msgspec.Struct, frozen=True, gc=False):
    """Decision to bind one pod to one node. `gang` is None for a single pod. `cause` identifies the decision in the
    cycle's log lines.

    `preparations` precede the binding: the preparations of all pods of a decision (bindings with the same
    `together`) precede all of its bindings. `annotations` are written to the pod with the binding. `held` are the
    nodes on which capacity is reserved for members that this pod will create, one entry per member.
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
    """Decision that a gang's controller can create the gang's pods (Volcano's phase Inqueue)."""

    gang: GangKey


class WithdrawAdmission(msgspec.Struct, frozen=True):
    """Decision to withdraw a gang's admission (Volcano's phase Pending): its controller deletes the pods that have
    no node."""

    gang: GangKey


class EvictionReason(enum.StrEnum):
    """Reason of an eviction; the value is the reason of the pod's event."""

    PREEMPTED = "Preempted"  # for a gang or pod of higher priority in its queue or quota
    RECLAIMED = "Reclaimed"  # it uses borrowed quota, which another queue or quota reclaims
    RESCHEDULED = "Rescheduled"  # to be placed better elsewhere
    REVOKED = "Revoked"  # its permitted time on this node has ended


class Evict(msgspec.Struct, frozen=True):
    """Decision to evict one pod.

    `preemptor` is the gang or pod for which it is evicted ("gang a/train", "pod a/x"; "" for none). `message` is a
    clause with the reason, which does not repeat the preemptor. `gang` is the gang of the evicted pod. All
    evictions of one decision have the same `cause`, as do the nominations that reserve the freed resources.
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
        """Return the decision to evict a pod; `gang` is the gang of this pod."""
        return cls(pod.uid, pod.namespace, pod.name, pod.node, reason, message, preemptor, gang, cause)

    @property
    def sentence(self) -> str:
        """Full text of the eviction: `preempted by gang a/train (priority 0 is below priority 10)`."""
        return eviction_sentence(self.reason, self.preemptor, self.message)


def eviction_sentence(reason: EvictionReason, preemptor: str, message: str) -> str:
    """Return the text of an eviction: `preempted by gang a/train (priority 0 is below priority 10)`; preemptor and
    message can be empty."""
    by = f" by {preemptor}" if preemptor else ""
    return f"{reason.value.lower()}{by}" + (f" ({message})" if message else "")


class Nominate(msgspec.Struct, frozen=True):
    """Decision to reserve capacity on a node for a pod that waits for evicted pods to terminate
    (status.nominatedNodeName).

    An empty `node` removes the nomination. Then `successor` can be the cause of another decision, which takes over
    the evictions that were made for this pod. `held` are the nodes on which capacity is reserved for expected
    members of the pod's `gang`, one entry per member.
    """

    uid: str
    namespace: str
    name: str
    node: str
    cause: str = ""
    successor: str = ""
    gang: GangKey | None = None
    held: tuple[str, ...] = ()


class Failure(msgspec.Struct, frozen=True):
    """Exception raised during a cycle: `what` is the planned gang or pod, or the called plugin with its extension
    point; `why` is the short reason, `plugin` the plugin that raised ("" for none), `trace` the traceback as text.
    """

    what: str
    why: str
    plugin: str
    trace: str


class Plan(msgspec.Struct):
    """Decisions of one scheduling cycle, in the order in which they were made.

    `binds` of one gang (and of one gang group) are adjacent. The `nominations` of a decision must be written before
    its `evictions`. `gangs` and `pods` contain new verdicts: those that differ from the last published one, or that
    concern members without a verdict. `complete` is False if the time budget ended the cycle early. `failures` are
    exceptions: the gang or pod concerned was set aside, and all others were planned as usual.
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
    withdrawals: list[WithdrawAdmission] = []
