"""Reclaim rules, and the comparison of queues and quotas that leads to one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from phalanx.cluster.accounts import AccountRecord, ChargePath, add_amounts
from phalanx.model.decisions import EvictionReason
from phalanx.scheduling.quota.limits import UNLIMITED

Amounts = Mapping[str, int]
Holdings = Callable[[AccountRecord], Amounts]
"""Usage of an account at one point of a search."""

NO_PREEMPTION = "the policy has no action that preempts"
NO_RECLAIM = "the policy has no action that reclaims"


def future_holdings(account: AccountRecord) -> Amounts:
    """Return the usage of the account after all its terminating pods have left."""
    if not account.releasing:
        return account.used
    amounts = dict(account.used)
    add_amounts(amounts, account.releasing, -1)
    return amounts


class AccountLimits(msgspec.Struct, frozen=True):
    """Amounts to compare with an account's usage.

    Absent resources are not compared; `contested` resources are requested by a preemptor.
    """

    account: AccountRecord
    limits: Amounts
    contested: frozenset[str] = frozenset()

    def exceeded(self, holding: Amounts, amounts: Amounts) -> bool:
        """Return whether the account exceeds the limit of a resource in `amounts`."""
        return any(amounts.get(name, 0) > 0 and holding.get(name, 0) > limit for name, limit in self.limits.items())

    def undercut(self, holding: Amounts, amounts: Amounts) -> bool:
        """Return whether the account would fall below a limit without `amounts`.

        For uncontested resources a usage that is already below the limit can shrink further.
        """
        for name, limit in self.limits.items():
            amount, holds = amounts.get(name, 0), holding.get(name, 0)
            if amount > 0 and holds - amount < limit and (holds >= limit or name in self.contested):
                return True
        return False


class ReclaimRule(msgspec.Struct, frozen=True):
    """Permission of a preemptor to evict pods of a reclaimee, with its bounds.

    - `lower_priority_only`: only pods of lower priority; with `drf` also pods of gangs of equal priority with a
      larger dominant share (`DrfPreemption`).
    - `must_exceed`: accounts that must, before every removal, exceed the limit of a resource that the victim uses
      and the preemptor requests.
    - `must_keep`: accounts that must still use their limits after it (`allows_removal`).
    - `distance`: levels from the preemptor's leaf up to the account that it shares with the reclaimee; victims of
      near reclaimees are evicted first, then those of the larger `excess`.
    - `excess`: part of its usage that the reclaimee does not deserve, 1 for all of it.
    - `shares`: limits from which `excess_of` recomputes the excess when usage changes.
    - `deserved`: shares of the requested resources that the reclaimee's accounts deserve, on every level below the
      account that it shares with the preemptor; `shortfall_of` compares them with the usage that is left.
    """

    reason: EvictionReason
    lower_priority_only: bool
    must_exceed: tuple[AccountLimits, ...] = ()
    must_keep: tuple[AccountLimits, ...] = ()
    distance: int = 0
    excess: float = 0.0
    drf: bool = False
    shares: tuple[tuple[AccountLimits, ...], ...] = ()
    deserved: tuple[AccountLimits, ...] = ()

    @property
    def reclaimed_accounts(self) -> tuple[AccountRecord, ...]:
        """Accounts that lose usage by this rule, each level once per plugin that states a share."""
        return tuple(over.account for over in self.must_exceed)

    def within_surplus(self) -> ReclaimRule:
        """Return the rule for victims whose removal keeps the accounts at the limits that they exceed now."""
        floors: list[AccountLimits] = []
        for over in self.must_exceed:
            holding = future_holdings(over.account)
            exceeded = {name: limit for name, limit in over.limits.items() if holding.get(name, 0) > limit}
            floors.append(AccountLimits(over.account, exceeded, frozenset(exceeded)))
        return msgspec.structs.replace(self, must_keep=(*self.must_keep, *floors))

    def excess_at(self, holdings: Holdings) -> float:
        """Return the excess at the given usage of accounts."""
        return excess_of(self.shares, holdings) if self.shares else self.excess

    def allows_removal(self, amounts: Amounts, holdings: Holdings = future_holdings) -> bool:
        """Return whether a pod with these amounts can be removed at the given usage of accounts.

        A pod that uses no resource of which its account has an excess is protected: the account could reclaim the
        room at once.
        """
        for over in self.must_exceed:
            if not over.exceeded(holdings(over.account), amounts):
                return False
        return not any(floor.undercut(holdings(floor.account), amounts) for floor in self.must_keep)


class ReclaimRequest(msgspec.Struct, frozen=True):
    """Request of a preemptor: `charge_path` requests `wanted` in sum.

    - `charges`: amounts by which all charge paths of the preemptor would charge each account.
    - `preempt`, `reclaim`: whether the policy has the action.
    - `announced`: the preemptor has no pods yet, so deserved shares do not include its request; they are computed
      as if they did.
    """

    charge_path: ChargePath
    wanted: Amounts
    charges: Mapping[AccountRecord, Amounts]
    preempt: bool
    reclaim: bool
    announced: bool = False

    def exceeds_share(self, account: AccountRecord, share: Amounts, word: str) -> str | None:
        """Return a message that names a resource of which the account would exceed its share with the whole
        request; None if there is none."""
        holding, charges = future_holdings(account), self.charges.get(account, {})
        for name in self.wanted:
            if holding.get(name, 0) + charges.get(name, 0) > share.get(name, UNLIMITED):
                return f"{account.label} would use more {name} than {word}"
        return None


def excess_of(dues: Iterable[Iterable[AccountLimits]], holdings: Holdings) -> float:
    """Return the part of usage above the limits.

    The result is the largest over groups of the smallest over a group's accounts of the largest over resources.
    """
    return max(min(map(_part_over, group, map(holdings, [over.account for over in group]))) for group in dues)


def _part_over(over: AccountLimits, holding: Amounts) -> float:
    parts = [(held - limit) / held for name, limit in over.limits.items() if (held := holding.get(name, 0)) > 0]
    return max(parts, default=0.0)
