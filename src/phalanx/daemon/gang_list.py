"""List of all gangs that the scheduler knows, computed in slices and cached for seconds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Any

import msgspec

from phalanx.cluster.accounts import ChargePath
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.cluster.state import ClusterState
from phalanx.daemon.gang_entries import GangEntry, ListedGangs, whole_or_part
from phalanx.model.devices.gpu_counts import gpu_percent
from phalanx.model.gang import GangKey
from phalanx.model.gang_names import GANG, PODGROUP
from phalanx.model.pod import ACTIVE, MemberState
from phalanx.model.text.moments import shown_moment
from phalanx.model.verdict import Verdict
from phalanx.views.gang_names import gang_kind, shown, target
from phalanx.views.gang_state import gang_state
from phalanx.views.promises import PromisedStart, Promises
from phalanx.views.record_facts import gang_facts, pod_facts

# Longest time in seconds without a return to the event loop.
_SLICE = 0.003
# Seconds for which a list is valid: a minimum, a multiple of the cost of the list, a maximum.
_GOOD_FOR, _GOOD_FOR_TIMES, _GOOD_FOR_AT_MOST = 1.0, 10.0, 15.0
_ON_NODES = frozenset(ACTIVE)

VerdictOf = Callable[[GangKey], Verdict | None]


class GangList:
    """Cached list of all gangs.

    `now` is in seconds since the epoch. The scheduler runs between two slices, so entries can be of different
    times.
    """

    def __init__(
        self,
        state: ClusterState,
        promises: Callable[[], Promises],
        verdict_of: VerdictOf,
        now: Callable[[], float] = time.time,
        verdict_of_pod: Callable[[PodRecord], Verdict | None] = lambda record: record.last_verdict,
    ) -> None:
        self._state = state
        self._promises = promises
        self._verdict_of, self._verdict_of_pod = verdict_of, verdict_of_pod
        self._now = now
        self._making = asyncio.Lock()
        self._entries: list[GangEntry] = []
        self._moment = ""
        self._good_until = 0.0
        self._cost = 0.0
        # GPUs that pods request, by usage: equal for all members of most gangs.
        self._gpus: dict[Any, int] = {}

    async def answer(self, namespace: str = "", queue: str = "") -> bytes:
        """Return the JSON of a ListedGangs: gangs and single pods of one namespace and queue ("" for all)."""
        moment, entries = await self.entries()
        return await asyncio.to_thread(_encoded, entries, moment, namespace, queue)

    async def entries(self) -> tuple[str, list[GangEntry]]:
        """Return the time of the list (RFC 3339) and all gangs and single pods."""
        async with self._making:
            if time.monotonic() >= self._good_until:
                self._cost, begun = 0.0, time.monotonic()
                self._moment = shown_moment(self._now())
                self._entries = [entry async for entry in self._made()]
                good_for = max(_GOOD_FOR, min(_GOOD_FOR_AT_MOST, _GOOD_FOR_TIMES * self._cost))
                self._good_until = begun + good_for
            return self._moment, self._entries

    async def _made(self) -> AsyncIterator[GangEntry]:
        """Yield the entry of every gang and every single pod of this scheduler, by namespace and name."""
        self._gpus.clear()
        starts = self._starts()
        gangs, pods = self._state.gangs, self._state.pods
        begun = time.monotonic()
        for key in sorted(dict(gangs.items())):
            record = gangs.get(key)
            if record is not None and (entry := self._gang(record, starts.get(key))) is not None:
                yield entry
            begun = await self._paused(begun)
        for uid in [record.pod.uid for record in pods.values() if record.gang is None and self._is_ours(record)]:
            pod = pods.get(uid)
            if pod is not None and not pod.pod.placeholder:
                yield self._pod(pod, starts.get(uid))
            begun = await self._paused(begun)
        self._cost += time.monotonic() - begun

    async def _paused(self, begun: float) -> float:
        """Return to the event loop if the current time slice is over; return the start of the current slice."""
        now = time.monotonic()
        if now - begun < _SLICE:
            return begun
        self._cost += now - begun
        await asyncio.sleep(0)
        return time.monotonic()

    def _is_ours(self, record: PodRecord) -> bool:
        return record.pod.scheduler in self._state.schedulers

    def _starts(self) -> Mapping[GangKey | str, Callable[[], PromisedStart]]:
        """Return the promised starts by gang, or by uid of a pod; their texts are made with the list entry."""
        promises = self._promises()
        starts: dict[GangKey | str, Callable[[], PromisedStart]] = {}
        for promise in promises.promises:
            for key in (promise.key,) if isinstance(promise.key, str) else promise.key:
                starts[key] = partial(promises.start, promise)
        return starts

    def _gang(self, record: GangRecord, promised: Callable[[], PromisedStart] | None) -> GangEntry | None:
        """Return the list entry of a gang; None for a gang of another scheduler."""
        members = list(record.members.values())
        ours = next((member for member in members if self._is_ours(member)), None)
        if members and ours is None:
            return None
        charge_path = ours.charge_path if ours is not None else None
        spec, counts = record.spec, record.counts()
        minimum = spec.min_member if spec is not None else 0
        first = members[0].pod if members else None
        state = gang_state(gang_facts(record))
        created = (
            spec.created if spec is not None and spec.created else min((m.pod.created for m in members), default=0)
        )
        verdict = self._verdict_of(record.key) if state.waits else None
        group = spec.source if spec is not None else None
        return GangEntry(
            kind=_kind(record),
            namespace=record.key.namespace,
            name=shown(record),
            uid=group.uid if group is not None else "",
            target=target(record),
            state=state,
            queue=_queue(charge_path) or (spec.queue if spec is not None else ""),
            user=first.user if first is not None else "",
            priority=max((member.pod.priority for member in members), default=0),
            scheduler=first.scheduler if first is not None else "",
            running=counts.running,
            minimum=minimum,
            total=max(spec.total if spec is not None else 0, counts.present + counts.gated),
            gpus=whole_or_part(sum(self._gpu_percent(member) for member in members if not member.pod.finished)),
            created=shown_moment(created),
            started=shown_moment(_started(members, minimum)),
            nodes=self._nodes(members),
            group=record.key.name,
            **_waits(verdict, promised),
        )

    def _pod(self, record: PodRecord, promised: Callable[[], PromisedStart] | None) -> GangEntry:
        pod, state = record.pod, gang_state(pod_facts(record))
        return GangEntry(
            kind="pod",
            namespace=pod.namespace,
            name=pod.name,
            uid=pod.uid,
            target=f"pod/{pod.name}",
            state=state,
            queue=_queue(record.charge_path),
            user=pod.user,
            priority=pod.priority,
            scheduler=pod.scheduler,
            running=int(record.state is MemberState.RUNNING),
            minimum=1,
            total=1,
            gpus=whole_or_part(self._gpu_percent(record)),
            created=shown_moment(pod.created),
            started=shown_moment(pod.started),
            nodes=self._nodes([record]),
            **_waits(self._verdict_of_pod(record) if state.waits else None, promised),
        )

    def _nodes(self, members: list[PodRecord]) -> tuple[str, ...]:
        names = self._state.nodes.names
        return tuple(
            sorted({names[member.row] for member in members if member.row >= 0 and member.state in _ON_NODES})
        )

    def _gpu_percent(self, record: PodRecord) -> int:
        usage = record.pod.pod_class.requests
        known = self._gpus.get(usage)
        if known is None:
            known = self._gpus[usage] = gpu_percent((*usage, *record.pod.pod_class.beside))
        return known


def _kind(record: GangRecord) -> str:
    """Return the kind of the gang's job; "gang" for a gang that only its pods declare."""
    kind, spec = gang_kind(record), record.spec
    return GANG if kind == PODGROUP and (spec is None or spec.source is None) else kind


def _waits(verdict: Verdict | None, promised: Callable[[], PromisedStart] | None) -> dict[str, Any]:
    fields: dict[str, Any] = {}
    if verdict is not None:
        fields.update(reason=verdict.code, message=verdict.message)
    if promised is not None:
        start = promised()
        fields.update(start=start.no_later_than, expected=start.expected, promise=start.origin)
    return fields


def _queue(charge_path: ChargePath | None) -> str:
    return charge_path.queue.key.name if charge_path is not None and charge_path.queue is not None else ""


def _started(members: list[PodRecord], minimum: int) -> int:
    begun = sorted(member.pod.started for member in members if member.pod.started)
    needed = max(1, minimum)
    return begun[needed - 1] if len(begun) >= needed else 0


def _encoded(entries: list[GangEntry], moment: str, namespace: str, queue: str) -> bytes:
    shown = [entry for entry in entries if namespace in ("", entry.namespace) and queue in ("", entry.queue)]
    return msgspec.json.encode(ListedGangs(moment, shown))
