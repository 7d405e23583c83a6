"""How much work a search may do, in looks at a pod or a node.

It is counted, not timed: equal questions get equal answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from phalanx.scheduling.eviction.victims import Victim

_FIND = 80_000
_IMPROVE = 16_000
_FEWEST_TRIES = 24
_LOOK, _MOVE = 6, 4


class Effort:
    """What is left for finding a choice at all, and after `improve` for a better one. A try costs `attempt`."""

    def __init__(self, attempt: int) -> None:
        self._attempt = attempt
        self._left = max(_FIND, _FEWEST_TRIES * attempt)

    @property
    def lasts(self) -> bool:
        return self._left > 0

    def improve(self) -> None:
        self._left = max(_IMPROVE, _FEWEST_TRIES // 2 * self._attempt)

    def attempt(self) -> None:
        self._left -= self._attempt

    def look(self, victims: int) -> None:
        """So many victims are asked about."""
        self._left -= _LOOK * victims

    def move(self, victims: Sequence[Victim]) -> None:
        """The pods of these are taken off their nodes, or put back."""
        self._left -= _MOVE * sum(len(victim.records) for victim in victims)
