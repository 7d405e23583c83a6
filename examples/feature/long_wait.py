"""`long-wait`: says for how long a gang has waited for room."""

from __future__ import annotations

from phalanx.plugin import Allocation, CyclePlugin, GangKey, GangRecord, Session


class LongWait(CyclePlugin):
    """Add to the verdict of a gang for how many whole hours it has been complete, admitted, and without room."""

    name = "long-wait"

    def __init__(self) -> None:
        self._now = 0.0
        self._ready: dict[GangKey, float] = {}

    def advance(self, now: float) -> None:
        self._now = now

    def ready(self, session: Session, gangs: list[GangRecord]) -> None:
        for gang in gangs:
            self._ready[gang.key] = session.now

    def allocated(self, session: Session, allocations: list[Allocation]) -> None:
        for gang in (allocation.record.gang for allocation in allocations):
            if gang is not None:
                self._ready.pop(gang.key, None)

    def note(self, of: GangKey | str) -> str:
        since = self._ready.get(of, self._now) if isinstance(of, GangKey) else self._now
        hours = int(self._now - since) // 3600
        return f"ready for {hours} h" if hours else ""

    def published(self, session: Session) -> None:
        self._ready = {key: since for key, since in self._ready.items() if key in session.state.gangs}
