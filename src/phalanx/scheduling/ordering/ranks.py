"""Order of units: repairs first, then the keys of plugins, then age, then name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from phalanx.cluster.pods.records import GangRecord
from phalanx.scheduling.ordering.failures import report_failure, try_each
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.queue.unschedulable import Rank
from phalanx.scheduling.session.session import Session


def order_units(session: Session) -> None:
    """Rank `session.units` and sort them; a unit that raises in ranking is set aside."""
    for unit in session.units:
        if not unit.rank or session.plugin_runtime.order_drifts:
            try_to_rank(session, unit)
    if session.set_aside:
        session.units = [unit for unit in session.units if unit.key not in session.attempted]
    try:
        session.units.sort(key=_by_rank)
    except Exception as error:
        report_failure(session, "order of the units", error)
        session.units.sort(key=lambda unit: (unit.rank[0], *map(str, unit.rank[-3:])))


def rank_unit(session: Session, unit: QueuedUnit) -> None:
    """Set the rank and the band of a unit."""
    if unit.pod is not None:
        pod, keys = unit.pod.pod, session.rank(unit.pod)
        unit.rank = (True, *keys, pod.created, pod.namespace, pod.name)
    else:
        repair = any(gang.marks and session.requirement(gang).repair for gang in unit.gangs)
        keys = min(session.rank(gang) for gang in unit.gangs)
        eldest = min(unit.gangs, key=_age)
        unit.rank = (not repair, *keys, _age(eldest)[0], eldest.key.namespace, eldest.key.name)
    unit.band = unit.rank[: 1 + session.plugin_runtime.band_width]


def try_to_rank(session: Session, unit: QueuedUnit) -> None:
    """Set the rank of a unit, without the plugins that raise."""
    try:
        rank_unit(session, unit)
    except Exception:
        try_each(session, [unit], partial(rank_unit, session, unit))


def drifting_rank(session: Session) -> Callable[[QueuedUnit], Rank] | None:
    """Return the function that ranks unschedulable units again, if their order can change with time; else None."""

    def rank(unit: QueuedUnit) -> Rank:
        try_to_rank(session, unit)
        return unit.rank

    return rank if session.plugin_runtime.order_drifts else None


def _age(gang: GangRecord) -> tuple[int, object]:
    assert gang.spec is not None
    return gang.spec.created, gang.key


def _by_rank(unit: QueuedUnit) -> Rank:
    return unit.rank
