"""Protocol of the hub: a pure function from a gang's Dispatch and observed state to the next writes.

The rules that let no two clusters run one gang (docs/decisions/020-one-record-one-grant.md):

1. The record changes by compare-and-swap on its resourceVersion; an epoch has one cluster, and its number is never
   used again.
2. Copies are created gated. A gate is removed only from a pod that the record, in phase Granted, names by uid.
3. A recall deletes each copy in the very version in which it had no node; the API server rejects the deletion of
   a newer version. If one copy has a node, the gang has started and is not recalled.
4. From Granted the record changes only to Withdrawing. It leaves Withdrawing only when a list that was read after
   that write shows no copy. (A policy can give a lost cluster up; the record then has the outcome Lost.)

Each step can be repeated, can arrive late, and can be the last one before the hub crashes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from phalanx.dialects.times import format_time
from phalanx.hub.dispatch import Dispatch, DispatchStatus, GrantedCopy, Phase
from phalanx.hub.observed import ClusterView, CopyView, LostPolicy, OriginGang

#: Reason of a recall for an earlier start in another cluster.
SPILL_OVER = "SpillOver"


class CreateRecord(msgspec.Struct, frozen=True):
    """Step: create a Dispatch for the gang."""


class RemoveRecord(msgspec.Struct, frozen=True):
    """Step: remove the finalizer of a Dispatch and delete it; no copy exists in any cluster."""


class Choose(msgspec.Struct, frozen=True):
    """Step: choose a member cluster; then `chosen` is the status to write."""


class WriteStatus(msgspec.Struct, frozen=True):
    """Step: write the status of a Dispatch by compare-and-swap."""

    status: DispatchStatus


class CreateGroup(msgspec.Struct, frozen=True):
    """Step: create a copy of the PodGroup in the Dispatch's cluster and epoch (this cluster is meant in all steps
    below)."""


class CreateCopy(msgspec.Struct, frozen=True):
    name: str
    origin_uid: str


class LiftGate(msgspec.Struct, frozen=True):
    name: str
    uid: str


class HoldCopy(msgspec.Struct, frozen=True):
    """Step: suspend the copy of a job that is suspended at the hub."""

    name: str
    uid: str


class DeleteCopy(msgspec.Struct, frozen=True):
    """Step: delete the pod with this uid, as `kubectl delete` does."""

    name: str
    uid: str


class RecallCopy(msgspec.Struct, frozen=True):
    """Step: delete the pod with this uid in this resourceVersion, so that a pod with a node is not deleted."""

    name: str
    uid: str
    version: str


class DeleteGroup(msgspec.Struct, frozen=True):
    uid: str


class ReleaseCopy(msgspec.Struct, frozen=True):
    """Step: remove the finalizer of a copy with a recorded result, or of a copy without a gang."""

    name: str
    uid: str


class MirrorStatus(msgspec.Struct, frozen=True):
    """Step: write the status of this copy to the original pod at the hub."""

    name: str
    origin_uid: str
    uid: str


class FailLost(msgspec.Struct, frozen=True):
    """Step: mark a pod at the hub as failed; its granted copy was deleted before its result was read."""

    name: str
    origin_uid: str


class ConfirmGone(msgspec.Struct, frozen=True):
    """Step: confirm by a fresh list, not a cache, that no copy exists; then `withdrawn` is the status to write."""


Step: TypeAlias = (
    CreateRecord
    | RemoveRecord
    | Choose
    | WriteStatus
    | CreateGroup
    | CreateCopy
    | LiftGate
    | HoldCopy
    | DeleteCopy
    | RecallCopy
    | DeleteGroup
    | ReleaseCopy
    | MirrorStatus
    | FailLost
    | ConfirmGone
)


def next_steps(
    record: Dispatch | None, gang: OriginGang | None, clusters: Mapping[str, ClusterView], now: int
) -> Sequence[Step]:
    """Return the next writes for a gang of the hub, in any order; none if it has to wait.

    `gang` is None when the PodGroup of the record's uid is deleted. `now` is in seconds since the epoch.
    """
    if record is None:
        return [CreateRecord()] if gang is not None and gang.complete and not gang.suspended else []
    status, cluster = record.status, clusters.get(record.status.cluster)
    withdrawal_reason = _leaving(record, gang)
    match record.phase:
        case Phase.PENDING:
            return _pending(record, gang, clusters, withdrawal_reason, now)
        case Phase.COPYING:
            if withdrawal_reason:
                # Nothing was granted, so nothing has started: a sweep deletes the copies at any later time.
                return [WriteStatus(status.ended_attempt("Withdrawn", withdrawal_reason, now))]
            assert gang is not None
            return _copying(status, gang, cluster, now)
        case Phase.GRANTED:
            if withdrawal_reason:
                return [WriteStatus(status.moved(Phase.WITHDRAWING, now, reason=withdrawal_reason))]
            assert gang is not None
            return _granted(status, gang, cluster, now)
        case Phase.RECALLING:
            if withdrawal_reason:
                return [WriteStatus(status.moved(Phase.WITHDRAWING, now, reason=withdrawal_reason))]
            assert gang is not None
            return _recalling(status, gang, cluster, now)
        case Phase.WITHDRAWING:
            return _withdrawing(gang, cluster)
        case Phase.ENDED:
            if withdrawal_reason and withdrawal_reason != "Suspended":
                return [WriteStatus(status.moved(Phase.WITHDRAWING, now, reason=withdrawal_reason))]
            if gang is not None and any(not pod.ended and not status_names(status, pod.uid) for pod in gang.pods):
                return [WriteStatus(status.moved(Phase.WITHDRAWING, now, reason="NewPods"))]
            return []


def status_names(status: DispatchStatus, origin_uid: str) -> bool:
    """Return whether the grant of a Dispatch names a copy of this pod."""
    return any(copy.origin_uid == origin_uid for copy in status.granted)


def chosen(status: DispatchStatus, cluster: str, now: int, promised: str = "") -> DispatchStatus:
    """Return the status of a Dispatch after the choice of a cluster; `promised` (RFC 3339) is the start that it
    forecast."""
    fresh = {"granted": (), "succeeded": 0, "failed": 0, "promised": promised}
    return status.moved(Phase.COPYING, now, epoch=status.epoch + 1, cluster=cluster, **fresh)


def withdrawn(status: DispatchStatus, now: int) -> DispatchStatus:
    """Return the status of a withdrawing Dispatch after a fresh list has shown no copy."""
    if status.reason == SPILL_OVER:
        return status.ended_attempt(SPILL_OVER, status.message, now)
    return status.ended_attempt("Withdrawn", status.reason, now)


def not_started(status: DispatchStatus, cluster: ClusterView | None) -> bool:
    """Return whether all granted copies of a gang exist and none has a node, as far as observed."""
    if cluster is None or cluster.copies is None or not status.granted:
        return False
    granted_copies = [cluster.copies.get(grant.uid) for grant in status.granted]
    return all(copy is not None and not copy.started and not copy.deleting for copy in granted_copies)


def _leaving(record: Dispatch, gang: OriginGang | None) -> str:
    """Return the reason to withdraw the gang from its cluster; "" for none."""
    if record.deleting:
        return "Deleted"
    if gang is None or not gang.pods:
        return "GangGone"
    return "Suspended" if gang.suspended else ""


def _pending(
    record: Dispatch, gang: OriginGang | None, clusters: Mapping[str, ClusterView], withdrawal_reason: str, now: int
) -> Sequence[Step]:
    for cluster in clusters.values():
        # The hub's records were restored from a backup: the copies have a newer epoch.
        newer = [copy.epoch for copy in (cluster.copies or {}).values() if copy.epoch > record.status.epoch]
        if newer:
            reason = "OlderRecord"
            status = record.status.moved(
                Phase.WITHDRAWING, now, epoch=max(newer), cluster=cluster.name, granted=(), reason=reason
            )
            return [WriteStatus(status)]
    if withdrawal_reason in ("Deleted", "GangGone"):
        return [RemoveRecord()]
    if gang is not None and gang.ended:
        return [WriteStatus(_ended(record.status, gang, now))]
    return [Choose()] if gang is not None and gang.complete and not withdrawal_reason else []


def _copying(status: DispatchStatus, gang: OriginGang, cluster: ClusterView | None, now: int) -> Sequence[Step]:
    if cluster is None:
        return [WriteStatus(status.ended_attempt("Refused", "the cluster is no longer a member", now))]
    if cluster.refusal:
        return [WriteStatus(status.ended_attempt("Refused", cluster.refusal, now))]
    if cluster.copies is None:
        if now - cluster.silent_since >= cluster.patience:
            return [WriteStatus(status.ended_attempt("Silent", "the cluster does not answer", now))]
        return []
    steps: list[Step] = []
    ready: list[GrantedCopy] = []
    wanted = {pod.name: pod for pod in gang.pods if not pod.ended}
    for copy in cluster.copies.values():
        origin = wanted.get(copy.name)
        good = copy.epoch == status.epoch and origin is not None and copy.origin_uid == origin.uid
        if good and copy.gated and not copy.deleting:
            ready.append(GrantedCopy(copy.name, copy.origin_uid, copy.uid))
        elif copy.epoch <= status.epoch:
            steps += clear(copy)
    if cluster.group_uid == "" and cluster.grouped:
        steps.append(CreateGroup())
    existing = {copy.name for copy in cluster.copies.values()}
    steps += [CreateCopy(pod.name, pod.uid) for pod in wanted.values() if pod.name not in existing]
    if not steps and len(ready) == len(wanted) and gang.complete:
        granted = tuple(sorted(ready, key=lambda copy: copy.name))
        return [WriteStatus(status.moved(Phase.GRANTED, now, granted=granted))]
    return steps


def _granted(status: DispatchStatus, gang: OriginGang, cluster: ClusterView | None, now: int) -> Sequence[Step]:
    if cluster is None or cluster.copies is None:
        return _silent(status, gang, cluster, now)
    if status.unknown_since:
        return [WriteStatus(msgspec.structs.replace(status, unknown_since="", reason="", message=""))]
    if gang.recall and not_started(status, cluster):
        return [WriteStatus(status.moved(Phase.RECALLING, now, reason=SPILL_OVER, message=gang.recall))]
    origins = {pod.uid: pod for pod in gang.pods}
    by_uid = {copy.uid: copy for copy in cluster.copies.values()}
    steps: list[Step] = []
    kept_grants: list[GrantedCopy] = []
    for grant in status.granted:
        copy, origin = by_uid.pop(grant.uid, None), origins.get(grant.origin_uid)
        if copy is None:
            if origin is None:
                continue
            if not origin.ended:
                steps.append(FailLost(origin.name, origin.uid))
        elif origin is None:
            steps += clear(copy)
        elif origin.ended:
            if not copy.ended:
                steps += clear(copy)  # it was restored after its result was read
            elif copy.held:
                steps.append(ReleaseCopy(copy.name, copy.uid))
        elif copy.over and not copy.ended:
            # It was deleted before it ran, or by force: there is no result.
            steps.append(FailLost(origin.name, origin.uid))
        else:
            if copy.gated != copy.hold and not copy.deleting and not copy.ended:
                steps.append((HoldCopy if copy.hold else LiftGate)(copy.name, copy.uid))
            if copy.news:
                steps.append(MirrorStatus(copy.name, origin.uid, copy.uid))
        kept_grants.append(grant)
    named = {grant.origin_uid for grant in kept_grants}
    existing = {copy.name for copy in cluster.copies.values()}
    new_grants: list[GrantedCopy] = []
    for copy in by_uid.values():
        origin = origins.get(copy.origin_uid)
        if copy.epoch > status.epoch:
            continue
        if origin is None or origin.uid in named or origin.ended or copy.epoch != status.epoch or not copy.gated:
            steps += clear(copy)
        elif copy.deleting:
            steps += clear(copy)  # it was recalled before its gate was removed, and is created again
        else:
            new_grants.append(GrantedCopy(copy.name, copy.origin_uid, copy.uid))
    missing = [pod for pod in gang.pods if not pod.ended and pod.uid not in named]
    steps += [CreateCopy(pod.name, pod.uid) for pod in missing if pod.name not in existing]
    if new_grants:
        granted = tuple(sorted([*kept_grants, *new_grants], key=lambda grant: grant.name))
        return [WriteStatus(msgspec.structs.replace(status, granted=granted))]
    if not steps and not missing and gang.ended:
        return [WriteStatus(_ended(status, gang, now))]
    return steps


def _recalling(status: DispatchStatus, gang: OriginGang, cluster: ClusterView | None, now: int) -> Sequence[Step]:
    if cluster is None or cluster.copies is None:
        return _silent(status, gang, cluster, now)
    copies = {grant.uid: cluster.copies.get(grant.uid) for grant in status.granted}
    if any(copy is None or copy.started for copy in copies.values()):
        # A copy has started or its state is unknown: the gang stays. Recalled copies are created again.
        remaining_grants = tuple(
            grant for grant in status.granted if (copy := copies[grant.uid]) is None or not copy.recalled
        )
        message = f"it started in {status.cluster} before it was recalled"
        return [
            WriteStatus(
                status.moved(Phase.GRANTED, now, granted=remaining_grants, reason="RecallRefused", message=message)
            )
        ]
    waiting = [copy for copy in copies.values() if copy is not None and not copy.recalled]
    if not waiting:
        return [WriteStatus(status.moved(Phase.WITHDRAWING, now, reason=SPILL_OVER, message=status.message))]
    return [RecallCopy(copy.name, copy.uid, copy.version) for copy in waiting]


def _ended(status: DispatchStatus, gang: OriginGang, now: int) -> DispatchStatus:
    failed = sum(pod.failed for pod in gang.pods)
    return status.moved(Phase.ENDED, now, failed=failed, succeeded=len(gang.pods) - failed)


def _silent(status: DispatchStatus, gang: OriginGang, cluster: ClusterView | None, now: int) -> Sequence[Step]:
    """Return the protocol steps for a gang in a cluster that does not answer.

    Only an unreachable one counts as lost; one that rejects the hub does not.
    """
    if cluster is None or not cluster.lost:
        return []
    if not status.unknown_since:
        message = f"cluster {status.cluster} does not answer; the state of its pods is unknown"
        moment = format_time(now)
        return [
            WriteStatus(msgspec.structs.replace(status, unknown_since=moment, reason="Unknown", message=message))
        ]
    timeout = gang.lost_policy.gives_up_after(gang.rerun_after)
    if timeout is not None and now - max(status.unknown_time, cluster.silent_since) >= timeout:
        message = f"no answer since {status.unknown_since}: {gang.lost_policy.value}"
        return [WriteStatus(status.ended_attempt("Lost", message, now))]
    return []


def _withdrawing(gang: OriginGang | None, cluster: ClusterView | None) -> Sequence[Step]:
    if cluster is None or cluster.copies is None:
        return []
    origins = {pod.uid: pod for pod in gang.pods} if gang is not None else {}
    steps: list[Step] = []
    for copy in cluster.copies.values():
        origin = origins.get(copy.origin_uid)
        if copy.ended and copy.news and origin is not None and not origin.ended and not copy.stopped:
            steps.append(MirrorStatus(copy.name, origin.uid, copy.uid))  # the copy ended before the withdrawal
        else:
            steps += clear(copy)
    if not steps and not cluster.copies:
        return [DeleteGroup(cluster.group_uid)] if cluster.group_uid else [ConfirmGone()]
    return steps


def clear(copy: CopyView) -> list[Step]:
    """Return the protocol steps that delete a copy; none while its kubelet ends it."""
    if not copy.deleting:
        return [DeleteCopy(copy.name, copy.uid)]
    return [ReleaseCopy(copy.name, copy.uid)] if copy.over and copy.held else []


def stale(copy: CopyView, cluster: str, record: Dispatch | None) -> bool:
    """Return whether a copy in a cluster is left over from an old epoch.

    `record` must be read after the copy was seen; None if the record no longer exists.
    """
    if record is None:
        return True
    status = record.status
    if copy.epoch > status.epoch:
        return False
    current = status.cluster == cluster and copy.epoch == status.epoch and record.phase is not Phase.PENDING
    return not current


__all__ = [
    "SPILL_OVER",
    "Choose",
    "ConfirmGone",
    "CreateCopy",
    "CreateGroup",
    "CreateRecord",
    "DeleteCopy",
    "DeleteGroup",
    "FailLost",
    "HoldCopy",
    "LiftGate",
    "LostPolicy",
    "MirrorStatus",
    "RecallCopy",
    "ReleaseCopy",
    "RemoveRecord",
    "Step",
    "WriteStatus",
    "chosen",
    "clear",
    "next_steps",
    "not_started",
    "stale",
    "status_names",
    "withdrawn",
]
