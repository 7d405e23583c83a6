"""Limits of accounts."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.cluster.accounts import AccountRecord

UNLIMITED = 2**62


class Limit(msgspec.Struct, frozen=True):
    """Present limit of an account per resource; absent resources are not limited.

    - `word`: name of the limit in sentences ("capability", "max", "deserved share").
    - `change`: imperative that raises the limit, to which the amount is added; "" if only lower use by other
      accounts raises it. `hint` is another whole imperative.
    - `computed`: the limit follows from the cluster's size and the requests of other accounts. More nodes raise it,
      so a lack of room on nodes is the better reason.
    - `follows`: amount per resource by which the limit rises if a declared limit of the same account is raised.
    - `max`: declared limit that a computed limit has reached; it is the better reason, as more nodes do not help.
    - `lends`: units can exceed the limit where room is idle that no unit within its share can use.
    - `reserves`: unused guarantees of the account's children count as used, except towards the child itself.
    """

    word: str
    limits: Mapping[str, int]
    change: str = ""
    hint: str = ""
    computed: bool = False
    reserves: bool = False
    lends: bool = False
    follows: Mapping[str, int] = {}
    max: Mapping[str, int] = {}


class AccountLimit(msgspec.Struct, frozen=True):
    """Limit of an account, seen from a charge path through the accounts `below` it, the leaf first.

    With `strict` the limit also refuses what exceeds the whole cluster.
    """

    account: AccountRecord
    limit: Limit
    below: tuple[AccountRecord, ...]
    strict: bool = False

    def room(self, amounts: Mapping[str, int]) -> int:
        """Return the number of times that the amounts fit below the limit; only requested resources are
        compared."""
        room, limits = UNLIMITED, self.limit.limits
        for name, amount in amounts.items():
            if name in limits and amount > 0:
                limit, used, kept = self.state(name)
                if not self._exceeds_cluster(name, used + amount):
                    room = min(room, max((limit - used) // amount, kept // amount))
        return max(0, room)

    def grows_with_nodes(self, resource: str) -> bool:
        """Return whether more nodes raise the limit: it follows from the size of the cluster, and no declared limit
        of the account has been reached."""
        limit = self.limit.limits[resource]
        if self.limit.reserves:
            return limit < self.account.capability.get(resource, UNLIMITED)
        return self.limit.computed and limit < self.limit.max.get(resource, UNLIMITED)

    def refuses(self, resource: str, wanted: int) -> bool:
        limit, used, kept = self.state(resource)
        return used + wanted > limit and wanted > kept and not self._exceeds_cluster(resource, used + wanted)

    def state(self, resource: str) -> tuple[int, int, int]:
        """Return (limit, used, reserved)."""
        account, limit = self.account, self.limit.limits[resource]
        used = account.used.get(resource, 0)
        if not self.limit.reserves:
            return limit, used, 0
        reserved = 0
        for child in self.below:
            # Subtract the part of the child's unused guarantee that is reserved for its other children.
            reserved += child.idle_guarantee(resource) - child.reserved_for_children.get(resource, 0)
        return limit - account.reserved_for_children.get(resource, 0) + reserved, used, reserved

    def hint(self, resource: str) -> str:
        """Return an imperative that would free room below the limit, "" for none.

        For a reserving limit it names the account with the largest unused guarantee beside the path.
        """
        if not self.limit.reserves:
            return self.limit.hint
        holder, account = None, self.account
        while reserving_children := [
            child
            for child in account.children.values()
            if child not in self.below and child.idle_guarantee(resource) > 0
        ]:
            account = max(reserving_children, key=lambda child: (child.idle_guarantee(resource), child.key.name))
            holder = account
            if account.guarantee.get(resource, 0) - account.used.get(
                resource, 0
            ) >= account.reserved_for_children.get(resource, 0):
                break
        return f"lower the guarantee of {holder.label}" if holder is not None else ""

    def _exceeds_cluster(self, resource: str, held: int) -> bool:
        """Return whether the request exceeds the whole cluster: fit errors of nodes then explain more."""
        whole = self.limit.reserves and self.account.parent is None and not self.strict
        return whole and held > self.limit.limits[resource]
