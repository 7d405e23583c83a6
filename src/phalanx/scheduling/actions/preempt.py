"""`preempt`, `reclaim`, `gangpreempt`, `gangreclaim`: others go so that a whole preemptor fits.

The four names are one action, which runs once a cycle, where the policy names the first of them: what was merely
lent is taken before what has a lower priority, and two actions in a row could not see to that. The names tell which
rules count (`preemption/rules/reclaim_rules.py`).
"""

from __future__ import annotations

from collections.abc import Iterable

from phalanx.scheduling.actions.wait_or_evict import costs_too_much, waits_instead
from phalanx.scheduling.ordering.failures import report_failure, silence_plugin
from phalanx.scheduling.preemption.commit import commit, commit_for_each
from phalanx.scheduling.preemption.preemptor import in_order, joint_preemptors
from phalanx.scheduling.preemption.solution import Eviction, NoSolution
from phalanx.scheduling.preemption.solver import SOON, solve
from phalanx.scheduling.queue.demands import WaitReason
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.session.victim_class_arrays import has_quota
from phalanx.scheduling.units.preemptors import preemptors_of


def preempt(session: Session) -> None:
    """For all units that wait for room."""
    if not session.preempted:
        session.preempted = True
        preempt_for(session, (*session.units, *session.unasked))


def preempt_for(session: Session, units: Iterable[QueuedUnit]) -> None:
    """For some units, in the midst of a cycle; for nobody twice."""
    waiting = [unit for unit in units if unit.key in session.unschedulable and unit.key not in session.asked]
    for alike in in_order(session, waiting):
        while alike:
            if session.out_of_time():
                session.plan.complete = False
                return
            alike = alike[_try_turn(session, alike) :]


def _turn(session: Session, alike: list[QueuedUnit]) -> int:
    """Evicts for as many at once of units that are alike as can be, at least for the first; how many had their
    turn."""
    if waits_instead(session, alike[0], session.unschedulable[alike[0].key][0]):
        session.asked.add(alike[0].key)
        return 1
    for joint in joint_preemptors(session, alike):
        found = solve(session, joint)
        session.count_step()
        if isinstance(found, Eviction) and found.evicts and not costs_too_much(session, joint.units, found):
            session.asked.update(unit.key for unit in joint.units)
            commit_for_each(session, joint, found)
            return len(joint.units)
    first = alike[0]
    session.asked.add(first.key)
    if _no_lower_priority(session, first):
        session.count_step()
        return 1
    answer: Eviction | NoSolution | None = None
    for preemptor in preemptors_of(session, first, session.unschedulable[first.key][0]):
        answer = solve(session, preemptor)
        session.count_step()
        if isinstance(answer, Eviction) and costs_too_much(session, [first], answer):
            return 1
        if isinstance(answer, Eviction) and (answer.evicts or preemptor.nominated):
            commit(session, preemptor, answer)
            return 1
        session.decisions.withdraw_nominations(preemptor.nominated)
        _ask_again(session, first, answer)
    if not isinstance(answer, NoSolution):
        return 1
    # What does not help the first helps none of those that are like it.
    session.asked.update(unit.key for unit in alike)
    return len(alike)


def _try_turn(session: Session, alike: list[QueuedUnit]) -> int:
    """The same; where that raises the first goes on waiting without anybody having to go for it."""
    while True:
        marks = session.decisions.begin_turn()
        try:
            return _turn(session, alike)
        except Exception as error:
            session.decisions.undo_turn(marks)
            if not silence_plugin(session, error):
                report_failure(session, f"making room for {alike[0].name}", error)
                session.asked.add(alike[0].key)
                return 1


def could_preempt(session: Session, unit: QueuedUnit, demand: WaitReason) -> bool:
    """Whether others would go for an unschedulable unit now. (It was refused when there was less to take.) If not
    now, the unit is asked about again when that may have changed."""
    if not session.plugin_runtime.policy.eviction.active:
        return False
    if waits_instead(session, unit, demand):
        return False
    for preemptor in preemptors_of(session, unit, demand):
        found = solve(session, preemptor)
        if isinstance(found, Eviction) and found.evicts:
            return not costs_too_much(session, [unit], found)
        _ask_again(session, unit, found)
    return False


def _ask_again(session: Session, unit: QueuedUnit, found: Eviction | NoSolution) -> None:
    """Sees to it that a unit for which nobody goes now is asked about when that may change by itself."""
    if isinstance(found, Eviction):
        # It fits once those who leave anyway have left; should that take too long, others are asked after all.
        session.queue.recheck_by(unit, session.now + SOON)
        return
    if found.pods_arriving:
        session.queue.ask_preemption_when_bound(unit.key)
    if found.retry_at is not None:
        session.queue.recheck_by(unit, found.retry_at)


def _no_lower_priority(session: Session, unit: QueuedUnit) -> bool:
    """Whether nobody can have to go for a unit: everybody is in its queue and without a quota, where only pods of
    lower priority make room, and there are none. (False proves nothing.)"""
    state = session.state
    if session.plugin_runtime.policy.eviction.levels or state.pods.terminating or state.pods.nominated:
        return False
    if any(gang.active for gang in unit.gangs):  # may find victims among its own
        return False
    table = state.victim_table()
    lowest = session.victim_classes().lowest_priority(table)
    if lowest.lowest is None:
        return True
    charge_paths = [session.charge_path(member) for member in unit.members]
    alike = not lowest.quotas and all({charge_path.queue} == lowest.queues for charge_path in charge_paths)
    return (
        alike
        and not any(has_quota(charge_path) for charge_path in charge_paths)
        and all(session.priority(each) <= lowest.lowest for each in (*unit.members, *unit.gangs))
    )
