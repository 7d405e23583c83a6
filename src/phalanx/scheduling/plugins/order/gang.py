"""`gang`: what is half bound is finished first, and gangs below their quorum go before others' surplus."""

from __future__ import annotations

from phalanx.plugin import GangRecord, Plugin, PodRecord, View


class GangPlugin(Plugin):
    """The quorum itself is not an opinion: `allocate` keeps it whether or not this plugin is configured."""

    name = "gang"

    def gang_order(self, session: View, gang: GangRecord | PodRecord) -> int:
        if isinstance(gang, PodRecord):
            return 0
        need = session.requirement(gang)
        return 1 if need.satisfied else 0
