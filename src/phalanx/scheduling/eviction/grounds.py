"""On what ground pods may be taken from whom: what quotas and queues say."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from phalanx.cluster.accounts import AccountRecord, Payer, add_amounts
from phalanx.cluster.paths import KOORDINATOR_DEFAULT
from phalanx.model.account import Tree
from phalanx.model.decisions import EvictionReason
from phalanx.scheduling.ceilings import UNLIMITED
from phalanx.scheduling.plugin import Plugin, overrides
from phalanx.scheduling.plugins.capacity import Capacity
from phalanx.scheduling.plugins.quotas import Quotas
from phalanx.scheduling.queuetree import QUEUE_CLOSED

if TYPE_CHECKING:
    from phalanx.scheduling.session import Session

Amounts = Mapping[str, int]
Holdings = Callable[[AccountRecord], Amounts]
"""What an account holds at some moment, for example in the midst of a plan."""

NO_PREEMPTION = "the policy has no action that preempts"
NO_RECLAIM = "the policy has no action that reclaims"
NOBODY_DESERVES = "no plugin of the policy says what queues deserve"
ONE_WITHOUT_QUOTA = "pods that have a quota and pods that have none do not make room for each other"
OTHER_FOREST = "they are in different quota trees"

_QUOTA_TREES = (Tree.ELASTIC_QUOTA, Tree.KOORDINATOR, Tree.ACK)
# Koordinator's pods outside of all quotas neither give nor take (disableDefaultQuotaPreemption, and what its system
# uses is nobody's to share).
_BESIDE = (KOORDINATOR_DEFAULT, "koordinator-system-quota")


def held(account: AccountRecord) -> Amounts:
    """What the account will hold once everything that is on its way out has gone."""
    if not account.leaving:
        return account.used
    amounts = dict(account.used)
    add_amounts(amounts, account.leaving, -1)
    return amounts


class Over(msgspec.Struct, frozen=True):
    """An account and amounts to compare with what it holds. Resources that are absent do not matter."""

    account: AccountRecord
    limits: Amounts

    def exceeded(self, holding: Amounts, amounts: Amounts) -> bool:
        """Whether the account holds more than the limit of anything that `amounts` are about."""
        return any(amounts.get(name, 0) > 0 and holding.get(name, 0) > limit for name, limit in self.limits.items())

    def undercut(self, holding: Amounts, amounts: Amounts) -> bool:
        """Whether it holds the limits now and would not without `amounts`; what was below before does not count."""
        return any(
            holding.get(name, 0) - amounts.get(name, 0) < limit <= holding.get(name, 0)
            for name, limit in self.limits.items()
        )


class Ground(msgspec.Struct, frozen=True):
    """Why a beneficiary may take pods from a lender, and how far.

    With `below` only pods of lower priority. Before every single removal each of `overs` must hold more than its
    limits of something that the victim holds and the beneficiary asks for; after it each of `floors` must still
    hold its limits, where it did before (`permits`). `distance` counts the levels from the beneficiary's leaf up to
    the account that it shares with the lender; nearer lenders go first, then those with the larger `excess`: which
    part of what it holds the lender was not meant to have, 1 for all of it, below 0 where some level of it has
    less than it deserves.
    """

    reason: EvictionReason
    below: bool
    overs: tuple[Over, ...] = ()
    floors: tuple[Over, ...] = ()
    distance: int = 0
    excess: float = 0.0

    def permits(self, amounts: Amounts, holdings: Holdings = held) -> bool:
        """Whether a pod with these amounts may be removed while accounts hold what `holdings` says.

        A pod that holds nothing of what its account has too much of must stay: it could be taken back at once.
        """
        for over in self.overs:
            if not over.exceeded(holdings(over.account), amounts):
                return False
        return not any(floor.undercut(holdings(floor.account), amounts) for floor in self.floors)


class Grounds:
    """All grounds of one beneficiary: a payer that asks for `wanted` in sum.

    Speaks of the sums at the time when it is first asked about a lender: ask before anything is tried.

    Every tree in which either party stands must agree. In quota trees (scheduler-plugins, capacity_scheduling.go):
    who is within his own min, what he asks for included, takes back from quotas above theirs, whatever the
    priorities; within one quota lower priorities make room. In Koordinator the runtime quota takes the place of the
    min. Between queues: who stays within what he deserves, on every level below the queue that both share, takes
    from branches that have more than they deserve; within one queue lower priorities make room, unless quotas say
    otherwise. Only what is asked for is compared, and of that only what somebody in the tree has a share of.

    Since the taker ends within its share and the giver had more than its own before each removal, the giver never
    has a ground to take the same back (`tests/scheduling/test_grounds_fixpoint.py`).
    """

    def __init__(
        self,
        session: Session,
        payer: Payer,
        wanted: Amounts,
        *,
        preempt: bool,
        reclaim: bool,
        announced: bool = False,
    ) -> None:
        """`announced` is somebody who has no pods yet, so that what queues deserve does not count his request: it
        is what they would deserve if it did."""
        ledger = session.ledger  # sums and faults as of now
        self._fault = payer.fault.message if payer.fault is not None else None
        wanted = {name: amount for name, amount in wanted.items() if amount > 0}
        self._queues = _Queues(session, payer, wanted, preempt, reclaim, announced)
        kinds = session.memo("kinds of trees", lambda: {account.key.tree for account in ledger.accounts.values()})
        self._quotas = [
            _Quotas(session, tree, payer, wanted, preempt, reclaim) for tree in _QUOTA_TREES if tree in kinds
        ]
        self._found: dict[Payer, Ground | str] = {}

    def of(self, lender: Payer) -> Ground | str:
        """The ground on which pods of the lender may be taken, or why there is none: a phrase for people."""
        found = self._found.get(lender)
        if found is None:
            found = self._found[lender] = self._fault or self._find(lender)
        return found

    def _find(self, lender: Payer) -> Ground | str:
        words = [word for rule in self._quotas if (word := rule.of(lender)) is not None]
        if not (words and self._queues.shared(lender)):
            words.append(self._queues.of(lender))
        grounds: list[Ground] = []
        for word in words:
            if isinstance(word, str):
                return word
            grounds.append(word)
        if len(grounds) == 1:
            return grounds[0]
        reclaimed = any(ground.reason is EvictionReason.RECLAIMED for ground in grounds)
        return Ground(
            EvictionReason.RECLAIMED if reclaimed else EvictionReason.PREEMPTED,
            any(ground.below for ground in grounds),
            tuple(over for ground in grounds for over in ground.overs),
            tuple(floor for ground in grounds for floor in ground.floors),
            max(ground.distance for ground in grounds),
            max(ground.excess for ground in grounds),
        )


class _Queues:
    """What the queues say."""

    def __init__(
        self,
        session: Session,
        payer: Payer,
        wanted: Amounts,
        preempt: bool,
        reclaim: bool,
        announced: bool,
    ) -> None:
        self._session = session
        self._wanted = wanted
        self._preempt = preempt
        self._reclaim = reclaim
        self._announced = announced
        self._plugins = session.pipeline.plugins("deserved")
        capacity = session.configured(Capacity)
        self._levels = capacity.reclaim_level if capacity is not None else None
        self._chain = payer.queue.lineage() if payer.queue is not None else ()
        self._depths = {account: depth for depth, account in enumerate(self._chain)}
        self._named = {plugin: _named_by(session, plugin) for plugin in self._plugins}
        self._shares: dict[AccountRecord, list[Amounts]] = {}
        self._objections: dict[int, str | None] = {}
        self._found: dict[AccountRecord | None, Ground | str] = {}

    def shared(self, lender: Payer) -> bool:
        """Whether queues tell the two apart by priority alone: they share one, or the lender has none."""
        return not lender.key.queue or (bool(self._chain) and lender.queue is self._chain[0])

    def of(self, lender: Payer) -> Ground | str:
        if self.shared(lender):
            depth = 0 if lender.key.queue else max(0, len(self._chain) - 1)
            return Ground(EvictionReason.PREEMPTED, True, distance=depth) if self._preempt else NO_PREEMPTION
        found = self._found.get(lender.queue)
        if found is None:
            found = self._found[lender.queue] = self._between(lender.queue)
        return found

    def _between(self, queue: AccountRecord | None) -> Ground | str:
        if not self._reclaim:
            return NO_RECLAIM
        if not self._plugins:
            return NOBODY_DESERVES
        top = len(self._chain) - 1
        branch = [*self._branch(queue)] if queue is not None else []
        joint = branch[-1].parent if branch else queue
        depth = self._depths.get(joint, top) if joint is not None else top
        if (objection := self._objection(depth)) is not None:
            return objection
        kept = next((each for each in branch or self._below_root(queue) if not _reclaimable(each)), None)
        if kept is not None:
            return f"{kept.label} is not reclaimable"
        if queue is None or _broken(queue) or not branch:
            # Nothing is deserved in a queue that is gone or broken, or where only its children may have pods.
            return Ground(EvictionReason.RECLAIMED, False, distance=depth, excess=1.0)
        return self._from(branch, depth)

    def _from(self, branch: Sequence[AccountRecord], depth: int) -> Ground | str:
        """`branch` runs from the lender's queue up to the one just below the queue that both share."""
        must = branch[-1:] if self._levels is None else (*branch[: self._levels + 1], branch[-1])
        overs: list[Over] = []
        for account in dict.fromkeys(must):
            holding = held(account)
            for share in self._share(account):
                over = Over(account, share)
                if not over.exceeded(holding, self._wanted):
                    return f"{account.label} is within what it deserves"
                overs.append(over)
        if not overs:
            return NOBODY_DESERVES
        excess = min(
            excess_over(share, held(account), self._wanted) for account in branch for share in self._share(account)
        )
        floors = tuple(Over(account, account.guarantee) for account in branch if account.guarantee)
        return Ground(EvictionReason.RECLAIMED, False, tuple(overs), floors, depth, excess)

    def _branch(self, queue: AccountRecord) -> Iterator[AccountRecord]:
        for account in queue.lineage():
            if account in self._depths:
                return
            yield account

    def _below_root(self, queue: AccountRecord | None) -> Iterable[AccountRecord]:
        return () if queue is None or queue.parent is None else (queue,)

    def _objection(self, depth: int) -> str | None:
        """Which queue below the one at `depth` would hold more than it deserves; None if none would."""
        if depth not in self._objections:
            self._objections[depth] = next(
                (
                    phrase
                    for account in self._chain[:depth]
                    for share in self._share(account)
                    if (phrase := beyond(account, share, self._wanted, "what it deserves")) is not None
                ),
                None,
            )
        return self._objections[depth]

    def _share(self, account: AccountRecord) -> list[Amounts]:
        """What a queue deserves of what is asked for, in the words of each plugin that speaks."""
        found = self._shares.get(account)
        if found is None:
            found = self._shares[account] = []
            least = account.guarantee
            for plugin in self._plugins:
                deserved, named = self._deserved(plugin, account), self._named[plugin]
                if deserved is not None:
                    share = {name: max(deserved.get(name, 0), least.get(name, 0)) for name in self._wanted}
                    found.append({name: amount for name, amount in share.items() if name in named})
        return found

    def _deserved(self, plugin: Plugin, account: AccountRecord) -> Amounts | None:
        if self._announced and self._chain and overrides(plugin, "prospect"):
            return plugin.prospect(self._session, account, self._chain[0], self._wanted)
        return plugin.deserved(self._session, account)


