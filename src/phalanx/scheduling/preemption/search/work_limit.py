"""How much work a search may do, in looks at a pod or a node.

It is counted, not timed: equal questions get equal answers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from phalanx.scheduling.preemption.victims import Victim

_FIND = 80_000
_IMPROVE = 16_000
_FEWEST_TRIES = 24
_LOOK, _MOVE = 6, 4
_CHEAP = 400


class Effort:
    """What is left for finding a choice at all (`find`), and for better ones (`improve`). A try costs `attempt`."""

    def __init__(self, attempt: int) -> None:
        self._attempt = attempt
        self._left = self._to_find = max(_FIND, _FEWEST_TRIES * attempt)
        self._to_improve = max(_IMPROVE, _FEWEST_TRIES // 2 * attempt)
        self._improving = False

    @property
    def lasts(self) -> bool:
        return self._left > 0

    @property
    def cheap(self) -> bool:
        """Whether a try costs little, so that several ways to the same end can be tried."""
        return self._attempt <= _CHEAP

    def find(self) -> None:
        """From now on something is to be found at all."""
        if self._improving:
            self._to_improve, self._left, self._improving = self._left, self._to_find, False

    def improve(self) -> None:
        """From now on something better is to be found."""
        if not self._improving:
            self._to_find, self._left, self._improving = self._left, self._to_improve, True

    def attempt(self) -> None:
        self._left -= self._attempt

    def look(self, victims: int) -> None:
        """So many victims are asked about."""
        self._left -= _LOOK * victims

    def move(self, victims: Sequence[Victim]) -> None:
        """The pods of these are taken off their nodes, or put back."""
        self._left -= _MOVE * sum(len(victim.records) for victim in victims)
