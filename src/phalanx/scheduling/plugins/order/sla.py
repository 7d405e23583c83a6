"""Plugin `sla`: groups close to their longest waiting time are scheduled first, and admitted once it has passed."""

from __future__ import annotations

from collections.abc import Hashable

from phalanx.plugin import Arguments, ChargePath, GangRecord, Plugin, PodRecord, View, Vote
from phalanx.scheduling.queue.unit import awaits_admission

_NEVER = 2**62


class Sla(Plugin):
    """Order by deadline: the group's creation plus its own `sla-waiting-time`, else the argument's.

    The earliest deadline sorts first; groups without a deadline sort last. An overdue group is admitted. This vote
    overrides later tiers, so the plugin belongs in the first tier (Volcano, plugins/sla). A group without a known
    creation time has no deadline.
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
        """Return the deadline of a group that awaits admission, when its vote changes; None otherwise."""
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
