"""Actions `preempt`, `reclaim`, `gangpreempt`, `gangreclaim`: evict victims so that a whole preemptor fits.

The four names are one action. It runs once per cycle, at the position of the first name. Borrowed resources are
reclaimed before pods of lower priority are preempted; two actions in a row could not ensure this order. The names
decide which rules apply (`preemption/rules/reclaim_rules.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.scheduling.actions.wait_or_evict import costs_too_much, waits_instead
from phalanx.scheduling.ordering.failures import report_failure, silence_plugin
from phalanx.scheduling.preemption.commit import commit, commit_for_each
from phalanx.scheduling.preemption.preemptor import PodPreemptor, Preemptor, in_order, joint_preemptors
from phalanx.scheduling.preemption.solution import Eviction, NoSolution
from phalanx.scheduling.preemption.solver import SOON, solve
from phalanx.scheduling.queue.demands import WaitReason
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.session.victim_class_arrays import has_quota
from phalanx.scheduling.units.preemptors import preemptors_of, surplus_preemptor


def preempt(session: Session) -> None:
    """Search victims for all units that wait for room."""
    if not session.preempted:
        session.preempted = True
        preempt_for(session, (*session.units, *session.unasked))


def preempt_for(session: Session, units: Iterable[QueuedUnit]) -> None:
    """Search victims for some units within a cycle; each unit is searched for at most once."""
    waiting = [unit for unit in units if unit.key in session.unschedulable and unit.key not in session.asked]
    for equal_units in in_order(session, waiting):
        while equal_units:
            if session.out_of_time():
                session.plan.complete = False
                return
            equal_units = equal_units[_try_turn(session, equal_units) :]


def _turn(session: Session, equal_units: list[QueuedUnit]) -> int:
    """Evict for as many of the equal units at once as possible, at least for the first.

    Return the number of units that had their turn.
    """
    if waits_instead(session, equal_units[0], session.unschedulable[equal_units[0].key][0]):
        session.asked.add(equal_units[0].key)
        return 1
    for joint in joint_preemptors(session, equal_units):
        eviction = solve(session, joint)
        session.count_step()
        if (
            isinstance(eviction, Eviction)
            and eviction.evicts
            and not costs_too_much(session, joint.units, eviction)
        ):
            session.asked.update(unit.key for unit in joint.units)
            commit_for_each(session, joint, eviction)
            return len(joint.units)
    first = equal_units[0]
    session.asked.add(first.key)
    if _no_lower_priority(session, first):
        session.count_step()
        return 1
    result: Eviction | NoSolution | None = None
    reason, refused = session.unschedulable[first.key][0], None
    for preemptor in preemptors_of(session, first, reason):
        result = solve(session, preemptor)
        session.count_step()
        if reason.for_surplus and isinstance(result, Eviction):
            preemptor, result = _largest(session, first, preemptor, result, refused)
        refused = preemptor
        if isinstance(result, Eviction) and costs_too_much(session, [first], result):
            return 1
        if isinstance(result, Eviction) and (result.evicts or (preemptor.nominated and result.terminating)):
            commit(session, preemptor, result)
            return 1
        session.decisions.withdraw_nominations(preemptor.nominated)
        _ask_again(session, first, result)
    if not isinstance(result, NoSolution):
        return 1
    # The other units are equal to the first, so the same search would fail for them.
    session.asked.update(unit.key for unit in equal_units)
    return len(equal_units)


def _largest(
    session: Session, unit: QueuedUnit, preemptor: Preemptor, eviction: Eviction, refused: Preemptor | None
) -> tuple[Preemptor, Eviction]:
    """Return the preemptor of the most equal surplus members that can be served at once, with its eviction.

    `refused` is the larger one that was tried before `preemptor`, if any.
    """
    if not (isinstance(preemptor, PodPreemptor) and isinstance(refused, PodPreemptor)):
        return preemptor, eviction
    if preemptor.kind != refused.kind:
        return preemptor, eviction
    most, least = refused.total, preemptor.total
    while most - least > 1:
        middle = (least + most) // 2
        trial = surplus_preemptor(session, unit, refused.records[:middle])
        result = solve(session, trial)
        session.count_step()
        if isinstance(result, Eviction):
            preemptor, eviction, least = trial, result, middle
        else:
            most = middle
    return preemptor, eviction


def _try_turn(session: Session, equal_units: list[QueuedUnit]) -> int:
    """Evict as `_turn` does; if that raises, the first unit waits without a search for victims."""
    while True:
        marks = session.decisions.begin_turn()
        try:
            return _turn(session, equal_units)
        except Exception as error:
            session.decisions.undo_turn(marks)
            if not silence_plugin(session, error):
                report_failure(session, f"search for victims of {equal_units[0].name}", error)
                session.asked.add(equal_units[0].key)
                return 1


def could_preempt(session: Session, unit: QueuedUnit, demand: WaitReason) -> bool:
    """Return whether victims would be evicted for an unschedulable unit now.

    It was refused when fewer victims were available. If not, the unit is searched for again when that can have
    changed.
    """
    if not session.plugin_runtime.policy.eviction.active:
        return False
    if waits_instead(session, unit, demand):
        return False
    for preemptor in preemptors_of(session, unit, demand):
        result = solve(session, preemptor)
        if isinstance(result, Eviction) and result.evicts:
            return not costs_too_much(session, [unit], result)
        _ask_again(session, unit, result)
    return False


def _ask_again(session: Session, unit: QueuedUnit, result: Eviction | NoSolution) -> None:
    """Schedule the next search for a unit without victims now."""
    if isinstance(result, Eviction):
        # The unit fits once terminating pods have left their nodes; if that takes too long, victims are searched
        # again.
        session.queue.recheck_by(unit, session.now + SOON)
        return
    if result.bindings_help:
        session.queue.ask_preemption_when_bound(unit.key)
    if result.retry_at is not None:
        session.queue.recheck_by(unit, result.retry_at)


def _no_lower_priority(session: Session, unit: QueuedUnit) -> bool:
    """Return whether victims are impossible: all pods are in the unit's queue, without quotas, and none has a lower
    priority.

    (False proves nothing.)
    """
    state = session.state
    if session.plugin_runtime.policy.eviction.levels or state.pods.terminating or state.pods.nominated:
        return False
    if any(gang.active for gang in unit.gangs):  # the gang can preempt its own members
        return False
    table = state.victim_table()
    lowest = session.victim_classes().lowest_priority(table)
    if lowest.lowest is None:
        return True
    charge_paths = [session.charge_path(member) for member in unit.members]
    same_queue = not lowest.quotas and all({charge_path.queue} == lowest.queues for charge_path in charge_paths)
    return (
        same_queue
        and not any(has_quota(charge_path) for charge_path in charge_paths)
        and all(session.priority(member) <= lowest.lowest for member in (*unit.members, *unit.gangs))
    )
