"""Observed state of a gang at the hub, of its copies, and of their clusters."""

from __future__ import annotations

import enum

import msgspec

from phalanx.dialects.dispatched import LEASE_SECONDS

#: Seconds from the last renewal of the lease until the cluster's scheduler has stopped the pods of policy Stop: the
#: lease, a minute for pods to end, and a margin for clock differences.
STOP_SECONDS = LEASE_SECONDS + 60 + 15
RERUN_SECONDS = 900


class LostPolicy(enum.Enum):
    """Policy for a gang in a member cluster that does not answer.

    Wait: do nothing. Rerun: start the gang in another cluster after a time; it possibly runs twice. Stop: the
    cluster's own scheduler ends the gang after the hub's lease has expired there; then the gang is started in
    another cluster.
    """

    WAIT = "Wait"
    RERUN = "Rerun"
    STOP = "Stop"

    def gives_up_after(self, rerun_after: int) -> int | None:
        """Return the seconds without an answer after which the gang in the cluster is given up; None for never."""
        match self:
            case LostPolicy.WAIT:
                return None
            case LostPolicy.RERUN:
                return rerun_after
            case LostPolicy.STOP:
                return STOP_SECONDS


class OriginPod(msgspec.Struct, frozen=True):
    """Pod at the hub that has only the dispatch gate; `ended` is derived from its status."""

    name: str
    uid: str
    ended: bool = False
    failed: bool = False


class OriginGang(msgspec.Struct, frozen=True):
    """PodGroup at the hub with its pods, or a job.

    `clusters` are the allowed clusters, empty for all. `recall` is the reason to recall the gang unless it has
    started.
    """

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
        """Whether the gang has enough pods, including ended ones, and not all have ended."""
        return len(self.pods) >= self.min_member and not self.ended

    @property
    def ended(self) -> bool:
        """Whether all pods of the gang have ended."""
        return all(pod.ended for pod in self.pods)


class CopyView(msgspec.Struct, frozen=True):
    """Copy of a pod or job in a member cluster.

    `over`: no container runs or will run. `held`: the finalizer is still set. `news`: the object at the hub has
    another status. `hold`: a granted copy has to be gated again, because the job at the hub is suspended. `bound`:
    the copy has or had a node (always true for a job). `version` is its resourceVersion.
    """

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
        """Whether the copy failed because it was deleted; the gang's work is not finished."""
        return self.failed and self.deleting

    @property
    def started(self) -> bool:
        """Whether the copy possibly ran; a copy that is deleted without a node has not run and never will."""
        return self.bound or self.ended

    @property
    def recalled(self) -> bool:
        return self.deleting and not self.started


class ClusterView(msgspec.Struct, frozen=True):
    """Member cluster with the copies of one gang by uid; None while they are unknown.

    `lost`: no request reaches the cluster, since `silent_since`. `refusal` is the reason why it rejects this gang.
    After `patience` seconds of silence a cluster loses the gangs that are not granted. A gang that is one job is
    not `grouped`: no PodGroup is copied.
    """

    name: str
    copies: dict[str, CopyView] | None = None
    group_uid: str = ""
    lost: bool = False
    silent_since: int = 0
    refusal: str = ""
    patience: int = 30
    grouped: bool = True
