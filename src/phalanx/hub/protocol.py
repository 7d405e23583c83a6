"""What the hub writes next for one gang: a pure function of its record and of what can be seen.

The rules from which it follows that no two clusters run one gang (docs/decisions/020-one-record-one-grant.md):

1. The record moves by compare-and-swap on its resourceVersion; an epoch has one cluster, and its number is never
   used again.
2. Copies are created gated. A gate is lifted only from a pod whose uid the record, in phase Granted, names.
3. A gang is recalled by deleting each copy in the very version in which it had no node (the API server refuses
   that once it has one). One that has a node decides: the gang has started, and stays.
4. From Granted the record goes on only through Withdrawing, and from there only when a list that was read after
   that was written shows that none of the copies is left. (A policy may give a lost cluster up; then it says so.)

Each step may be repeated, may arrive late, and may be the last that a hub does before it dies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import msgspec

from phalanx.dialects.times import format_time
from phalanx.hub.dispatch import Dispatch, DispatchStatus, GrantedCopy, Phase
from phalanx.hub.observed import ClusterView, CopyView, LostPolicy, OriginGang

#: Why a gang leaves a cluster in which it has not started.
SPILL_OVER = "SpillOver"


class CreateRecord(msgspec.Struct, frozen=True):
    """The gang gets a Dispatch."""


class RemoveRecord(msgspec.Struct, frozen=True):
    """Nothing is left of it anywhere: the finalizer goes, and the record with it."""


class Choose(msgspec.Struct, frozen=True):
    """A cluster is to be chosen; then `chosen` is the status to write."""


class WriteStatus(msgspec.Struct, frozen=True):
    """By compare-and-swap."""

    status: DispatchStatus


class CreateGroup(msgspec.Struct, frozen=True):
    """A copy of the PodGroup, in the record's cluster and epoch. So are all below."""


class CreateCopy(msgspec.Struct, frozen=True):
    name: str
    origin_uid: str


class LiftGate(msgspec.Struct, frozen=True):
    name: str
    uid: str


class HoldCopy(msgspec.Struct, frozen=True):
    """The job at the hub is suspended: so is its copy, where it is."""

    name: str
    uid: str


class DeleteCopy(msgspec.Struct, frozen=True):
    """This very pod (its uid), as `kubectl delete` would."""

    name: str
    uid: str


class RecallCopy(msgspec.Struct, frozen=True):
    """This very pod in this very version (its resourceVersion): one that has got a node meanwhile stays."""

    name: str
    uid: str
    version: str


class DeleteGroup(msgspec.Struct, frozen=True):
    uid: str


class ReleaseCopy(msgspec.Struct, frozen=True):
    """Its end is written down, or nobody asks for it: its finalizer goes."""

    name: str
    uid: str


class MirrorStatus(msgspec.Struct, frozen=True):
    """The status of this copy becomes that of the pod at the hub."""

    name: str
    origin_uid: str
    uid: str


class FailLost(msgspec.Struct, frozen=True):
    """A copy that was granted is gone and nobody saw its end: the pod at the hub has failed, and says so."""

    name: str
    origin_uid: str


class ConfirmGone(msgspec.Struct, frozen=True):
    """A fresh list, not a cache, must show that nothing is left; then `withdrawn` is the status to write."""


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
    """The writes that bring it on, in any order; none where it has to wait. `gang` is None when the PodGroup of the
    record's uid is gone. `now` in seconds since the epoch."""
    if record is None:
        return [CreateRecord()] if gang is not None and gang.complete and not gang.suspended else []
    status, cluster = record.status, clusters.get(record.status.cluster)
    leaving = _leaving(record, gang)
    match record.phase:
        case Phase.PENDING:
            return _pending(record, gang, clusters, leaving, now)
        case Phase.COPYING:
            if leaving:
                # Nothing was granted, so nothing has started: what is there is swept away, whenever that is.
                return [WriteStatus(status.ended_attempt("Withdrawn", leaving, now))]
            assert gang is not None
            return _copying(status, gang, cluster, now)
        case Phase.GRANTED:
            if leaving:
                return [WriteStatus(status.moved(Phase.WITHDRAWING, now, reason=leaving))]
            assert gang is not None
            return _granted(status, gang, cluster, now)
        case Phase.RECALLING:
            if leaving:
                return [WriteStatus(status.moved(Phase.WITHDRAWING, now, reason=leaving))]
            assert gang is not None
            return _recalling(status, gang, cluster, now)
        case Phase.WITHDRAWING:
            return _withdrawing(gang, cluster)
        case Phase.ENDED:
            if leaving and leaving != "Suspended":
                return [WriteStatus(status.moved(Phase.WITHDRAWING, now, reason=leaving))]
            if gang is not None and any(not pod.ended and not status_names(status, pod.uid) for pod in gang.pods):
                return [WriteStatus(status.moved(Phase.WITHDRAWING, now, reason="NewPods"))]
            return []


