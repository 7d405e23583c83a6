"""Loans are given last: who stays within what is his own has his turn before anybody gets more than that.

Otherwise what a cycle lends to one would be taken back from him by the next one, for somebody of the same cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from phalanx.cluster.accounts import AccountRecord, ChargePath, add_amounts
from phalanx.scheduling.ordering.entitlements import QUOTA_TREES, own_of, quota_of
from phalanx.scheduling.ordering.surplus import SurplusTurn
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.quota.limits import UNLIMITED
from phalanx.scheduling.session.session import Session

Amounts = Mapping[str, int]
Entry = QueuedUnit | SurplusTurn

# Deeper than any queue: whoever exceeds his quota takes nothing back, whatever his queues say.
_QUOTA = 1_000_000


class _PutOff:
    """Entries whose turn is later, all alike: the `degree` of each, and the accounts whose order they keep."""

    __slots__ = ("accounts", "degree", "entries")

    def __init__(self, entries: Sequence[Entry], degree: int, accounts: Iterable[AccountRecord]) -> None:
        self.entries = entries
        self.degree = degree
        self.accounts = tuple(accounts)


class Borrowing:
    """Puts off, within one walk of the line, what would be lent, by its degree.

    The degree is 0 while every queue and quota that pays stays within its own, else the depth of the deepest queue
    that does not: one that is exceeded close to the root leaves a ground to take back from its siblings' children,
    not from others. Quotas count more than queues, and there only the leaf. What is compared is what is asked for.

    Nobody overtakes another of the same account: whoever comes behind one that is put off is put off as well. If he
    stays within his own, then all of the account up to him have their turn right after everybody else who does; of
    several such accounts he alone has, lest the loans of one be at the cost of what is another's own.
    """

    def __init__(self, session: Session, charge_paths: Iterable[ChargePath]) -> None:
        self._session = session
        # What queues deserve is nobody's right where nothing is ever taken back; a quota's min is.
        self._takes_back = session.plugin_runtime.policy.eviction.reclaim
        self._own: dict[AccountRecord, tuple[Amounts, ...]] = {}
        self._degrees: dict[ChargePath, list[tuple[AccountRecord, AccountRecord, int]]] = {}
        self._limit = 0
        self._exempt: set[Entry] = set()
        self._waiting: list[_PutOff] = []
        # Those of them that have waited since before this round.
        self._earlier: list[_PutOff] = []
        # Where among those who wait the last of an account stands that stays within its own; -1: none does.
        self._behind: dict[AccountRecord, int] = {}
        # With one account alone there is nobody to lend anything.
        leaves = {
            (charge_path.queue, *(quota_of(charge_path, tree) for tree in QUOTA_TREES))
            for charge_path in charge_paths
        }
        self.active = len(leaves) > 1

    def begin(self) -> None:
        """A round begins, perhaps anew."""
        self._waiting, self._behind = list(self._earlier), {}

    def within(self, entry: Entry, charge_path: ChargePath | None, amounts: Amounts, count: int) -> int:
        """How many of `count` copies of what an entry asks for have their turn now."""
        if not self.active or charge_path is None or entry in self._exempt:
            return count
        self._session.state.ledger.refresh_sums()
        return 0 if self._before(charge_path.path) else min(count, self._room(charge_path, amounts))

    def is_late(self, unit: QueuedUnit, charges: Mapping[ChargePath, Amounts]) -> bool:
        """Whether the turn of a unit that would be charged so is later."""
        if not self.active or unit in self._exempt:
            return False
        self._session.state.ledger.refresh_sums()
        behind = self._before(account for charge_path in charges for account in charge_path.path)
        return bool(behind) or self._degree(charges) > self._limit

    def postpone(self, entries: Sequence[Entry], charges: Mapping[ChargePath, Amounts]) -> None:
        """Gives entries that could get something now their turn later. Nobody else is put off: whoever could get
        nothing anyway holds up nobody, as if he were not there."""
        self._session.state.ledger.refresh_sums()
        behind = self._before(account for charge_path in charges for account in charge_path.path)
        degree, place = self._degree(charges), len(self._waiting)
        for account in behind if degree <= self._limit else ():
            self._behind[account] = place
        accounts = {leaf for leaf, _ in self._exceeded(charges)} | set(behind)
        accounts |= {
            charge_path.queue
            for charge_path in charges
            if charge_path.queue is not None and _keeps_order(charge_path.queue)
        }
        for account in accounts:
            self._behind.setdefault(account, -1)
        self._waiting.append(_PutOff(entries, degree, accounts))

    def __contains__(self, unit: QueuedUnit) -> bool:
        """Whether the last that was put off is the unit."""
        return bool(self._waiting) and self._waiting[-1].entries[0] is unit

    def next_round(self) -> list[Entry]:
        """Those whose turn comes when nobody else is left, in the order in which they were put off."""
        waiting, behind = self._waiting, self._behind
        held_up = {account for account, place in behind.items() if place >= 0}
        first = [
            each
            for place, each in enumerate(waiting)
            if any(behind.get(account, -1) >= place for account in each.accounts)
        ]
        if len(held_up) > 1:
            first = [each for each in first if each.degree <= self._limit]
        self._exempt = {entry for each in first for entry in each.entries} if len(held_up) == 1 else set()
        if not first:
            self._limit = min((each.degree for each in waiting), default=0)
            first = waiting
        going = set(first)
        self._earlier = [each for each in waiting if each not in going]
        self.begin()
        return [entry for each in first for entry in each.entries]

    def _before(self, accounts: Iterable[AccountRecord]) -> list[AccountRecord]:
        """Those of the accounts of which somebody has been put off in this round."""
        return [account for account in accounts if account in self._behind] if self._behind else []

    def _degree(self, charges: Mapping[ChargePath, Amounts]) -> int:
        return max((degree for _, degree in self._exceeded(charges)), default=0)

    def _exceeded(self, charges: Mapping[ChargePath, Amounts]) -> Iterator[tuple[AccountRecord, int]]:
        """Of the accounts that would hold more than their own: the leaf that pays, and the degree of the loan."""
        sums: dict[AccountRecord, dict[str, int]] = {}
        for charge_path, amounts in charges.items() if len(charges) > 1 else ():
            for account in charge_path.path:
                add_amounts(sums.setdefault(account, {}), amounts, 1)
        for charge_path, amounts in charges.items():
            for account, leaf, degree in self._accounts(charge_path):
                if self._copies(account, sums.get(account, amounts)) < 1:
                    yield leaf, degree

    def _room(self, charge_path: ChargePath, amounts: Amounts) -> int:
        """How many times the amounts make no larger a loan than may be given in this round."""
        own = (account for account, _, degree in self._accounts(charge_path) if degree > self._limit)
        return min((self._copies(account, amounts) for account in own), default=UNLIMITED)

    def _copies(self, account: AccountRecord, amounts: Amounts) -> int:
        room = UNLIMITED
        for share in self._own[account]:
            for name, amount in amounts.items():
                if amount > 0 and name in share:
                    holds = account.used.get(name, 0) - account.releasing.get(name, 0)
                    room = min(room, max(0, (share[name] - holds) // amount))
        return room

    def _accounts(self, charge_path: ChargePath) -> list[tuple[AccountRecord, AccountRecord, int]]:
        """The charge path's queues and quotas that have anything of their own, each with the leaf of its tree, and
        the degree of a loan to it."""
        found = self._degrees.get(charge_path)
        if found is None:
            lineage = charge_path.queue.lineage()[:-1] if charge_path.queue is not None and self._takes_back else ()
            ranked = [(queue, lineage[0], len(lineage) - place) for place, queue in enumerate(lineage)]
            quotas = (quota_of(charge_path, tree) for tree in QUOTA_TREES)
            ranked += [(quota, quota, _QUOTA) for quota in quotas if quota is not None]
            for account, _, _ in ranked:
                if account not in self._own:
                    self._own[account] = own_of(self._session, account)
            found = self._degrees[charge_path] = [entry for entry in ranked if self._own[entry[0]]]
        return found


def _keeps_order(queue: AccountRecord) -> bool:
    return queue.spec is not None and queue.spec.fifo
