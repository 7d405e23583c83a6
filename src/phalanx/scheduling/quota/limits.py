"""What an account may hold at most."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from phalanx.cluster.accounts import AccountRecord

UNLIMITED = 2**62


class Limit(msgspec.Struct, frozen=True):
    """What an account may hold at most now, per resource; a resource that is absent is not limited.

    `word` names the limit in sentences ("capability", "max", "deserved share"). `change` is what would raise it,
    as an imperative to which the amount is added, "" where only others' giving way does; `hint` is another whole
    imperative. `computed` limits follow from what the cluster has and others ask for: more nodes raise them, so
    where nodes lack room as well, that is the reason to give. `follows` says by how much, per resource, one would
    rise if what somebody has stated for the same account were raised. Where a computed limit has come to the
    `max` that somebody has stated, that is the reason, and more nodes would change nothing. With `reserves` what
    the account's children are guaranteed and do not use counts as used, except towards the child it is kept for.
    """

    word: str
    limits: Mapping[str, int]
    change: str = ""
    hint: str = ""
    computed: bool = False
    reserves: bool = False
    follows: Mapping[str, int] = {}
    max: Mapping[str, int] = {}


class AccountLimit(msgspec.Struct, frozen=True):
    """A limit of an account, on the path that comes through the accounts `below` it, the leaf first."""

    account: AccountRecord
    limit: Limit
    below: tuple[AccountRecord, ...]

    def room(self, amounts: Mapping[str, int]) -> int:
        """How many times the amounts fit below the limit; only resources that are asked for are compared."""
        room, limits = UNLIMITED, self.limit.limits
        for name, amount in amounts.items():
            if name in limits and amount > 0:
                limit, used, kept = self.state(name)
                if not self._left_to_nodes(name, used + amount):
                    room = min(room, max((limit - used) // amount, kept // amount))
        return max(0, room)

    def refuses(self, resource: str, wanted: int) -> bool:
        limit, used, kept = self.state(resource)
        return used + wanted > limit and wanted > kept and not self._left_to_nodes(resource, used + wanted)

    def state(self, resource: str) -> tuple[int, int, int]:
        """(the limit, what is used of it, what is kept below it for whoever comes this way)."""
        account, limit = self.account, self.limit.limits[resource]
        used = account.used.get(resource, 0)
        if not self.limit.reserves:
            return limit, used, 0
        kept = 0
        for each in self.below:
            # What is kept for it, less what of that is for its other children.
            kept += each.idle_guarantee(resource) - each.reserved_for_children.get(resource, 0)
        return limit - account.reserved_for_children.get(resource, 0) + kept, used, kept

    def hint(self, resource: str) -> str:
        """What somebody could do about the limit, "" where nobody can: lower the guarantee for whose sake most is
        kept of the resource beside the path."""
        if not self.limit.reserves:
            return self.limit.hint
        holder, account = None, self.account
        while others := [
            child
            for child in account.children.values()
            if child not in self.below and child.idle_guarantee(resource) > 0
        ]:
            account = max(others, key=lambda child: (child.idle_guarantee(resource), child.key.name))
            holder = account
            if account.guarantee.get(resource, 0) - account.used.get(
                resource, 0
            ) >= account.reserved_for_children.get(resource, 0):
                break
        return f"lower the guarantee of {holder.label}" if holder is not None else ""

    def _left_to_nodes(self, resource: str, held: int) -> bool:
        """Whether not even the whole cluster has so much: what nodes say about that helps more."""
        whole = self.limit.reserves and self.account.parent is None
        return whole and held > self.limit.limits[resource]
