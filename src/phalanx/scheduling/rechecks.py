"""Rechecks of waiting gangs and pods: their verdicts stay true while the cluster changes."""

from __future__ import annotations

from functools import partial

from phalanx.scheduling.actions.preempt import could_preempt
from phalanx.scheduling.ordering.failures import ask_plugins, report_failure, silence_plugin
from phalanx.scheduling.queue.demands import WaitReason
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.queue.unschedulable import FitError
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.units.refusals import refusal_now

# Maximum of demands that one cycle rechecks, and of units whose verdicts it updates. Later cycles continue.
_RECHECKS = 16
_MOST_UPDATES = 1000


def recheck(session: Session) -> None:
    """Recheck demands that were refused in an older state of the cluster, and update changed verdicts."""
    updated = 0
    for _ in range(_RECHECKS):
        stale = session.queue.next_outdated()
        if stale is None or session.out_of_time():
            return
        session.count_step()
        demand, unit = stale
        marks = session.decisions.begin_turn()
        try:
            with session.features.recheck(session, unit):
                fit_error = refusal_now(session, unit, demand)
        except Exception as error:
            session.decisions.undo_turn(marks)
            if silence_plugin(session, error):
                continue
            report_failure(session, f"another look at {unit.name}", error)
            known = session.queue.known_fit_error(demand)
            list(
                session.queue.update_fit_error(
                    demand, FitError(known.facts if known is not None else None, session.state.version)
                )
            )
            continue
        if fit_error is None:
            session.queue.activate_first(demand)
            return
        preemptor = session.queue.first_preemptor(demand)
        if preemptor is not None and could_preempt(session, preemptor, demand):
            session.queue.ask_preemption_for_all()
        for waiting_unit in session.queue.update_fit_error(demand, fit_error):
            session.decisions.explain(waiting_unit, fit_error.facts)
            session.count_step()
            updated += 1
            if updated == _MOST_UPDATES or session.out_of_time():
                return


def room_bound(session: Session, demand: WaitReason, unit: QueuedUnit) -> int:
    """Return an upper bound on the number of units with the demand of `unit` that could be placed now."""
    if demand.lacks_amounts(session):
        return 0
    try:
        bound = demand.bound_for(session, unit)
    except Exception:
        bound = ask_plugins(session, f"room for {unit.name}", partial(demand.bound_for, session, unit), 1)
    if bound:
        return bound
    # The unit's turn can open reserved room to it.
    with session.features.recheck(session, unit) as turn:
        return demand.bound_for(session, unit) if turn.may_open else bound
