"""Evictions of pods: first the condition with the reason, then the deletion of the pod with this uid."""

from __future__ import annotations

import enum
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from phalanx.dialects.pods.evictability import DISRUPTION_TARGET, PREEMPTION_BY_SCHEDULER
from phalanx.execution.writes import Urgency, WritePool
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.core_resources import PODS
from phalanx.kube.errors import ApiError, ConfigError, ConnectionLost, Unreachable
from phalanx.kube.retry import Backoff
from phalanx.kube.timestamps import format_time
from phalanx.model.decisions import Evict
from phalanx.model.eviction_condition import EVICTION, eviction_fields
from phalanx.model.gang import GangKey
from phalanx.model.pod import Pod

log = logging.getLogger(__name__)

# How pods are evicted (policy phalanx.evictions).
DELETE = "delete"
EVICTION_API = "eviction-api"
# Interval of the check whether an earlier eviction of the same pod was withdrawn (seconds).
_NEXT_LOOK = 0.05


class EvictionOutcome(enum.Enum):
    """Outcome of a pod's eviction."""

    EVICTED = "evicted"  # accepted by the API server: the pod terminates
    GONE = "gone"  # the pod was deleted by another client, or replaced
    REFUSED = "refused"  # rejected; the pod stays
    CALLED_OFF = "called off"  # not needed any more; nothing was deleted


class EvictResult(msgspec.Struct, frozen=True):
    evict: Evict
    outcome: EvictionOutcome
    message: str = ""


# Called once per eviction.
EvictReport = Callable[[EvictResult], None]
# Returns GONE or CALLED_OFF if a pod must not be deleted, else None.
EvictGuard = Callable[[Evict], EvictionOutcome | None]


def no_reason_to_stop(evict: Evict) -> EvictionOutcome | None:
    return None


class _Batch:
    """Evictions of one decision. No pod is deleted before all of them have the condition, so that a restarted
    process can complete the decision.

    `unmarked` is the number of pods without the condition, `ready` are the others. A rejected eviction (`failed`)
    cancels all, except those of gangs with deleted members (`leaving`).
    """

    __slots__ = ("failed", "gangs", "leaving", "ready", "unmarked")

    def __init__(self) -> None:
        self.unmarked = 0
        self.gangs: Counter[GangKey] = Counter()
        self.ready: list[_Posting] = []
        self.failed = False
        self.leaving: set[GangKey] = set()

    @property
    def in_parts(self) -> bool:
        """Whether several victims of the decision are members of one gang."""
        return any(count > 1 for count in self.gangs.values())


class _Posting:
    """Eviction of one pod in progress. `marked`: the pod has the condition (None: unknown). `open`: a deletion
    lacks its answer."""

    __slots__ = ("backoff", "batch", "evict", "guard", "marked", "message", "open", "report", "tries")

    def __init__(
        self, evict: Evict, report: EvictReport, guard: EvictGuard, backoff: Backoff, batch: _Batch
    ) -> None:
        self.evict = evict
        self.batch = batch
        batch.unmarked += 1
        if evict.gang is not None:
            batch.gangs[evict.gang] += 1
        self.report = report
        self.guard = guard
        self.backoff = backoff
        self.marked: bool | None = False
        self.open = False
        self.tries = 0
        self.message = ""


