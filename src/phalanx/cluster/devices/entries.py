"""ResourceClaims in the allocator of devices."""

from __future__ import annotations

import weakref

from phalanx.model.devices.claims import Claim, ClaimResult


class Taken:
    """ResourceClaims of a pod, by key, each with our allocation (None: it was allocated before). `plain` are its
    extended resources as amounts, on a node that offers them so."""

    __slots__ = ("__weakref__", "claims", "fault", "plain", "uid")

    def __init__(
        self,
        uid: str,
        claims: tuple[tuple[str, ClaimResult | None], ...],
        fault: str = "",
        plain: tuple[tuple[str, int], ...] = (),
    ) -> None:
        self.uid = uid
        self.claims = claims
        self.fault = fault
        self.plain = plain


class Entry:
    """A claim: its last state in the API, and its known users. `away` are temporarily removed users, during a
    tentative placement. `counted` is its allocation that is counted as in use."""

    __slots__ = ("away", "counted", "fact", "users")

    def __init__(self) -> None:
        self.fact: Claim | None = None
        self.users: dict[str, ClaimResult | None] = {}
        self.away: dict[str, weakref.ref[Taken]] = {}
        self.counted: ClaimResult | None = None

    @property
    def allocation(self) -> ClaimResult | None:
        """Allocation of the ResourceClaim: that of the API, or the one that the scheduler chose."""
        if self.fact is not None and self.fact.allocation is not None:
            return self.fact.allocation
        return next((allocation for allocation in self.users.values() if allocation is not None), None)

    @property
    def holds(self) -> ClaimResult | None:
        """The claim's allocation in use: None if it has no user beside temporarily removed ones."""
        fact = self.fact
        if fact is not None and fact.allocation is not None and fact.consumers and self.away:
            return None if self.away.keys() >= set(fact.consumers) and not self.users else fact.allocation
        return self.allocation

    @property
    def idle(self) -> bool:
        return self.fact is None and not self.users and not self.away
