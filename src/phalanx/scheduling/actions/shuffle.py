"""`shuffle`: pods leave their nodes because plugins want them elsewhere; nobody waits for their room."""

from __future__ import annotations

from phalanx.scheduling.framework.extension_points import Victim
from phalanx.scheduling.ordering.failures import report_failure, silence_plugin
from phalanx.scheduling.preemption.voluntary_evictions import VoluntaryEvictions
from phalanx.scheduling.session.session import Session


def shuffle(session: Session) -> None:
    """Evicts whom the plugins name, as far as vetoes, budgets and gangs allow (Volcano, actions/shuffle)."""
    plugins = session.plugin_runtime.plugins("victims")
    if not plugins:
        return
    evictions = VoluntaryEvictions(session, session.evictions)
    for plugin in list(plugins):
        marks = session.decisions.begin_turn()
        try:
            for victim in plugin.victims(session):
                _send(session, evictions, victim)
        except Exception as error:
            session.decisions.undo_turn(marks)
            if not silence_plugin(session, error):
                report_failure(session, "action shuffle", error)


def _send(session: Session, evictions: VoluntaryEvictions, victim: Victim) -> None:
    leaving = [victim.record]
    if evictions.try_add(victim.record) is not None:
        found = evictions.try_add_gang(victim.record) if victim.whole else ""
        if isinstance(found, str):
            return
        leaving = found
    # Who leaves with nobody does not stay because another may not be evicted after all.
    cause = session.decisions.next_cause()
    for record in leaving:
        session.decisions.evict(record, victim.reason, victim.message, cause=cause)