class Evictor:
    """Executor of evictions through a write pool, which reports each outcome exactly once.

    Each request contains the uid of the pod, so it can be repeated after a lost answer and never affects a new pod
    of the same name. `attempts` is the number of retried answers (429, also of a disruption budget, and 5xx); an
    unreachable server is retried without limit. The grace period is that of the pod.

    `through` returns the method. DELETE writes the condition DisruptionTarget on all pods of a decision before the
    first deletion, so that a Job does not count it as a failure. If the condition cannot be written, the pod is not
    deleted, as in kube-scheduler: a Job that fails at its backoffLimit is worse than a pending preemptor.
    EVICTION_API lets the API server write the condition with the deletion, if no disruption budget forbids it. If
    several members of a gang are victims, all pods of the decision have the condition first here as well, so that a
    restarted process can complete the eviction of the gang.
    `scheduler` is the prefix of the condition's message, `now` returns seconds since the epoch. `says_so` returns
    whether a pod has our condition already, written by an earlier process.
    """

    def __init__(
        self,
        client: KubeClient,
        pool: WritePool,
        now: Callable[[], float],
        *,
        scheduler: str = "phalanx",
        through: Callable[[], str] = lambda: DELETE,
        attempts: int = 6,
        backoff: Callable[[], Backoff] = lambda: Backoff(base=0.2, cap=5.0),
    ) -> None:
        self._client = client
        self._pool = pool
        self._now = now
        self._scheduler = scheduler
        self._through = through
        self.says_so: Callable[[str], bool] = lambda uid: False
        # Pods whose condition was withdrawn: their observed state can be older.
        self._spared: set[str] = set()
        # Pods whose condition is being withdrawn: a new eviction waits, so that its condition is the last one.
        self._withdrawing: set[str] = set()
        self._attempts = attempts
        self._backoff = backoff

    def forget(self, uid: str) -> None:
        """Remove the eviction state of a deleted pod."""
        self._spared.discard(uid)
        self._withdrawing.discard(uid)

    def withdraw(self, pod: Pod) -> None:
        """Withdraw the eviction condition of a pod that is not being evicted."""
        if pod.uid not in self._withdrawing:
            self._withdrawing.add(pod.uid)
            self._pool.submit(Urgency.DELETE, lambda: self._withdraw(pod))

    async def _withdraw(self, pod: Pod) -> None:
        try:
            await self._unmark(pod)
        finally:
            self._withdrawing.discard(pod.uid)

    def submit(
        self, evictions: Iterable[Evict], report: EvictReport, guard: EvictGuard = no_reason_to_stop
    ) -> None:
        """Evict pods. `guard` is called before each attempt until a deletion was sent."""
        batches: dict[str, _Batch] = {}
        for evict in evictions:
            batch = batches.setdefault(evict.cause, _Batch())
            self._push(_Posting(evict, report, guard, self._backoff(), batch))

    def _push(self, posting: _Posting) -> None:
        self._pool.submit(Urgency.DELETE, lambda: self._advance(posting))

    async def _advance(self, posting: _Posting) -> float | None:
        evict = posting.evict
        if evict.uid in self._withdrawing:
            return _NEXT_LOOK
        try:
            step = await self._step(posting)
        except Exception as error:
            log.exception("evicting %s/%s failed unexpectedly", evict.namespace, evict.name)
            step = EvictResult(evict, EvictionOutcome.REFUSED, f"{type(error).__name__}: {error}")
        if step is None or isinstance(step, float):
            return step
        if posting.marked is not True:
            self._settle(posting, failed=step.outcome is EvictionOutcome.REFUSED)
        stays = step.outcome in (EvictionOutcome.REFUSED, EvictionOutcome.CALLED_OFF)
        if stays and posting.marked is not False:
            await self._unmark(posting.evict)
        posting.report(step)
        return None

    def _settle(self, posting: _Posting, *, failed: bool = False) -> None:
        """Record that a pod of the decision has its condition or needs none. After the last one, submit the
        deletions."""
        batch = posting.batch
        batch.unmarked -= 1
        batch.failed = batch.failed or failed
        if not batch.unmarked:
            ready, batch.ready = batch.ready, []
            for other in ready:
                self._push(other)

    async def _step(self, posting: _Posting) -> EvictResult | float | None:
        """Execute the next step of an eviction. Return the result, the seconds until the next step, or None while
        other pods of the decision lack the condition."""
        if not posting.open:
            stop = posting.guard(posting.evict)
            if stop is EvictionOutcome.CALLED_OFF and posting.evict.gang in posting.batch.leaving:
                stop = None
            if stop is None and posting.batch.failed:
                stop = EvictionOutcome.CALLED_OFF
            if stop is not None:
                return EvictResult(posting.evict, stop)
        try:
            asks = self._through() == EVICTION_API
            if not asks or posting.marked is True or posting.batch.in_parts:
                if posting.marked is not True:
                    if posting.evict.uid in self._spared or not self.says_so(posting.evict.uid):
                        await self._mark(posting)
                    posting.marked = True
                    self._settle(posting)
                if posting.batch.unmarked:
                    posting.batch.ready.append(posting)
                    return None
                if posting.batch.failed and not posting.open:
                    return EvictResult(posting.evict, EvictionOutcome.CALLED_OFF)
            await self._sent(posting, self._ask(posting.evict) if asks else self._delete(posting.evict))
        except (ConnectionLost, ConfigError) as error:
            posting.message = str(error)
            return posting.backoff.next()
        except ApiError as error:
            return await self._refused(posting, error)
        return EvictResult(posting.evict, EvictionOutcome.EVICTED)

    async def _sent(self, posting: _Posting, deletion: Awaitable[object]) -> None:
        """Send the deletion of a pod and record whether it can have taken effect without an answer."""
        if posting.evict.gang is not None:
            posting.batch.leaving.add(posting.evict.gang)
        try:
            await deletion
        except Unreachable:
            raise
        except ConnectionLost:
            posting.open = True
            raise
        except ApiError as error:
            posting.open = posting.open or error.status >= 500
            raise

    async def _delete(self, evict: Evict) -> None:
        await self._client.delete(PODS.path(evict.namespace, evict.name), uid=evict.uid)

    async def _ask(self, evict: Evict) -> None:
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": evict.name, "namespace": evict.namespace},
            "deleteOptions": {"preconditions": {"uid": evict.uid}},
        }
        await self._client.create(PODS.path(evict.namespace, evict.name, "eviction"), eviction)

    async def _mark(self, posting: _Posting) -> None:
        evict = posting.evict
        message = f"{self._scheduler}: {evict.sentence}"
        fields = eviction_fields(self._scheduler, evict)
        try:
            await self._say(
                evict,
                (DISRUPTION_TARGET, "True", PREEMPTION_BY_SCHEDULER, message),
                (EVICTION, "True", evict.reason.value, fields),
            )
        except ConnectionLost:
            posting.marked = None
            raise
        self._spared.discard(posting.evict.uid)

    async def _say(self, pod: Evict | Pod, *wanted: tuple[str, str, str, str]) -> None:
        """Write conditions, given as (type, status, reason, message), to a pod."""
        now = format_time(self._now())
        conditions = [
            {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": now}
            for kind, status, reason, message in wanted
        ]
        patch = {"metadata": {"uid": pod.uid}, "status": {"conditions": conditions}}
        path = PODS.path(pod.namespace, pod.name, "status")
        await self._client.patch(path, patch, PatchType.STRATEGIC)

    async def _unmark(self, pod: Evict | Pod) -> None:
        """Withdraw the eviction condition of a pod that is not evicted after all, so that its next failure counts.
        One attempt: LeftoverEvictions repeats it for pods that still have the condition."""
        self._spared.add(pod.uid)
        try:
            stays = f"{self._scheduler}: the pod stays"
            await self._say(pod, (DISRUPTION_TARGET, "False", "", stays), (EVICTION, "False", "", ""))
        except (ApiError, ConnectionLost, ConfigError) as error:
            log.debug("the condition of pod %s/%s was not withdrawn: %s", pod.namespace, pod.name, error)

    async def _refused(self, posting: _Posting, error: ApiError) -> EvictResult | float:
        evict = posting.evict
        posting.message = f"{error.status} {error.reason}: {error.message}"
        passing = error.status in (404, 409, 429) or error.status >= 500
        if error.status == 404 and error.from_api_server:
            return self._left(posting)
        posting.tries += 1
        final = not passing or posting.tries >= self._attempts
        # For a replaced pod the server answers 409 to a deletion and 422 to a status.
        if error.status in (409, 422) or (final and posting.open):
            stands = await self._stands(evict)
            if stands is False:
                return self._left(posting)
            posting.open = posting.open and not stands
        if not final:
            return posting.backoff.next(error.retry_after)
        return EvictResult(evict, EvictionOutcome.REFUSED, posting.message)

    def _left(self, posting: _Posting) -> EvictResult:
        outcome = EvictionOutcome.EVICTED if posting.open else EvictionOutcome.GONE
        return EvictResult(posting.evict, outcome, posting.message)

    async def _stands(self, evict: Evict) -> bool | None:
        """Return whether the pod exists and does not terminate; None without an answer of the API server."""
        try:
            pod: Any = await self._client.get(PODS.path(evict.namespace, evict.name))
        except ApiError as error:
            return False if error.status == 404 and error.from_api_server else None
        except (ConnectionLost, ConfigError):
            return None
        metadata = pod.get("metadata") or {}
        return metadata.get("uid") == evict.uid and not metadata.get("deletionTimestamp")
