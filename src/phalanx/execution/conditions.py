"""Conditions and nominations of pending pods: written only if they change, and never over a newer state."""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from phalanx.dialects.gangs.held_room import HELD_ROOM
from phalanx.execution.writes import Urgency, WritePool
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.conditions import PodCondition
from phalanx.kube.core_resources import PODS
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
from phalanx.kube.retry import Backoff, RetryPolicy
from phalanx.kube.timestamps import format_time
from phalanx.kube.wire import version_number
from phalanx.model.verdict import Verdict
from phalanx.model.verdict_condition import LAST_VERDICT, carried_objects, read_told, told_fields

log = logging.getLogger(__name__)

POD_SCHEDULED = "PodScheduled"
UNSCHEDULABLE = "Unschedulable"
# Reason of pods that no new node can help: autoscalers ignore them.
SCHEDULER_ERROR = "SchedulerError"
# Condition of pods that wait for quota or queue order. As unschedulable pods they would cause new nodes.
ADMITTED = "phalanx.dev/Admitted"
_ADMISSION_OVER = PodCondition(ADMITTED, "True", "Admitted", "")
_LIMIT = 32 * 1024


def text_of(verdict: Verdict) -> str:
    """Return the text of a verdict: message and fix."""
    text = verdict.message if not verdict.change else f"{verdict.message.rstrip('.')}. To fix: {verdict.change}."
    return text[:_LIMIT]


class NominationOutcome(enum.Enum):
    """Outcome of writing a pod's nominated node."""

    WRITTEN = "written"
    LOST = "lost"  # the pod was deleted or is not pending
    REFUSED = "refused"  # rejected; the pod is still pending
    SUPERSEDED = "superseded"  # replaced before it was written


# Called once per nomination.
NominationReport = Callable[[NominationOutcome], None]


def _unheard(outcome: NominationOutcome) -> None:
    pass


class _Wish(msgspec.Struct, frozen=True):
    """Nominated node and annotation with held room ("" for none) to write to a pod."""

    node: str
    room: str
    report: NominationReport


class _Version(msgspec.Struct):
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class _Answer(msgspec.Struct):
    metadata: _Version = msgspec.field(default_factory=_Version)


_ANSWER = msgspec.json.Decoder(_Answer)


class _Known:
    """Known and wanted conditions and nominated node of one pod."""

    __slots__ = (
        "backoff",
        "busy",
        "generation",
        "held",
        "name",
        "namespace",
        "nominated",
        "nomination",
        "observed",
        "outdated",
        "queued",
        "room",
        "scheduled",
        "ticket",
        "version",
        "waits",
        "wanted",
    )

    def __init__(self, namespace: str, name: str) -> None:
        self.namespace = namespace
        self.name = name
        self.version = ""
        self.waits = True
        self.held: dict[str, PodCondition] = {}
        self.wanted: dict[str, PodCondition] = {}
        self.nominated = ""
        self.room = ""  # annotation with the room that is held for expected members
        self.nomination: _Wish | None = None
        self.busy = False  # a write is queued or running
        self.queued: Urgency | None = None  # urgency of the queued write
        self.ticket = 0  # number of the current write; a superseded write has a lower one
        self.generation = 0  # generation of the pod
        self.observed = 0  # observedGeneration of its PodScheduled
        self.scheduled: PodCondition | None = None  # our last PodScheduled
        self.outdated = False  # the server has a newer state: the next observation decides
        self.backoff: Backoff | None = None

    def says(self, wish: PodCondition) -> bool:
        """Return whether the pod has a wanted condition already, for its current generation."""
        behind = wish == self.scheduled and 0 < self.observed < self.generation
        return wish == self.held.get(wish.type) and not behind

    def nominates(self, wish: _Wish) -> bool:
        """Return whether the pod has a wanted nomination already."""
        return (wish.node, wish.room) == (self.nominated, self.room)