def status_names(status: DispatchStatus, origin_uid: str) -> bool:
    """Whether the grant names a copy of this pod."""
    return any(copy.origin_uid == origin_uid for copy in status.granted)


def chosen(status: DispatchStatus, cluster: str, now: int, promised: str = "") -> DispatchStatus:
    """What to write when a cluster was chosen, which said that it would start it at `promised` (RFC 3339)."""
    fresh = {"granted": (), "succeeded": 0, "failed": 0, "promised": promised}
    return status.moved(Phase.COPYING, now, epoch=status.epoch + 1, cluster=cluster, **fresh)


def withdrawn(status: DispatchStatus, now: int) -> DispatchStatus:
    """What to write when a fresh list showed nothing of a record in Withdrawing."""
    if status.reason == SPILL_OVER:
        return status.ended_attempt(SPILL_OVER, status.message, now)
    return status.ended_attempt("Withdrawn", status.reason, now)


def not_started(status: DispatchStatus, cluster: ClusterView | None) -> bool:
    """Whether all copies that were granted are there, and none has got a node, as far as can be seen."""
    if cluster is None or cluster.copies is None or not status.granted:
        return False
    copies = [cluster.copies.get(grant.uid) for grant in status.granted]
    return all(copy is not None and not copy.started and not copy.deleting for copy in copies)


def _leaving(record: Dispatch, gang: OriginGang | None) -> str:
    """Why it must not go on where it is; "" if it may."""
    if record.deleting:
        return "Deleted"
    if gang is None or not gang.pods:
        return "GangGone"
    return "Suspended" if gang.suspended else ""


def _pending(
    record: Dispatch, gang: OriginGang | None, clusters: Mapping[str, ClusterView], leaving: str, now: int
) -> Sequence[Step]:
    for cluster in clusters.values():
        # The hub's own records are from a backup: the copies know of an epoch that they do not.
        newer = [copy.epoch for copy in (cluster.copies or {}).values() if copy.epoch > record.status.epoch]
        if newer:
            reason = "OlderRecord"
            found = record.status.moved(
                Phase.WITHDRAWING, now, epoch=max(newer), cluster=cluster.name, granted=(), reason=reason
            )
            return [WriteStatus(found)]
    if leaving in ("Deleted", "GangGone"):
        return [RemoveRecord()]
    if gang is not None and gang.ended:
        return [WriteStatus(_ended(record.status, gang, now))]
    return [Choose()] if gang is not None and gang.complete and not leaving else []


