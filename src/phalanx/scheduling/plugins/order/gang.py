"""Plugin `gang`: gangs below their quorum are scheduled before the surplus of other gangs."""

from __future__ import annotations

from phalanx.plugin import GangRecord, Plugin, PodRecord, View


class GangPlugin(Plugin):
    """Order by quorum only: gangs below it come first. `allocate` enforces the quorum itself, whether or not this
    plugin is configured."""

    name = "gang"

    def gang_order(self, session: View, gang: GangRecord | PodRecord) -> int:
        if isinstance(gang, PodRecord):
            return 0
        need = session.requirement(gang)
        return 1 if need.satisfied else 0
