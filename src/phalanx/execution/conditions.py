"""Conditions of pods that wait: written only when they would say something new, and never over a newer truth."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from phalanx.execution.binder import PODS
from phalanx.execution.writes import Urgency, WritePool
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.conditions import PodCondition
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost
from phalanx.kube.retry import Backoff, RetryPolicy
from phalanx.kube.timestamps import format_time
from phalanx.model.verdict import Verdict

log = logging.getLogger(__name__)

POD_SCHEDULED = "PodScheduled"
UNSCHEDULABLE = "Unschedulable"
# What waits for a quota or a turn must not look unschedulable: autoscalers would add nodes for it.
ADMITTED = "phalanx.dev/Admitted"
_LIMIT = 32 * 1024


def text_of(verdict: Verdict) -> str:
    """The sentence, and the change that would help."""
    text = verdict.message if not verdict.change else f"{verdict.message.rstrip('.')}. To help: {verdict.change}."
    return text[:_LIMIT]


class _Version(msgspec.Struct):
    resource_version: str = msgspec.field(default="", name="resourceVersion")


class _Answer(msgspec.Struct):
    metadata: _Version = msgspec.field(default_factory=_Version)


_ANSWER = msgspec.json.Decoder(_Answer)


class _Known:
    """One pod: what the API holds as far as we know, and what it is to say."""

    __slots__ = ("backoff", "busy", "held", "name", "namespace", "outdated", "version", "wanted")

    def __init__(self, namespace: str, name: str) -> None:
        self.namespace = namespace
        self.name = name
        self.version = ""
        self.held: dict[str, PodCondition] = {}
        self.wanted: dict[str, PodCondition] = {}
        self.busy = False  # a write waits in the pool or is under way
        self.outdated = False  # the server has a newer state than we: the next observation decides
        self.backoff: Backoff | None = None


class PodConditions:
    """Writes conditions through the pool, one write per pod at a time, the newest wish only.

    `observe` tells what the API holds; a write that would not change it is not made. Each write names the
    resourceVersion that it was decided on. So it can never land on a pod that was bound (or gated, or deleted
    and created anew) meanwhile: the server refuses it, and the next observation decides whether it is still
    wanted. Pods that are not observed are not written to. `now` gives seconds since the epoch.
    """

    def __init__(
        self, client: KubeClient, pool: WritePool, now: Callable[[], float], retry: RetryPolicy | None = None
    ) -> None:
        self._client = client
        self._pool = pool
        self._now = now
        self._retry = retry or RetryPolicy()
        self._pods: dict[str, _Known] = {}

    def __len__(self) -> int:
        """Pods that are kept in mind."""
        return len(self._pods)

    def observe(
        self,
        uid: str,
        namespace: str,
        name: str,
        version: str,
        conditions: Iterable[PodCondition],
        *,
        waits: bool = True,
    ) -> None:
        """What a pod says, as last seen. One that does not wait (it has a node, or gates) is judged no more."""
        known = self._pods.get(uid)
        held = {condition.type: condition for condition in conditions}
        if known is None:
            if not waits and not _is_held_back(held.get(ADMITTED)):
                return
            known = self._pods[uid] = _Known(namespace, name)
        elif _is_older(version, known.version):
            return
        known.version, known.held, known.outdated = version, held, False
        if not waits:
            known.wanted.clear()
            self.say(uid, *self._admission_over(uid))
            if not known.wanted and not known.busy:
                del self._pods[uid]
        elif known.wanted:
            self._begin(uid, known)

    def held(self, uid: str, kind: str) -> PodCondition | None:
        """What the pod says now, as far as we know."""
        known = self._pods.get(uid)
        return known.held.get(kind) if known is not None else None

    def forget(self, uid: str) -> None:
        self._pods.pop(uid, None)

    def judge(self, uid: str, verdict: Verdict) -> None:
        """A verdict in conditions: who waits for a turn must not look unschedulable, nor who was admitted held."""
        text = text_of(verdict)
        if verdict.unschedulable:
            conditions = [PodCondition(POD_SCHEDULED, "False", UNSCHEDULABLE, text)]
            conditions += self._admission_over(uid)
        else:
            conditions = [PodCondition(ADMITTED, "False", verdict.code, text)]
            scheduled = self.held(uid, POD_SCHEDULED)
            if scheduled is not None and scheduled.status == "False":
                conditions.append(PodCondition(POD_SCHEDULED, "False", verdict.code, text))
        self.say(uid, *conditions)

    def placed(self, uid: str) -> None:
        """The pod was placed: the API server itself says so, and what was not written yet is void."""
        known = self._pods.get(uid)
        if known is not None:
            known.wanted.clear()
            self.say(uid, *self._admission_over(uid))

    def say(self, uid: str, *conditions: PodCondition) -> None:
        known = self._pods.get(uid)
        if known is None:
            return
        for condition in conditions:
            if condition == known.held.get(condition.type) and not known.busy:
                known.wanted.pop(condition.type, None)
            else:
                known.wanted[condition.type] = condition
        if known.wanted:
            self._begin(uid, known)

    def _admission_over(self, uid: str) -> list[PodCondition]:
        over = PodCondition(ADMITTED, "True", "Admitted", "")
        return [over] if _is_held_back(self.held(uid, ADMITTED)) else []

    def _begin(self, uid: str, known: _Known) -> None:
        if not known.busy and not known.outdated:
            known.busy, known.backoff = True, None
            self._pool.submit(Urgency.STATUS, lambda: self._write(uid, known))

    async def _write(self, uid: str, known: _Known) -> float | None:
        pause: float | None = None
        try:
            pause = await self._attempt(uid, known)
        except Exception:
            # Nobody knows what it was: said once by the pool, not tried for ever.
            known.wanted.clear()
            raise
        finally:
            if pause is None:
                known.busy = False
                if known.wanted and self._pods.get(uid) is known:
                    self._begin(uid, known)
        return pause

    async def _attempt(self, uid: str, known: _Known) -> float | None:
        """One patch; the seconds until the next try, or None when there is nothing more to do now."""
        if self._pods.get(uid) is not known:
            return None
        changes = [wish for kind, wish in known.wanted.items() if wish != known.held.get(kind)]
        if not changes:
            known.wanted.clear()
            return None
        sent, version = dict(known.wanted), known.version
        path = PODS.path(known.namespace, known.name, "status")
        try:
            answer = await self._client.request(
                "PATCH",
                path,
                body=self._patch(uid, known, changes),
                content_type=PatchType.STRATEGIC.value,
            )
        except (ApiError, ConnectionLost, ConfigError) as error:
            return self._failed(known, error, version)
        self._written(known, changes, answer)
        known.wanted = {kind: wish for kind, wish in known.wanted.items() if sent.get(kind) != wish}
        return None

    def _written(self, known: _Known, changes: list[PodCondition], answer: bytes) -> None:
        """Until the watch tells, the answer is what we know."""
        try:
            version = _ANSWER.decode(answer).metadata.resource_version
        except msgspec.DecodeError:
            return
        if version and not _is_older(version, known.version):
            known.version = version
            known.held = {**known.held, **{change.type: change for change in changes}}

    def _failed(self, known: _Known, error: Exception, version: str) -> float | None:
        """The seconds until the next try. What may pass is waited for: a pod without its reason is invisible to
        users and autoscalers.
        """
        status = error.status if isinstance(error, ApiError) else 0
        if status == 409 and known.version != version:
            return 0.0  # the newer state has been observed while the answer was on its way
        known.backoff = known.backoff or self._retry.backoff()
        tries = known.backoff.failures + 1
        if status == 409 and tries == self._retry.attempts:
            # The newer state is still to come; it decides.
            known.outdated = True
            return None
        if status == 409 or isinstance(error, ConfigError) or self._retry.retryable(error, "PATCH", guarded=True):
            if tries == self._retry.attempts:
                self._complain(known, "it is tried on", error)
            return known.backoff.next(error.retry_after if isinstance(error, ApiError) else None)
        known.wanted.clear()
        if status != 404:
            self._complain(known, "it is given up", error)
        return None

    def _complain(self, known: _Known, end: str, error: Exception) -> None:
        log.warning("the condition of pod %s/%s was not written, %s: %s", known.namespace, known.name, end, error)

    def _patch(self, uid: str, known: _Known, changes: list[PodCondition]) -> bytes:
        """Conditions are merged by type, so others survive. The transition time moves only with the status."""
        conditions = []
        for change in changes:
            last = known.held.get(change.type)
            condition: dict[str, Any] = {
                "type": change.type,
                "status": change.status,
                "reason": change.reason,
                "message": change.message,
            }
            if last is None or last.status != change.status:
                condition["lastTransitionTime"] = format_time(self._now())
            conditions.append(condition)
        metadata = {"uid": uid} | ({"resourceVersion": known.version} if known.version else {})
        return msgspec.json.encode({"metadata": metadata, "status": {"conditions": conditions}})


def _is_held_back(admission: PodCondition | None) -> bool:
    return admission is not None and admission.status == "False"


def _is_older(version: str, than: str) -> bool:
    """Whether one resourceVersion is known to be older than another (they are comparable since 1.35)."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)