class PodConditions:
    """Writer of the newest conditions and nominated node of each pending pod, one write per pod at a time.

    `observe` sets the known state of a pod; a write without a change is skipped. Each write contains the
    resourceVersion on which it was decided, so the server rejects it for a pod that was bound, gated or recreated
    meanwhile, and the next observation decides whether it is repeated. Unobserved pods are not written. `now`
    returns seconds since the epoch.
    """

    def __init__(
        self, client: KubeClient, pool: WritePool, now: Callable[[], float], retry: RetryPolicy | None = None
    ) -> None:
        self._client = client
        self._pool = pool
        self._now = now
        self._retry = retry or RetryPolicy()
        self._pods: dict[str, _Known] = {}

    def __contains__(self, uid: str) -> bool:
        """Return whether the writer tracks a pod."""
        return uid in self._pods

    def __len__(self) -> int:
        """Return the number of tracked pods."""
        return len(self._pods)

    def observe(
        self,
        uid: str,
        namespace: str,
        name: str,
        version: str,
        conditions: Sequence[PodCondition],
        *,
        nominated: str = "",
        room: str = "",
        waits: bool = True,
        generation: int = 0,
        observed: int = 0,
    ) -> None:
        """Set the observed state of a pod. A pod that is not pending (`waits` False: it has a node or gates) gets
        no further verdict. `room` is its annotation with held room, `observed` the observedGeneration of its
        PodScheduled."""
        known = self._pods.get(uid)
        held = {condition.type: condition for condition in conditions} if conditions else {}
        if known is None:
            if not waits and not _is_held_back(held.get(ADMITTED)):
                return
            known = self._pods[uid] = _Known(namespace, name)
        elif waits and _is_older(version, known.version):  # a pod does not wait again
            return
        known.version, known.held, known.outdated = version, held, False
        known.waits, known.nominated, known.room = waits, nominated, room
        known.generation, known.observed = generation, observed
        if not waits:
            known.wanted.clear()
            if _is_held_back(held.get(ADMITTED)):
                self.set_conditions(uid, _ADMISSION_OVER)
            if not known.wanted and not known.busy:
                del self._pods[uid]
            _settle(known, NominationOutcome.LOST)
        else:
            if known.scheduled is not None and known.scheduled == held.get(POD_SCHEDULED):
                self.set_conditions(uid, known.wanted.get(POD_SCHEDULED, known.scheduled))
            self._go_on(uid, known)

    def condition_of(self, uid: str, kind: str) -> PodCondition | None:
        """Return the known condition of a pod by type; None if it has none."""
        known = self._pods.get(uid)
        return known.held.get(kind) if known is not None else None

    def _said(self, uid: str, kind: str) -> tuple[PodCondition | None, PodCondition | None]:
        """Return the known and the wanted condition of a pod by type."""
        known = self._pods.get(uid)
        return (known.held.get(kind), known.wanted.get(kind)) if known is not None else (None, None)

    def forget(self, uid: str) -> None:
        known = self._pods.pop(uid, None)
        if known is not None:
            _settle(known, NominationOutcome.LOST)

    def nominate(self, uid: str, node: str, report: NominationReport = _unheard, room: str = "") -> None:
        """Write the nominated node of a pod (status.nominatedNodeName), and the annotation with the room that is
        held for its gang's expected members; "" clears either."""
        known = self._pods.get(uid)
        if known is None or not known.waits:
            report(NominationOutcome.LOST)
            return
        _settle(known, NominationOutcome.SUPERSEDED)
        wish = _Wish(node, room, report)
        if known.nominates(wish) and not known.busy:
            report(NominationOutcome.WRITTEN)
            return
        known.nomination = wish
        self._begin(uid, known, Urgency.NOMINATE)

    def set_verdict(self, uid: str, verdict: Verdict) -> None:
        """Write a verdict to a pod as conditions. A pod that waits for quota or order is not marked unschedulable,
        and an admitted pod is not marked as held back. LastVerdict has the exact code and counts."""
        conditions = [_condition_of(verdict)]
        conditions.append(PodCondition(LAST_VERDICT, "True", verdict.code, told_fields(verdict)))
        if verdict.unschedulable:
            if _is_held_back(self.condition_of(uid, ADMITTED)):
                conditions.append(_ADMISSION_OVER)
        else:
            # PodScheduled False is known, or its write is queued: it must not keep the reason Unschedulable.
            if any(entry is not None and entry.status == "False" for entry in self._said(uid, POD_SCHEDULED)):
                conditions.append(PodCondition(POD_SCHEDULED, "False", verdict.code, text_of(verdict)))
        self.set_conditions(uid, *conditions)

    def told_before(self, uid: str, verdict: Verdict) -> bool | None:
        """Return whether an earlier process wrote this verdict to the pod, with equal counts. None if the pod has a
        verdict with another cause, or none."""
        known, condition = self._pods.get(uid), _condition_of(verdict)
        held = known.held.get(condition.type) if known is not None else None
        last = known.held.get(LAST_VERDICT) if known is not None else None
        if held is None or last is None or (held.status, held.reason) != (condition.status, condition.reason):
            return None
        told = read_told(last.reason, last.message)
        if told is None or (told.code, told.fields.objects) != (verdict.code, carried_objects(verdict)):
            return None
        return held.message == condition.message

    def binding_submitted(self, uid: str) -> None:
        """Drop unwritten conditions of a pod whose binding was submitted: the API server sets PodScheduled."""
        known = self._pods.get(uid)
        if known is not None:
            known.wanted.clear()
            if _is_held_back(known.held.get(ADMITTED)):
                self.set_conditions(uid, _ADMISSION_OVER)
            _settle(known, NominationOutcome.LOST)

    def set_conditions(self, uid: str, *conditions: PodCondition) -> None:
        known = self._pods.get(uid)
        if known is None:
            return
        for condition in conditions:
            if condition.type == POD_SCHEDULED:
                known.scheduled = condition
            if known.says(condition) and not known.busy:
                known.wanted.pop(condition.type, None)
            else:
                known.wanted[condition.type] = condition
        if known.wanted:
            self._begin(uid, known)

    def _go_on(self, uid: str, known: _Known) -> None:
        if known.nomination is not None:
            self._begin(uid, known, Urgency.NOMINATE)
        elif known.wanted:
            self._begin(uid, known)

    def _begin(self, uid: str, known: _Known, urgency: Urgency = Urgency.STATUS) -> None:
        """Submit a write of the pod's conditions unless one of at least this urgency is queued or running."""
        if known.outdated or (known.busy and (known.queued is None or known.queued <= urgency)):
            return
        known.busy, known.queued, known.backoff = True, urgency, None
        known.ticket += 1
        ticket = known.ticket
        self._pool.submit(urgency, lambda: self._write(uid, known, ticket))

    async def _write(self, uid: str, known: _Known, ticket: int) -> float | None:
        if ticket != known.ticket:
            return None
        known.queued = None
        pause: float | None = None
        try:
            pause = await self._attempt(uid, known)
        except Exception:
            # The pool logs an unexpected error; the write is not retried.
            known.wanted.clear()
            _settle(known, NominationOutcome.REFUSED)
            raise
        finally:
            if pause is None:
                known.busy = False
                if self._pods.get(uid) is known:
                    self._go_on(uid, known)
        return pause

    async def _attempt(self, uid: str, known: _Known) -> float | None:
        """Send one patch of a pod's conditions. Return the seconds until the next attempt, or None if none is
        needed."""
        if self._pods.get(uid) is not known:
            return None
        changes = [wish for wish in known.wanted.values() if not known.says(wish)]
        nomination = known.nomination if known.nomination and not known.nominates(known.nomination) else None
        if not changes and nomination is None:
            known.wanted.clear()
            _settle(known, NominationOutcome.WRITTEN)
            return None
        sent, version = dict(known.wanted), known.version
        path = PODS.path(known.namespace, known.name, "status")
        try:
            answer = await self._client.request(
                "PATCH",
                path,
                body=self._patch(uid, known, changes, nomination),
                content_type=PatchType.STRATEGIC.value,
            )
        except (ApiError, ConnectionLost, ConfigError) as error:
            return self._failed(uid, known, error, version)
        self._written(known, changes, nomination, answer)
        known.wanted = {kind: wish for kind, wish in known.wanted.items() if sent.get(kind) != wish}
        if nomination is not None and known.nomination is nomination:
            _settle(known, NominationOutcome.WRITTEN)
        return None

    def _written(self, known: _Known, changes: list[PodCondition], nomination: _Wish | None, answer: bytes) -> None:
        """Set the known conditions of a pod from the answer to the patch, until the watch delivers the pod."""
        try:
            version = _ANSWER.decode(answer).metadata.resource_version
        except msgspec.DecodeError:
            return
        if version and not _is_older(version, known.version):
            known.version = version
            known.held = {**known.held, **{change.type: change for change in changes}}
            if known.scheduled in changes:
                known.observed = known.generation
            if nomination is not None:
                known.nominated, known.room = nomination.node, nomination.room

    def _failed(self, uid: str, known: _Known, error: Exception, version: str) -> float | None:
        """Handle a failed patch. Return the seconds until the next attempt. Temporary errors are retried: a pod
        without its reason is invisible to users and autoscalers."""
        status = error.status if isinstance(error, ApiError) else 0
        if status == 409 and known.version != version:
            return 0.0  # a newer version of the pod was observed during the request
        known.backoff = known.backoff or self._retry.backoff()
        tries = known.backoff.failures + 1
        if status == 409 and tries == self._retry.attempts:
            # The next observation decides. Without one, only this timer retries.
            known.outdated = True
            asyncio.get_running_loop().call_later(self._retry.cap, self._insist, uid, known)
            return None
        if status == 409 or isinstance(error, ConfigError) or self._retry.retryable(error, "PATCH", guarded=True):
            # The client logs an unreachable server once.
            if tries == self._retry.attempts and not isinstance(error, ConnectionLost):
                self._complain(known, "it is retried", error)
            return known.backoff.next(error.retry_after if isinstance(error, ApiError) else None)
        known.wanted.clear()
        if status != 404:
            self._complain(known, "it is not retried", error)
        _settle(known, NominationOutcome.LOST if status == 404 else NominationOutcome.REFUSED)
        return None

    def _insist(self, uid: str, known: _Known) -> None:
        if known.outdated and self._pods.get(uid) is known:
            known.outdated = False
            self._go_on(uid, known)

    def _complain(self, known: _Known, end: str, error: Exception) -> None:
        log.warning("the status of pod %s/%s was not written; %s: %s", known.namespace, known.name, end, error)

    def _patch(self, uid: str, known: _Known, changes: list[PodCondition], nomination: _Wish | None) -> bytes:
        """Return the patch of a pod's conditions, nominated node and held room. Conditions merge by type. The
        transition time changes only with the status."""
        conditions = []
        for change in changes:
            last = known.held.get(change.type)
            condition: dict[str, Any] = {
                "type": change.type,
                "status": change.status,
                "reason": change.reason,
                "message": change.message,
            }
            if change.type == POD_SCHEDULED and known.generation:
                condition["observedGeneration"] = known.generation
            if last is None or last.status != change.status:
                condition["lastTransitionTime"] = format_time(self._now())
            conditions.append(condition)
        metadata: dict[str, Any] = {"uid": uid}
        if known.version:
            metadata["resourceVersion"] = known.version
        status: dict[str, Any] = {"conditions": conditions} if conditions else {}
        if nomination is not None:
            status["nominatedNodeName"] = nomination.node or None
            if nomination.room != known.room:
                metadata["annotations"] = {HELD_ROOM: nomination.room or None}
        return msgspec.json.encode({"metadata": metadata, "status": status})


def _settle(known: _Known, outcome: NominationOutcome) -> None:
    """Report the outcome of the pod's unwritten nomination, if there is one."""
    nomination, known.nomination = known.nomination, None
    if nomination is not None:
        nomination.report(outcome)


def _is_held_back(admission: PodCondition | None) -> bool:
    return admission is not None and admission.status == "False"


def _is_older(version: str, than: str) -> bool:
    """Return whether a resourceVersion is older than another (comparable since Kubernetes 1.35)."""
    return 0 <= version_number(version) < version_number(than)


def _condition_of(verdict: Verdict) -> PodCondition:
    if not verdict.unschedulable:
        return PodCondition(ADMITTED, "False", verdict.code, text_of(verdict))
    reason = SCHEDULER_ERROR if verdict.fault else UNSCHEDULABLE
    return PodCondition(POD_SCHEDULED, "False", reason, text_of(verdict))
