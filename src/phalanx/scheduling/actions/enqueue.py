"""Action `enqueue`: admits groups, so that their controllers create the pods."""

from __future__ import annotations

from functools import partial

import msgspec

from phalanx.cluster.pods.records import GangRecord
from phalanx.scheduling.ordering.failures import try_each, walk_in_order
from phalanx.scheduling.ordering.fifo import FifoQueues
from phalanx.scheduling.ordering.surplus import SurplusTurn
from phalanx.scheduling.queue.demands import AwaitingAdmission, QuotaBlocked
from phalanx.scheduling.queue.unit import QueuedUnit, awaits_admission
from phalanx.scheduling.queue.unschedulable import UnitKey
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.units.gang_group import admission


def enqueue(session: Session) -> None:
    """Admit groups while the plugins permit; queues take turns.

    A group that must wait blocks the groups behind it only in a fifo queue. There, a group behind a unit
    that is still to be placed is admitted in its turn of `allocate` or `backfill`.
    """
    fifo = FifoQueues(session)
    postpones = not {"allocate", "backfill"}.isdisjoint(session.plugin_runtime.policy.actions)
    had_turn: set[UnitKey] = set()

    def take(turn: list[QueuedUnit] | SurplusTurn) -> None:
        assert isinstance(turn, list)
        for unit in turn:
            if unit.key in had_turn or fifo.blocked(unit):
                continue
            had_turn.add(unit.key)
            if postpones and fifo.postpones_admission(unit):
                session.postponed_admissions.add(unit.key)
                continue
            try_each(session, [unit], partial(admit_unit, session, unit))
            fifo.passed([unit])

    waiting = [unit for unit in session.units if any(map(_can_be_admitted, unit.gangs))]
    walk_in_order(session, waiting, lambda line: take)


def admit_unit(session: Session, unit: QueuedUnit) -> None:
    """Admit the groups of a unit that await it while the plugins permit; set the verdict of the others."""
    for place, gang in enumerate(unit.gangs):
        spec = gang.spec
        if not _can_be_admitted(gang) or spec is None or spec.problem is not None:
            continue
        held = session.blocked(gang)
        if held is not None:
            facts = msgspec.structs.replace(held, culprit=place)
            demand: QuotaBlocked | AwaitingAdmission = QuotaBlocked(session.charge_path(gang))
            session.refuse(unit, demand, session.fit_errors.record(demand, facts))
            continue
        demand = admission(session, unit, gang)
        fit_error = session.fit_errors.known(demand)
        if fit_error is None and session.plugin_runtime.admit(session, gang):
            session.admit(gang)
            if gang.last_verdict is not None and gang.last_verdict[0] is not None:
                session.decisions.set_gang_verdict(gang, None)
            continue
        fit_error = fit_error or session.fit_errors.record(
            demand, session.admission_refusal(gang), session.totals_version
        )
        session.refuse(unit, demand, fit_error)


def _can_be_admitted(gang: GangRecord) -> bool:
    """Return whether a group awaits its admission and its owner is not suspended."""
    return awaits_admission(gang) and gang.spec is not None and not gang.spec.suspended
