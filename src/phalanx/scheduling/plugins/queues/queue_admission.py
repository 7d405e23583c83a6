"""Admission of gangs by queue, shared by `proportion` and `capacity`."""

from __future__ import annotations

from collections.abc import Hashable

from phalanx.plugin import GangRecord, Plugin, View, Vote
from phalanx.scheduling.quota.queue_tree import admission_objection, admission_room


class QueueAdmission(Plugin):
    """Base of plugins that admit a gang while its queue and the queue's ancestors have enough quota left for it.

    The quota is the part of the cluster that `capability` and the guarantees of other queues leave.
    """

    admits_with_nodes = True

    def admit(self, session: View, gang: GangRecord) -> Vote:
        return Vote.PERMIT if admission_room(session, gang) else Vote.REJECT

    def admission_key(self, gang: GangRecord) -> Hashable:
        return ()

    def max_admissions(self, session: View, gang: GangRecord) -> int:
        return admission_room(session, gang)

    def why_not_admitted(self, session: View, gang: GangRecord) -> tuple[str, str] | None:
        return admission_objection(session, gang)
