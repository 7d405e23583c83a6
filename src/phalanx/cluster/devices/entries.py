"""Claims as the allocator of devices keeps them."""

from __future__ import annotations

import weakref

from phalanx.model.devices.claims import Claim, ClaimResult


class Taken:
    """The claims that a pod uses, by key, each with what we allocated for it (None: it had been before). `plain` is
    what it will get of extended resources by amounts, where the node has them so."""

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
    """A claim: what the API tells of it, and which pods use it as far as we know. `away` are users that are taken
    away for now, to see what would be possible without them. `counted` is what is counted as in use for it."""

    __slots__ = ("away", "counted", "fact", "users")

    def __init__(self) -> None:
        self.fact: Claim | None = None
        self.users: dict[str, ClaimResult | None] = {}
        self.away: dict[str, weakref.ref[Taken]] = {}
        self.counted: ClaimResult | None = None

    @property
    def allocation(self) -> ClaimResult | None:
        """What it has, or will have by what we decided."""
        if self.fact is not None and self.fact.allocation is not None:
            return self.fact.allocation
        return next((allocation for allocation in self.users.values() if allocation is not None), None)

    @property
    def holds(self) -> ClaimResult | None:
        """What is in use for it, users that are away aside."""
        fact = self.fact
        if fact is not None and fact.allocation is not None and fact.consumers and self.away:
            return None if self.away.keys() >= set(fact.consumers) and not self.users else fact.allocation
        return self.allocation

    @property
    def idle(self) -> bool:
        return self.fact is None and not self.users and not self.away
