"""Action `shuffle`: evicts the pods that plugins select, independent of waiting units."""

from __future__ import annotations

from phalanx.scheduling.framework.extension_points import Victim
from phalanx.scheduling.ordering.failures import report_failure, silence_plugin
from phalanx.scheduling.preemption.voluntary_evictions import VoluntaryEvictions
from phalanx.scheduling.session.session import Session


def shuffle(session: Session) -> None:
    """Evict the pods that plugins select, as far as vetoes, budgets and gangs allow (Volcano, actions/shuffle)."""
    plugins = session.plugin_runtime.plugins("victims")
    if not plugins:
        return
    evictions = VoluntaryEvictions(session, session.evictions)
    for plugin in list(plugins):
        marks = session.decisions.begin_turn()
        try:
            for victim in plugin.victims(session):
                _evict_victim(session, evictions, victim)
        except Exception as error:
            session.decisions.undo_turn(marks)
            if not silence_plugin(session, error):
                report_failure(session, "action shuffle", error)


def _evict_victim(session: Session, evictions: VoluntaryEvictions, victim: Victim) -> None:
    victims = [victim.record]
    if evictions.try_add(victim.record) is not None:
        gang_members = evictions.try_add_gang(victim.record) if victim.whole else ""
        if isinstance(gang_members, str):
            return
        victims = gang_members
    # Each gang has its own cause, so that a refused eviction does not cancel evictions of other gangs.
    cause = session.decisions.next_cause()
    for record in victims:
        session.decisions.evict(record, victim.reason, victim.message, cause=cause)
