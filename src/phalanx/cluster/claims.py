"""Room that is held for pods until others, who were told to leave, have left."""

from __future__ import annotations

from collections.abc import Container


class Claim:
    """One decision's promise to its beneficiaries; every pod of the decision refers to the same claim.

    `leavers` are the uids of the pods that must be gone before the promise can be kept, `until` when (seconds since
    the epoch) it is given up if they are not, `cause` ties it to the decision. After a restart leavers are not
    known any more: then the claim holds its room until the beneficiary has had its turn. `hands` counts how often
    the room was promised to somebody and taken by the next.
    """

    __slots__ = ("cause", "hands", "leavers", "until")

    def __init__(
        self, leavers: frozenset[str] = frozenset(), until: float = 0.0, cause: str = "", hands: int = 0
    ) -> None:
        self.leavers = leavers
        self.until = until
        self.cause = cause
        self.hands = hands

    def __repr__(self) -> str:
        return f"Claim({len(self.leavers)} leavers, until={self.until})"

    def awaited(self, leaving: Container[str]) -> list[str]:
        """Those of the leavers that are among `leaving`, sorted."""
        return sorted(uid for uid in self.leavers if uid in leaving)
