"""Action `defragment`: at scheduled times, moves pods so that a waiting unit fits."""

from __future__ import annotations

from collections.abc import Iterator

from phalanx.cluster.pods.nominations import PATIENCE, Nomination
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.model.decisions import EvictionReason
from phalanx.model.pod import CAN_LEAVE
from phalanx.scheduling.actions.proved_moves import ProvedMoves, prove_moves
from phalanx.scheduling.actions.wait_or_evict import loses_more_than, waits_instead
from phalanx.scheduling.defragmentation.plugin import MOST_ATTEMPTED, Defragmentation
from phalanx.scheduling.defragmentation.relocation import RelocationLimits, counted
from phalanx.scheduling.defragmentation.room_for_gang import RoomForGang
from phalanx.scheduling.framework.defragment_settings import DefragmentSettings
from phalanx.scheduling.gang_placement.nominated_placement import await_victims, nominated_members
from phalanx.scheduling.preemption.victims import hours_lost
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.reservations.pod_ends import latest_end
from phalanx.scheduling.session.session import Session

_HOUR = 3600

MOVED, BOOKED, BUDGET_SPENT, NOTHING_TO_MOVE = "Moved", "Booked", "BudgetSpent", "NothingToMove"


def defragment(session: Session) -> None:
    """Run once: evict pods for the first waiting unit that fits if they move.

    A proof (`proved_moves.py`) is required first: the whole quorum of the waiting gang and all moved pods must fit.
    Vetoes, disruption budgets, eviction rates and gang minimums apply as for every voluntary eviction.
    """
    feature = session.feature(Defragmentation)
    if feature is None:
        return
    settings, runs = session.plugin_runtime.policy.defragmentation, feature.runs
    if settings is None or not runs.due(settings, session.now):
        return
    runs.begin(settings, session.now)
    outcome = NOTHING_TO_MOVE
    for unit in _waiting(session):
        if session.out_of_time():
            break
        moves = moves_for(session, unit, settings)
        session.count_step()
        if moves is None:
            continue
        pods, budget = len(moves.targets), runs.left(settings, session.now)
        if pods > budget:
            outcome = BUDGET_SPENT
            move = f"moving {counted(pods, 'pod')} would make room"
            runs.notes[unit.key] = f"{move}; defragmentation can move {budget} more this hour"
            continue
        if not runs.book(session.now, pods):
            runs.outcomes[BOOKED] += 1
            return
        _move(session, unit, moves)
        runs.finish_run(session.now, pods)
        runs.outcomes[MOVED] += 1
        return
    runs.finish_run(session.now, 0)
    runs.outcomes[outcome] += 1


def moves_for(session: Session, unit: QueuedUnit, settings: DefragmentSettings) -> ProvedMoves | None:
    """Return the moves that let the unit start, None if there are none; nothing is changed."""
    limits = RelocationLimits(settings.per_run, settings.per_gang, settings.whole_gangs)
    staying = frozenset(record.pod.uid for record in _unmovable(session, unit, settings))
    attempt = RoomForGang(session, unit, limits, _silently, staying).best_attempt()
    if attempt is None or not attempt.moving:
        # Moves cannot help a unit that does not lack room.
        return None
    if settings.most_lost_percent >= 0:
        work = attempt.cost().work
        if loses_more_than(session, [unit], work, settings.most_lost_percent):
            return None
    return prove_moves(session, unit, attempt)


def _waiting(session: Session) -> Iterator[QueuedUnit]:
    """Yield the units that lack room, in the order of their turns."""
    attempts = 0
    for unit in session.units:
        refused = session.unschedulable.get(unit.key)
        if refused is None or not unit.starts_planned or nominated_members(unit):
            continue
        if not refused[0].for_room or waits_instead(session, unit, refused[0]):
            continue
        attempts += 1
        if attempts > MOST_ATTEMPTED:
            return
        yield unit


def _unmovable(session: Session, unit: QueuedUnit, settings: DefragmentSettings) -> Iterator[PodRecord]:
    """Yield the pods that are not moved, even if the rules for evictions allow it."""
    now, own = session.now, set(unit.gangs)
    priority = min((session.turn_priority(member) for member in unit.members), default=0)
    for record in session.state.pods.values():
        pod = record.pod
        if record.state not in CAN_LEAVE or pod.fixture:
            continue
        if (
            record.gang in own
            or pod.scheduler not in session.state.schedulers
            or pod.priority > priority
            or pod.priority >= settings.threshold_priority
            or now - (pod.started or pod.bound or pod.created) < settings.min_run
            or latest_end(record, now) - now < settings.min_remaining
            or 0 <= settings.max_lost < hours_lost(record, now) * _HOUR
            # A replacement would wait for its gang's quorum.
            or (record.gang is not None and not _has_quorum(session, record.gang))
            # The devices on another node are known only after its binding.
            or record.pod_class.allocators
        ):
            yield record


def _has_quorum(session: Session, gang: GangRecord) -> bool:
    return gang.spec is not None and session.requirement(gang).satisfied


def _move(session: Session, unit: QueuedUnit, moves: ProvedMoves) -> None:
    """Evict the pods and nominate the preemptor's pods on the freed rows."""
    names, cause = session.state.nodes.names, session.decisions.next_cause()
    uids = frozenset(record.pod.uid for record in moves.targets)
    until = max(session.now + record.pod.grace for record in moves.targets) + PATIENCE
    for record, row in sorted(moves.targets.items(), key=lambda entry: entry[0].pod.key):
        message = f"there is room for it on {names[row]}, and a waiting unit needs its present room"
        session.decisions.evict(record, EvictionReason.RESCHEDULED, message, moves.preemptor.name, cause)
    for record, row in moves.placements:
        session.decisions.nominate(record, row, Nomination(uids, until, cause, 0))
    await_victims(session, unit, moves.preemptor.demand)


def _silently(text: str) -> None:
    """Ignore progress messages."""
