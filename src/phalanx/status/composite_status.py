"""Status of CompositePodGroups, derived from their groups and written when it changes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from phalanx.cluster.composites import INVALID
from phalanx.cluster.pods.records import GangRecord
from phalanx.cluster.state import ClusterState
from phalanx.dialects.families.composites import CompositeStatusInput, composite_conditions
from phalanx.dialects.gangs.status_input import Conditions, conditions_in
from phalanx.dialects.intake import Intake
from phalanx.dialects.status import StatusChange
from phalanx.execution.writes import WritePool
from phalanx.kube.retry import RetryPolicy
from phalanx.model.composite import Composite
from phalanx.model.gang import GangKey, share_of
from phalanx.model.pod import MemberState
from phalanx.model.verdict import Verdict
from phalanx.scheduling.gang_placement.composite_verdicts import WAITING_FOR_COMPOSITE
from phalanx.status.group_disruption import disruption_condition
from phalanx.status.group_status import ever_scheduled
from phalanx.status.status_endpoint import StatusEndpoint
from phalanx.status.status_writer import GATHER, DerivedStatus, StatusWriter


class CompositeStatuses:
    """Writer of the status of CompositePodGroups, if it differs from the derived one.

    `touch` is cheap and is called for every change of a gang. Its composites are compared when the changes have
    settled, with at most one write per composite at a time. `verdict` returns the last published verdict on a gang,
    `disruption` the reason of its eviction as a whole, `now` seconds since the epoch. Trees without a member of
    this scheduler are ignored.
    """

    def __init__(
        self,
        endpoint: StatusEndpoint,
        pool: WritePool,
        state: ClusterState,
        intake: Intake,
        verdict: Callable[[GangKey], Verdict | None],
        now: Callable[[], float],
        disruption: Callable[[GangKey], str | None],
        retry: RetryPolicy | None = None,
    ) -> None:
        self._writer = StatusWriter(
            endpoint, pool, self._derive, lambda key: f"CompositePodGroup {key}", retry=retry
        )
        self._state = state
        self._composites = state.gangs.composites
        self._intake = intake
        self._verdict = verdict
        self._now = now
        self._disruption = disruption
        self._gathering: set[GangKey] = set()
        # Uids of composites whose first quorum was bound.
        self._scheduled: dict[GangKey, str] = {}
        # The uids of those whose verdicts were all known at some time.
        self._decided: dict[GangKey, str] = {}

    def touch(self, gang: GangKey) -> None:
        record = self._state.gangs.get(gang)
        root = self._composites.root(record) if record is not None else None
        if record is None or root is None:
            return
        # Read now: members can terminate before the status is derived.
        fresh = [spec for spec in self._composites.above(record) if not self._was_scheduled(spec)]
        if fresh and self._composites.fault(root) is None:
            placed = (spec for spec in fresh if self._holding(spec) >= max(1, spec.min_groups))
            self._scheduled.update((spec.key, spec.ref.uid) for spec in placed)
        if root not in self._gathering:
            self._gathering.add(root)
            asyncio.get_running_loop().call_later(GATHER, self._gathered, root)

    def _gathered(self, root: GangKey) -> None:
        self._gathering.discard(root)
        for key in self._composites.tree(root):
            self._writer.submit(key)

    def _derive(self, key: GangKey) -> DerivedStatus | None:
        spec = self._composites.specs.get(key)
        if spec is None:
            self._scheduled.pop(key, None)
            self._decided.pop(key, None)
            self._writer.forget(key)
            return None
        status = self._intake.composites.seen(key).status
        conditions = composite_conditions(conditions_in(status), self._standing(spec), int(self._now()))
        conditions += self._target(spec, status)
        if not conditions:
            return None
        body = {"metadata": {"uid": spec.ref.uid}, "status": {"conditions": conditions}}
        return DerivedStatus(StatusChange(spec.ref, body, strategic=True), status)

    def _was_scheduled(self, spec: Composite) -> bool:
        return self._scheduled.get(spec.key) == spec.ref.uid

    def _target(self, spec: Composite, status: Mapping[str, Any]) -> Conditions:
        """Return the condition about the eviction of all gangs below a composite, if it must be written."""
        gangs = self._composites.gangs(spec.key)
        reasons = (self._disruption(gang.key) for gang in gangs) if spec.unit else ()
        message = next((reason for reason in reasons if reason is not None), None)
        whole = all(gang.spec is not None and gang.active >= gang.spec.min_member for gang in gangs)
        found = disruption_condition(
            status,
            message,
            whole=whole,
            now=int(self._now()),
            generation=self._intake.composites.seen(spec.key).generation,
        )
        return [found] if found is not None else []

    def _standing(self, spec: Composite) -> CompositeStatusInput:
        gangs, generation = self._composites.gangs(spec.key), self._intake.composites.seen(spec.key).generation
        if not any(self._intake.is_ours(gang.key) for gang in gangs):
            return CompositeStatusInput(generation, undecided=True)
        fault = self._composites.fault(self._composites.root_of(spec.key))
        if fault is not None:
            reason = "Invalid" if fault.code == INVALID else "Unschedulable"
            exact = Verdict(fault.code, fault.message, fault=fault.code == INVALID)
            return CompositeStatusInput(generation, False, reason, fault.message, verdict=exact)
        holding = self._holding(spec)
        if spec.initiated or self._was_scheduled(spec) or holding >= max(1, spec.min_groups):
            return CompositeStatusInput(generation, placed=True)
        pending = [(gang, verdict) for gang in gangs if (verdict := self._verdict(gang.key)) is not None]
        # A gang that waits only for the others has no reason of its own.
        pending.sort(key=lambda entry: entry[1].code == WAITING_FOR_COMPOSITE)
        # After a start verdicts arrive one by one, and only the last one can explain the others.
        explained = bool(pending) and pending[0][1].code != WAITING_FOR_COMPOSITE
        undecided = not explained and not self._was_decided(spec) and any(map(self._is_undecided, gangs))
        if not undecided:
            self._decided[spec.key] = spec.ref.uid
        if not pending or undecided:
            return CompositeStatusInput(generation, undecided=undecided)
        gang, verdict = pending[0]
        message = f"{share_of(holding, max(1, spec.min_groups), 'required group')} placed"
        message = f"{message}; gang {gang.title}: {verdict.message}"
        if verdict.unschedulable:
            reason = "SchedulerError" if verdict.fault else "Unschedulable"
            return CompositeStatusInput(generation, False, reason, message, verdict=verdict)
        return CompositeStatusInput(generation, False, verdict.code, message, held=True, verdict=verdict)

    def _was_decided(self, spec: Composite) -> bool:
        return self._decided.get(spec.key) == spec.ref.uid

    def _is_undecided(self, gang: GangRecord) -> bool:
        pending = gang.count(MemberState.PENDING) > 0 and not _started(gang)
        return pending and self._verdict(gang.key) is None

    def _holding(self, spec: Composite) -> int:
        """Return the number of a composite's groups whose quorum is, or was, bound."""
        below, gangs = self._composites.children(spec.key)
        held = sum(
            each.initiated or self._was_scheduled(each) or self._holding(each) >= max(1, each.min_groups)
            for each in below
        )
        return held + sum(map(_started, gangs))


def _started(gang: GangRecord) -> bool:
    return gang.spec is not None and ever_scheduled(gang, gang.spec)
