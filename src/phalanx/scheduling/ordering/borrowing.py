"""Borrowing last: units within their own quota have their turns before units that borrow.

Otherwise the next cycle would reclaim from one unit the amounts that this cycle lent to it, for another unit of the
same cycle.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from phalanx.cluster.accounts import AccountRecord, ChargePath, add_amounts
from phalanx.scheduling.framework.queue_policies import keeps_order
from phalanx.scheduling.ordering.entitlements import QUOTA_TREES, own_of, quota_of
from phalanx.scheduling.ordering.surplus import SurplusTurn
from phalanx.scheduling.queue.unit import QueuedUnit
from phalanx.scheduling.quota.limits import UNLIMITED
from phalanx.scheduling.session.session import Session

Amounts = Mapping[str, int]
Entry = QueuedUnit | SurplusTurn

# Degree beyond any queue's depth: an account that exceeds its quota reclaims nothing, whatever its queues permit.
_QUOTA = 1_000_000


class _Postponed:
    """Postponed entries of one request: their `degree`, and the accounts in which no unit overtakes them."""

    __slots__ = ("accounts", "degree", "entries")

    def __init__(self, entries: Sequence[Entry], degree: int, accounts: Iterable[AccountRecord]) -> None:
        self.entries = entries
        self.degree = degree
        self.accounts = tuple(accounts)


class Borrowing:
    """Postponement of units that would borrow, by degree, within one walk through the order.

    The degree is 0 while every queue and quota on the charge path stays within its own share. Else it is the depth
    of the deepest queue that does not: a queue that exceeds its share close to the root can still reclaim from its
    siblings' children, but from no others. Quotas count more than queues, and only their leaf counts. Only
    requested resources are compared.

    No unit overtakes another of the same account: units behind a postponed one are postponed too. If such a unit
    stays within its share, then all of the account up to it have their turns right after all others that do. With
    several such accounts only the unit itself has, as loans of one account must not use up the own share of
    another.
    """

    def __init__(self, session: Session, charge_paths: Iterable[ChargePath]) -> None:
        self._session = session
        self._queues = session.plugin_runtime.policy.queues
        # Without reclaim, deserved shares of queues give no claim; a quota's min does.
        self._takes_back = session.plugin_runtime.policy.eviction.reclaim
        self._own: dict[AccountRecord, tuple[Amounts, ...]] = {}
        self._degrees: dict[ChargePath, list[tuple[AccountRecord, AccountRecord, int]]] = {}
        self._limit = 0
        self._exempt: set[Entry] = set()
        self._waiting: list[_Postponed] = []
        # Entries that were postponed before this round.
        self._earlier: list[_Postponed] = []
        # Account -> index of its last postponed entry that stays within its share; -1 for none.
        self._behind: dict[AccountRecord, int] = {}
        # With a single account there is no account to lend to.
        leaves = {
            (charge_path.queue, *(quota_of(charge_path, tree) for tree in QUOTA_TREES))
            for charge_path in charge_paths
        }
        self.active = len(leaves) > 1

    def begin(self) -> None:
        """Begin a round, or restart it."""
        self._waiting, self._behind = list(self._earlier), {}

    def within(self, entry: Entry, charge_path: ChargePath | None, amounts: Amounts, count: int) -> int:
        """Return the number of the `count` copies that have their turn now."""
        if not self.active or charge_path is None or entry in self._exempt:
            return count
        self._session.state.ledger.refresh_sums()
        return 0 if self._before(charge_path.path) else min(count, self._room(charge_path, amounts))

    def is_late(self, unit: QueuedUnit, charges: Mapping[ChargePath, Amounts]) -> bool:
        """Return whether the turn of a unit with these charges is postponed."""
        if not self.active or unit in self._exempt:
            return False
        self._session.state.ledger.refresh_sums()
        behind = self._before(account for charge_path in charges for account in charge_path.path)
        return bool(behind) or self._degree(charges) > self._limit

    def postpone(self, entries: Sequence[Entry], charges: Mapping[ChargePath, Amounts]) -> None:
        """Postpone entries that could be placed now.

        Entries that could not be placed are not postponed and block no others.
        """
        self._session.state.ledger.refresh_sums()
        behind = self._before(account for charge_path in charges for account in charge_path.path)
        degree, place = self._degree(charges), len(self._waiting)
        for account in behind if degree <= self._limit else ():
            self._behind[account] = place
        accounts = {leaf for leaf, _ in self._exceeded(charges)} | set(behind)
        accounts |= {
            charge_path.queue
            for charge_path in charges
            if charge_path.queue is not None and keeps_order(self._queues, charge_path.queue)
        }
        for account in accounts:
            self._behind.setdefault(account, -1)
        self._waiting.append(_Postponed(entries, degree, accounts))

    def follows(self, unit: QueuedUnit) -> bool:
        """Return whether a postponed unit is before this one in a queue that keeps its order."""
        if not self._behind or unit in self._exempt:
            return False
        queues = [self._session.charge_path(member).queue for member in unit.members]
        return any(
            queue in self._behind and keeps_order(self._queues, queue) for queue in queues if queue is not None
        )

    def postpone_behind(self, entries: Sequence[QueuedUnit]) -> None:
        """Postpone units that could not be placed behind a postponed one (`follows`).

        Their reason, and a start that is reserved for them, depend on the turn of the unit before them.
        """
        queues = (self._session.charge_path(member).queue for unit in entries for member in unit.members)
        self._waiting.append(_Postponed(entries, 0, dict.fromkeys(queue for queue in queues if queue is not None)))

    def __contains__(self, unit: QueuedUnit) -> bool:
        """Return whether the last postponed entry is the unit."""
        return bool(self._waiting) and self._waiting[-1].entries[0] is unit

    def next_round(self) -> list[Entry]:
        """Return the entries of the next round in the order of postponement."""
        waiting, behind = self._waiting, self._behind
        held_up = {account for account, place in behind.items() if place >= 0}
        first = [
            postponed
            for place, postponed in enumerate(waiting)
            if any(behind.get(account, -1) >= place for account in postponed.accounts)
        ]
        if len(held_up) > 1:
            first = self._within_shares(first)
        self._exempt = {entry for postponed in first for entry in postponed.entries} if len(held_up) == 1 else set()
        if not first:
            degrees = {postponed.degree for postponed in waiting}
            self._limit = min((degree for degree in degrees if degree > self._limit), default=self._limit)
            first = waiting
        next_entries = set(first)
        self._earlier = [postponed for postponed in waiting if postponed not in next_entries]
        self.begin()
        return [entry for postponed in first for entry in postponed.entries]

    def _within_shares(self, postponed: Iterable[_Postponed]) -> list[_Postponed]:
        """Return the entries that stay within their shares and are behind no other one in a queue that keeps its
        order."""
        chosen, closed = list[_Postponed](), set[AccountRecord]()
        for entry in postponed:
            if entry.degree <= self._limit and closed.isdisjoint(entry.accounts):
                chosen.append(entry)
            else:
                closed |= {account for account in entry.accounts if keeps_order(self._queues, account)}
        return chosen

    def _before(self, accounts: Iterable[AccountRecord]) -> list[AccountRecord]:
        """Return the accounts with a postponed entry in this round."""
        return [account for account in accounts if account in self._behind] if self._behind else []

    def _degree(self, charges: Mapping[ChargePath, Amounts]) -> int:
        return max((degree for _, degree in self._exceeded(charges)), default=0)

    def _exceeded(self, charges: Mapping[ChargePath, Amounts]) -> Iterator[tuple[AccountRecord, int]]:
        """Yield (leaf that pays, degree) of the accounts that would exceed their own share."""
        sums: dict[AccountRecord, dict[str, int]] = {}
        for charge_path, amounts in charges.items() if len(charges) > 1 else ():
            for account in charge_path.path:
                add_amounts(sums.setdefault(account, {}), amounts, 1)
        for charge_path, amounts in charges.items():
            for account, leaf, degree in self._accounts(charge_path):
                if self._copies(account, sums.get(account, amounts)) < 1:
                    yield leaf, degree

    def _room(self, charge_path: ChargePath, amounts: Amounts) -> int:
        """Return the number of times that the amounts fit without a loan above this round's degree."""
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
        """Return (account, leaf of its tree, degree of a loan) for the charge path's queues and quotas with an own
        share."""
        ranked_accounts = self._degrees.get(charge_path)
        if ranked_accounts is None:
            lineage = charge_path.queue.lineage()[:-1] if charge_path.queue is not None and self._takes_back else ()
            ranked = [(queue, lineage[0], len(lineage) - place) for place, queue in enumerate(lineage)]
            quotas = (quota_of(charge_path, tree) for tree in QUOTA_TREES)
            ranked += [(quota, quota, _QUOTA) for quota in quotas if quota is not None]
            for account, _, _ in ranked:
                if account not in self._own:
                    self._own[account] = own_of(self._session, account)
            ranked_accounts = self._degrees[charge_path] = [entry for entry in ranked if self._own[entry[0]]]
        return ranked_accounts
