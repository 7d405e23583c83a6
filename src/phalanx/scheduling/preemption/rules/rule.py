"""A rule by which pods may be taken, and what queues and quotas compare to find one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from phalanx.cluster.accounts import AccountRecord, ChargePath, add_amounts
from phalanx.model.decisions import EvictionReason
from phalanx.scheduling.quota.limits import UNLIMITED

Amounts = Mapping[str, int]
Holdings = Callable[[AccountRecord], Amounts]
"""What an account holds at some moment, for example in the midst of a plan."""

NO_PREEMPTION = "the policy has no action that preempts"
NO_RECLAIM = "the policy has no action that reclaims"


def future_holdings(account: AccountRecord) -> Amounts:
    """What the account will hold once everything that is on its way out has gone."""
    if not account.releasing:
        return account.used
    amounts = dict(account.used)
    add_amounts(amounts, account.releasing, -1)
    return amounts


class AccountLimits(msgspec.Struct, frozen=True):
    """An account and amounts to compare with what it holds. Resources that are absent do not matter. `contested`
    are those that somebody asks for."""

    account: AccountRecord
    limits: Amounts
    contested: frozenset[str] = frozenset()

    def exceeded(self, holding: Amounts, amounts: Amounts) -> bool:
        """Whether the account holds more than the limit of anything that `amounts` are about."""
        return any(amounts.get(name, 0) > 0 and holding.get(name, 0) > limit for name, limit in self.limits.items())

    def undercut(self, holding: Amounts, amounts: Amounts) -> bool:
        """Whether it would not hold the limits without `amounts`. Of what nobody contests it may lose more where it
        held less before."""
        for name, limit in self.limits.items():
            amount, holds = amounts.get(name, 0), holding.get(name, 0)
            if amount > 0 and holds - amount < limit and (holds >= limit or name in self.contested):
                return True
        return False


class ReclaimRule(msgspec.Struct, frozen=True):
    """Why a preemptor may take pods from a reclaimee, and how far.

    With `lower_priority_only` only pods of lower priority; with `drf` as well those of gangs of equal priority that
    hold more (see `DrfPreemption`). Before every single removal each of `must_exceed` must hold more than its
    limits of something that the victim holds and the preemptor asks for; after it each of `must_keep` must still
    hold its limits (`allows_removal`). `distance` counts the levels from the preemptor's leaf up to the account
    that it shares with the reclaimee; nearer reclaimees go first, then those with the larger `excess`: which part
    of what it holds the reclaimee was not meant to have, 1 for all of it. `shares` say what that is measured by
    when holdings change (see `excess_of`).
    """

    reason: EvictionReason
    lower_priority_only: bool
    must_exceed: tuple[AccountLimits, ...] = ()
    must_keep: tuple[AccountLimits, ...] = ()
    distance: int = 0
    excess: float = 0.0
    drf: bool = False
    shares: tuple[tuple[AccountLimits, ...], ...] = ()

    def excess_at(self, holdings: Holdings) -> float:
        """The `excess` while accounts hold what `holdings` says."""
        return excess_of(self.shares, holdings) if self.shares else self.excess

    def allows_removal(self, amounts: Amounts, holdings: Holdings = future_holdings) -> bool:
        """Whether a pod with these amounts may be removed while accounts hold what `holdings` says.

        A pod that holds nothing of what its account has too much of must stay: it could be taken back at once.
        """
        for over in self.must_exceed:
            if not over.exceeded(holdings(over.account), amounts):
                return False
        return not any(floor.undercut(holdings(floor.account), amounts) for floor in self.must_keep)


class ReclaimRequest(msgspec.Struct, frozen=True):
    """Who asks: `charge_path`, for `wanted` in sum. `charges` tell what every account of the preemptor would be
    charged by all its charge paths. `preempt` and `reclaim` are what the policy has actions for. `announced` is
    somebody who has no pods yet, so that what queues deserve does not count his request: it is what they would
    deserve if it did.
    """

    charge_path: ChargePath
    wanted: Amounts
    charges: Mapping[AccountRecord, Amounts]
    preempt: bool
    reclaim: bool
    announced: bool = False

    def exceeds_share(self, account: AccountRecord, share: Amounts, word: str) -> str | None:
        """Of what the account would hold more than its share if the preemptor got all; None if of nothing."""
        holding, charges = future_holdings(account), self.charges.get(account, {})
        for name in self.wanted:
            if holding.get(name, 0) + charges.get(name, 0) > share.get(name, UNLIMITED):
                return f"{account.label} would hold more {name} than {word}"
        return None


def excess_of(dues: Iterable[Iterable[AccountLimits]], holdings: Holdings) -> float:
    """Which part of what accounts hold is above their limits: the largest of any resource, of the accounts of a
    group the smallest, and of several groups the largest."""
    return max(min(map(_part_over, group, map(holdings, [over.account for over in group]))) for group in dues)


def _part_over(over: AccountLimits, holding: Amounts) -> float:
    parts = [(held - limit) / held for name, limit in over.limits.items() if (held := holding.get(name, 0)) > 0]
    return max(parts, default=0.0)