def _copying(status: DispatchStatus, gang: OriginGang, cluster: ClusterView | None, now: int) -> Sequence[Step]:
    if cluster is None:
        return [WriteStatus(status.ended_attempt("Refused", "the cluster is no member any more", now))]
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
    there = {copy.name for copy in cluster.copies.values()}
    steps += [CreateCopy(pod.name, pod.uid) for pod in wanted.values() if pod.name not in there]
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
    kept: list[GrantedCopy] = []
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
                steps += clear(copy)  # it was restored after its end had been told
            elif copy.held:
                steps.append(ReleaseCopy(copy.name, copy.uid))
        elif copy.over and not copy.ended:
            # Deleted before it ran, or by force: there is no end to be read.
            steps.append(FailLost(origin.name, origin.uid))
        else:
            if copy.gated != copy.hold and not copy.deleting and not copy.ended:
                steps.append((HoldCopy if copy.hold else LiftGate)(copy.name, copy.uid))
            if copy.news:
                steps.append(MirrorStatus(copy.name, origin.uid, copy.uid))
        kept.append(grant)
    named = {grant.origin_uid for grant in kept}
    taken = {copy.name for copy in cluster.copies.values()}
    more: list[GrantedCopy] = []
    for copy in by_uid.values():
        origin = origins.get(copy.origin_uid)
        if copy.epoch > status.epoch:
            continue
        if origin is None or origin.uid in named or origin.ended or copy.epoch != status.epoch or not copy.gated:
            steps += clear(copy)
        elif copy.deleting:
            steps += clear(copy)  # it was recalled before its gate was lifted; it is made anew
        else:
            more.append(GrantedCopy(copy.name, copy.origin_uid, copy.uid))
    missing = [pod for pod in gang.pods if not pod.ended and pod.uid not in named]
    steps += [CreateCopy(pod.name, pod.uid) for pod in missing if pod.name not in taken]
    if more:
        granted = tuple(sorted([*kept, *more], key=lambda each: each.name))
        return [WriteStatus(msgspec.structs.replace(status, granted=granted))]
    if not steps and not missing and gang.ended:
        return [WriteStatus(_ended(status, gang, now))]
    return steps


def _recalling(status: DispatchStatus, gang: OriginGang, cluster: ClusterView | None, now: int) -> Sequence[Step]:
    if cluster is None or cluster.copies is None:
        return _silent(status, gang, cluster, now)
    copies = {grant.uid: cluster.copies.get(grant.uid) for grant in status.granted}
    if any(copy is None or copy.started for copy in copies.values()):
        # It has started, or nobody can say: it stays. Those that were taken back already are made anew.
        kept = tuple(grant for grant in status.granted if (copy := copies[grant.uid]) is None or not copy.recalled)
        message = f"it had started in {status.cluster} before it could be taken back"
        return [
            WriteStatus(status.moved(Phase.GRANTED, now, granted=kept, reason="RecallRefused", message=message))
        ]
    left = [copy for copy in copies.values() if copy is not None and not copy.recalled]
    if not left:
        return [WriteStatus(status.moved(Phase.WITHDRAWING, now, reason=SPILL_OVER, message=status.message))]
    return [RecallCopy(copy.name, copy.uid, copy.version) for copy in left]


def _ended(status: DispatchStatus, gang: OriginGang, now: int) -> DispatchStatus:
    failed = sum(pod.failed for pod in gang.pods)
    return status.moved(Phase.ENDED, now, failed=failed, succeeded=len(gang.pods) - failed)


def _silent(status: DispatchStatus, gang: OriginGang, cluster: ClusterView | None, now: int) -> Sequence[Step]:
    """The cluster does not answer. Only one that nothing can be sent to is lost; one that refuses us goes on."""
    if cluster is None or not cluster.lost:
        return []
    if not status.unknown_since:
        message = f"{status.cluster} does not answer; what runs there is not known"
        moment = format_time(now)
        return [
            WriteStatus(msgspec.structs.replace(status, unknown_since=moment, reason="Unknown", message=message))
        ]
    after = gang.lost_policy.gives_up_after(gang.rerun_after)
    if after is not None and now - max(status.unknown_time, cluster.silent_since) >= after:
        message = f"not heard of since {status.unknown_since}: {gang.lost_policy.value}"
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
            steps.append(MirrorStatus(copy.name, origin.uid, copy.uid))  # it was faster than we
        else:
            steps += clear(copy)
    if not steps and not cluster.copies:
        return [DeleteGroup(cluster.group_uid)] if cluster.group_uid else [ConfirmGone()]
    return steps


def clear(copy: CopyView) -> list[Step]:
    """What makes a copy go; nothing while its kubelet ends it."""
    if not copy.deleting:
        return [DeleteCopy(copy.name, copy.uid)]
    return [ReleaseCopy(copy.name, copy.uid)] if copy.over and copy.held else []


def stale(copy: CopyView, cluster: str, record: Dispatch | None) -> bool:
    """Whether a copy in a cluster is to be swept away, by the record as it was read after the copy had been seen.
    `record` is None where there is none any more."""
    if record is None:
        return True
    status = record.status
    if copy.epoch > status.epoch:
        return False
    here = status.cluster == cluster and copy.epoch == status.epoch and record.phase is not Phase.PENDING
    return not here


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
