"""Pods without a gang. Equal pods are placed together."""

from __future__ import annotations

from phalanx.cluster.pods.records import PodRecord
from phalanx.scheduling.diagnosis.verdicts import unreadable
from phalanx.scheduling.gang_placement.nominated_placement import place_nominated, wait_for_victims
from phalanx.scheduling.preemption.preemptor import PodPreemptor
from phalanx.scheduling.queue.demands import PodDemand, QuotaBlocked, WaitReason
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.queue.unschedulable import FitError
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.units.unit import Unit


class PodUnit(Unit):
    """A pod without a gang."""

    __slots__ = ()

    def demand_refusal(self, session: Session, demand: WaitReason) -> FitError | None:
        assert isinstance(demand, PodDemand)
        return None if demand.fits(session) else FitError(*session.fit_errors.facts(demand, afresh=True))

    def preemptor(self, session: Session) -> PodPreemptor | None:
        return PodPreemptor(session, [self], self.pod) if self.pod is not None else None


def take_pods_turn(session: Session, units: list[QueuedUnit], kind: PodDemand, opened: bool) -> None:
    """Place equal pods in their order; bind pods that fit, refuse the rest.

    With `opened`, reserved room is open to the pods, so an earlier refusal does not count.
    """
    waiting = _readable(session, units)
    if (
        len(waiting) == 1
        and waiting[0][1].nomination is not None
        and _honour_nomination(session, *waiting[0], kind)
    ):
        return
    if waiting and (held := session.blocked(waiting[0][1])) is not None:
        assert kind.charge_path is not None
        fit_error = session.fit_errors.record(QuotaBlocked(kind.charge_path), held)
        for unit, record in waiting:
            session.decisions.withdraw_nominations([record])
            session.refuse(unit, QuotaBlocked(kind.charge_path), fit_error)
            session.mark_attempted(unit)
        return
    pod_class = kind.pod_class
    while waiting and (opened or session.fit_errors.known(kind) is None):
        allowed = session.quota_check.room(kind.charge_path, pod_class.footprint)
        rows = session.placer.place(pod_class, min(len(waiting), allowed)) if allowed else []
        if not rows:
            session.fit_errors.record(kind, *session.fit_errors.facts(kind))
            break
        transaction = session.state.transaction(charging=False)
        transaction.place(pod_class, [record for _, record in waiting[: len(rows)]], rows)
        transaction.commit()
        session.decisions.bind_all([(each[1], row) for each, row in zip(waiting, rows, strict=False)], None, None)
        for unit, _ in waiting[: len(rows)]:
            session.mark_attempted(unit)
        waiting = waiting[len(rows) :]
        if waiting and session.out_of_time():
            session.plan.complete = False
            return
    known = session.fit_errors.known(kind)
    for unit, _ in waiting:
        assert known is not None
        session.refuse(unit, kind, known)
        session.mark_attempted(unit)


def _honour_nomination(session: Session, unit: QueuedUnit, record: PodRecord, kind: PodDemand) -> bool:
    """Place a nominated pod on its node, or let it wait for its victims. Return whether one of both was done."""
    if session.blocked(record) is not None:
        return False
    if not (place_nominated(session, record, kind) or wait_for_victims(session, unit, kind)):
        return False
    session.mark_attempted(unit)
    return True


def _readable(session: Session, units: list[QueuedUnit]) -> list[tuple[QueuedUnit, PodRecord]]:
    """Return the pods of the units with a valid spec; set the verdicts of invalid pods."""
    readable: list[tuple[QueuedUnit, PodRecord]] = []
    for unit in units:
        assert unit.pod is not None
        if unit.pod.pod.problem:
            session.decisions.set_pod_verdict(unit.pod, unreadable(unit.pod))
            session.decisions.withdraw_nominations([unit.pod])
            session.mark_attempted(unit)
        else:
            readable.append((unit, unit.pod))
    return readable
