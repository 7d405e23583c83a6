"""What the hub can see of a gang, of its copies, and of the clusters that they are in."""

from __future__ import annotations

import enum

import msgspec

from phalanx.dialects.dispatched import LEASE_SECONDS

#: From the last renewal that was sent until the cluster's scheduler has stopped what it was told to stop: the
#: lease, a minute for pods to end, and a margin for clocks that run apart.
STOP_SECONDS = LEASE_SECONDS + 60 + 15
RERUN_SECONDS = 900


class LostPolicy(enum.Enum):
    """What becomes of a gang whose cluster does not answer. Wait: nothing, whatever happens. Rerun: after a time it
    is started elsewhere, and may run twice. Stop: the cluster's own scheduler ends it once the hub's lease there
    has run out; then it is started elsewhere."""

    WAIT = "Wait"
    RERUN = "Rerun"
    STOP = "Stop"

    def gives_up_after(self, rerun_after: int) -> int | None:
        """Seconds without an answer; None for never."""
        match self:
            case LostPolicy.WAIT:
                return None
            case LostPolicy.RERUN:
                return rerun_after
            case LostPolicy.STOP:
                return STOP_SECONDS


class OriginPod(msgspec.Struct, frozen=True):
    """A pod at the hub that carries the gate and no other. It has `ended` when its status says so."""

    name: str
    uid: str
    ended: bool = False
    failed: bool = False


class OriginGang(msgspec.Struct, frozen=True):
    """A PodGroup at the hub with its pods. `clusters` are those that it may go to; empty for all.
    `recall` says why it is to be taken back from where it is, provided that it has not started there."""

    uid: str
    pods: tuple[OriginPod, ...]
    min_member: int = 1
    suspended: bool = False
    lost_policy: LostPolicy = LostPolicy.WAIT
    rerun_after: int = RERUN_SECONDS
    clusters: tuple[str, ...] = ()
    recall: str = ""

    @property
    def complete(self) -> bool:
        """Whether there are enough pods, and some that could start; those that have ended count, they had
        started."""
        return len(self.pods) >= self.min_member and not self.ended

    @property
    def ended(self) -> bool:
        """Whether all pods have ended."""
        return all(pod.ended for pod in self.pods)


class CopyView(msgspec.Struct, frozen=True):
    """A copy of a pod, or of a job, in a cluster. `over` says that no container of it runs or will; `held` that the
    finalizer is still there; `news` that the object at the hub has another status; `hold` that a granted copy is
    to be gated again, because the job at the hub is suspended. `bound` says that it has, or had, a node (of a job,
    that nobody can say); `version` is its resourceVersion."""

    name: str
    uid: str
    origin_uid: str
    epoch: int
    gated: bool
    ended: bool = False
    over: bool = False
    deleting: bool = False
    held: bool = True
    news: bool = False
    failed: bool = False
    hold: bool = False
    bound: bool = False
    version: str = ""

    @property
    def stopped(self) -> bool:
        """Whether it failed because it was told to go; what it was about is not over."""
        return self.failed and self.deleting

    @property
    def started(self) -> bool:
        """Whether it may have run; who is being deleted without a node has not, and never will."""
        return self.bound or self.ended

    @property
    def recalled(self) -> bool:
        return self.deleting and not self.started


class ClusterView(msgspec.Struct, frozen=True):
    """A member cluster with the copies of one gang by uid; None while they are not known. `lost` says that nothing
    can be sent to it, since `silent_since`; `refusal` why it does not take this gang. A cluster that is silent for
    longer than `patience` seconds loses what it has not been granted. A gang that is one job is not `grouped`: no
    PodGroup is copied."""

    name: str
    copies: dict[str, CopyView] | None = None
    group_uid: str = ""
    lost: bool = False
    silent_since: int = 0
    refusal: str = ""
    patience: int = 30
    grouped: bool = True