class _Quotas:
    """What the quota trees of one kind say."""

    def __init__(
        self, session: Session, tree: Tree, payer: Payer, wanted: Amounts, preempt: bool, reclaim: bool
    ) -> None:
        self._session = session
        self._tree = tree
        self._wanted = wanted
        self._preempt = preempt
        self._reclaim = reclaim
        self._word = "runtime quota" if tree is Tree.KOORDINATOR else "min"
        self._quota = _quota(payer, tree)
        self._chain = self._quota.lineage() if self._quota is not None else ()
        self._depths = {account: depth for depth, account in enumerate(self._chain)}
        self._named = _named_in(session, tree)
        self._objection: str | None = None
        if self._quota is not None:
            share = self._share(self._quota)
            self._objection = beyond(self._quota, share, wanted, f"its {self._word}")
        self._found: dict[AccountRecord, Ground | str] = {}

    def of(self, lender: Payer) -> Ground | str | None:
        """None if neither party has a quota."""
        quota, mine = _quota(lender, self._tree), self._quota
        if mine is None or quota is None:
            return None if mine is quota else ONE_WITHOUT_QUOTA
        found = self._found.get(quota)
        if found is None:
            found = self._found[quota] = self._between(mine, quota)
        return found

    def _between(self, mine: AccountRecord, quota: AccountRecord) -> Ground | str:
        beside = next((each for each in (quota, mine) if each.key.name in _BESIDE), None)
        if beside is not None and self._tree is Tree.KOORDINATOR:
            return f"{beside.label} stands beside the quotas that make room for each other"
        if quota is mine:
            return Ground(EvictionReason.PREEMPTED, True) if self._preempt else NO_PREEMPTION
        if not self._reclaim:
            return NO_RECLAIM
        if mine.key.forest != quota.key.forest:
            return OTHER_FOREST
        if self._objection is not None:
            return self._objection
        depths = (self._depths[account] for account in quota.lineage() if account in self._depths)
        depth = next(depths, len(self._chain))
        if quota.fault is not None:
            return Ground(EvictionReason.RECLAIMED, False, distance=depth, excess=1.0)
        share, holding = self._share(quota), held(quota)
        over = Over(quota, share)
        if not over.exceeded(holding, self._wanted):
            return f"{quota.label} is within its {self._word}"
        excess = excess_over(share, holding, self._wanted)
        return Ground(EvictionReason.RECLAIMED, False, (over,), (), depth, excess)

    def _share(self, quota: AccountRecord) -> Amounts:
        """What is the quota's own of what is asked for."""
        if self._tree is Tree.KOORDINATOR:
            runtime = _runtime(self._session, quota)
            return {name: amount for name, amount in runtime.items() if name in self._wanted}
        least = dict(quota.noun.deserved or ()) if quota.noun is not None else {}
        return {name: least.get(name, 0) for name in self._wanted if name in self._named}


