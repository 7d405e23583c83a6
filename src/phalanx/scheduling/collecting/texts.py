"""Published texts about collections, by unit."""

from __future__ import annotations

from phalanx.model.gang import GangKey
from phalanx.scheduling.queue.scheduling_queue import SchedulingQueue
from phalanx.scheduling.queue.unschedulable import UnitKey


class CollectionTexts:
    """Text of each unit about its collection, and the units that need a turn because their text has changed."""

    def __init__(self, queue: SchedulingQueue) -> None:
        self._queue = queue
        self._texts: dict[UnitKey, str] = {}
        self._unit_of: dict[GangKey, UnitKey] = {}
        self._changed: dict[UnitKey, None] = {}

    @property
    def changed(self) -> bool:
        """Whether a unit needs a turn."""
        return bool(self._changed)

    def pop_changed(self) -> dict[UnitKey, None]:
        """Return the units that need a turn, and forget them."""
        changed, self._changed = self._changed, {}
        return changed

    def of(self, gang: GangKey) -> str:
        """Return the text of the unit with a gang; "" for none."""
        key = self._unit_of.get(gang)
        return self._texts.get(key, "") if key is not None else ""

    def ask_turn(self, key: UnitKey) -> None:
        """Request a turn for a unit."""
        self._changed[key] = None

    def publish(self, key: UnitKey, text: str) -> None:
        """Publish the text of a unit, in its next turn, if it has changed."""
        if self._texts.get(key) == text:
            return
        self._texts[key] = text
        if not isinstance(key, str):
            self._unit_of.update(dict.fromkeys(key, key))
        self._changed[key] = None

    def withdraw(self, key: UnitKey) -> None:
        """Withdraw the text of a unit, in its next turn, if it has one."""
        if self._texts.pop(key, None) is None:
            return
        for gang in key if not isinstance(key, str) else ():
            self._unit_of.pop(gang, None)
        if self._queue.waits(key):
            self._changed[key] = None
