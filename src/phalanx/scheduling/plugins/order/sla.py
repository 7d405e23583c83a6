"""`sla`: groups that must not wait longer than stated go first, and once they have, are let in."""

from __future__ import annotations

from collections.abc import Hashable

from phalanx.plugin import Arguments, ChargePath, GangRecord, Plugin, PodRecord, View, Vote
from phalanx.scheduling.queue.unit import awaits_admission

_NEVER = 2**62


class Sla(Plugin):
    """The deadline of a group is its creation plus `sla-waiting-time`, its own or else the argument's.

    The earliest deadline goes first, whoever has none last. A group that is overdue is permitted; this outvotes the
    plugins of later tiers, so the plugin belongs into the first (Volcano, plugins/sla). Where nobody knows when
    something was created there is no deadline.
    """

    name = "sla"
    arguments = ("sla-waiting-time",)

    def __init__(self, arguments: Arguments) -> None:
        self._waiting_time = arguments.duration("sla-waiting-time")

    def gang_order(self, session: View, gang: GangRecord | PodRecord) -> int:
        return self._deadline(gang)

    def admit(self, session: View, gang: GangRecord) -> Vote:
        return Vote.PERMIT if self._deadline(gang) <= session.now else Vote.ABSTAIN

    def admission_key(self, gang: GangRecord) -> Hashable:
        return self._deadline(gang)

    def recheck_at(self, session: View, unit: GangRecord | PodRecord, charge_path: ChargePath) -> float | None:
        """The deadline of a group that waits to be admitted: then its vote changes by itself."""
        if isinstance(unit, PodRecord) or not awaits_admission(unit):
            return None
        deadline = self._deadline(unit)
        return deadline if session.now < deadline < _NEVER else None

    def _deadline(self, unit: GangRecord | PodRecord) -> int:
        if isinstance(unit, PodRecord):
            created, wait = unit.pod.created, self._waiting_time
        else:
            spec = unit.spec
            assert spec is not None
            created, wait = spec.created, spec.sla_waiting_time or self._waiting_time
        return created + wait if created and wait else _NEVER