def beyond(account: AccountRecord, share: Amounts, wanted: Amounts, word: str) -> str | None:
    """Of what the account would hold more than its share if it got what is wanted; None if of nothing."""
    holding = held(account)
    for name, amount in wanted.items():
        if holding.get(name, 0) + amount > share.get(name, UNLIMITED):
            return f"{account.label} would hold more {name} than {word}"
    return None


def excess_over(share: Amounts, holding: Amounts, wanted: Amounts) -> float:
    """The largest part of what is held, of anything that is wanted, that is above the share."""
    parts = [
        (amount - share[name]) / amount for name in wanted if name in share and (amount := holding.get(name, 0)) > 0
    ]
    return max(parts, default=0.0)


def _broken(queue: AccountRecord) -> bool:
    """A closed queue takes nothing new, but keeps what it has."""
    return queue.fault is not None and queue.fault.code != QUEUE_CLOSED


def _reclaimable(queue: AccountRecord) -> bool:
    return queue.noun is None or queue.noun.reclaimable


def _quota(payer: Payer, tree: Tree) -> AccountRecord | None:
    """The leaf that the payer's pods are charged to; the sum over all elastic quotas is none."""
    return next((account for account in payer.path if account.key.tree is tree), None)


def _named_by(session: Session, plugin: Plugin) -> frozenset[str]:
    """The resources of which any queue deserves a share: nobody has a claim on others."""

    def compute() -> frozenset[str]:
        queues = (account for account in session.ledger.accounts.values() if account.key.tree is Tree.QUEUE)
        return frozenset(name for queue in queues for name in plugin.deserved(session, queue) or ())

    return session.memo(("resources with shares", plugin.name), compute)


def _named_in(session: Session, tree: Tree) -> frozenset[str]:
    """The resources of which any quota has a min."""

    def compute() -> frozenset[str]:
        quotas = (account for account in session.ledger.accounts.values() if account.key.tree is tree)
        nouns = (quota.noun for quota in quotas if quota.noun is not None and quota.fault is None)
        return frozenset(name for noun in nouns for name, _ in noun.deserved or ())

    return session.memo(("resources with a min", tree), compute)


def _runtime(session: Session, quota: AccountRecord) -> Amounts:
    """What a Koordinator quota may use at this moment, of the resources that its max names."""
    for plugin in session.pipeline.plugins("ceiling"):
        if isinstance(plugin, Quotas):
            ceiling = plugin.ceiling(session, quota)
            return ceiling.limits if ceiling is not None and ceiling.computed else {}
    return {}
