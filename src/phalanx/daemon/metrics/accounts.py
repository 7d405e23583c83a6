"""What queues and quotas have, as series: 10,000 of them in less than a tenth of a second, and not in the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from phalanx.cluster.account_copies import AccountCopies
from phalanx.cluster.accounts import AccountRecord
from phalanx.cluster.state import ClusterState
from phalanx.daemon.metrics.cluster_counts import OTHER
from phalanx.daemon.metrics.deserved import Share
from phalanx.daemon.metrics.exposition import escaped, labels, lines_of
from phalanx.model.account import AccountKey, Tree
from phalanx.scheduling.quota.dominant_share import order_by_share

_TREES = (Tree.QUEUE, Tree.ELASTIC_QUOTA)
_RESOURCE = "phalanx_account_resource"
_SHARE = "phalanx_account_share"
_INFO = "phalanx_account_info"


class AccountSnapshot(msgspec.Struct, frozen=True):
    """`offered` is what all nodes offer, by resource. `deserved` is what the policy gives a queue; None where it
    gives nothing: then it is what the queue says itself."""

    offered: dict[str, int]
    copies: AccountCopies
    deserved: Share | None


class AccountSeries:
    """Of every declared queue and quota, and of those that nobody declares but that are used: of at most so many,
    those that hold and ask for the largest part of the cluster; the rest is summed up (OTHER), of those without
    children, so that nothing counts twice.

    `snapshot` is taken by whoever changes the state, `lines` are written by any thread before the next is taken.
    What is declared changes rarely: its lines are kept as text. `deserved` tells what queues deserve.
    """

    def __init__(
        self,
        state: ClusterState,
        most: int = 500,
        deserved: Callable[[AccountCopies], Share | None] = lambda copies: None,
    ) -> None:
        self._state = state
        self._most = most
        self._deserved = deserved
        self._copies = AccountCopies(state.ledger, _TREES)
        self._declared: dict[AccountKey, _Declared] = {}

    def snapshot(self) -> AccountSnapshot:
        if not self._most:
            return AccountSnapshot({}, self._copies, None)
        self._copies.refresh()
        return AccountSnapshot(self._state.offered(), self._copies, self._deserved(self._copies))

    def lines(self, snapshot: AccountSnapshot) -> Iterator[str]:
        if not self._most:
            return
        told = [
            account
            for account in snapshot.copies.accounts.values()
            if account.spec is not None or account.used or account.unallocated
        ]
        accounts, rest = self._largest(told, snapshot.offered)
        infos, shares = list[str](), list[str]()
        yield from lines_of(_RESOURCE, ())
        for account in accounts:
            deserved = {name: amount for name, amount in _deserved(snapshot, account).items() if amount}
            used = account.allocated
            kinds = (("used", used), ("pending", account.unallocated), ("deserved", deserved))
            yield from _amounts(account.key, kinds)
            shares.append(_share(account.key, used, snapshot.offered))
            declared = self._of_declaration(account)
            infos.append(declared.info)
            if declared.text:
                yield declared.text
        for tree, (used, pending) in _sums(rest).items():
            key = AccountKey(tree, OTHER)
            yield from _amounts(key, (("used", used), ("pending", pending)))
            shares.append(_share(key, used, snapshot.offered))
        yield from lines_of(_SHARE, ())
        yield from shares
        yield from lines_of(_INFO, ())
        yield from infos
        if len(self._declared) > len(accounts):
            there = {account.key for account in accounts}
            self._declared = {key: kept for key, kept in self._declared.items() if key in there}

    def _largest(
        self, accounts: list[AccountRecord], offered: Mapping[str, int]
    ) -> tuple[Sequence[AccountRecord], Sequence[AccountRecord]]:
        """(those with series of their own, the others)."""
        if len(accounts) <= self._most:
            return accounts, ()

        def size(account: AccountRecord) -> tuple[float, AccountKey]:
            wanted = dict(account.used)  # a Counter takes three times as long
            for name, amount in account.pending.items():
                wanted[name] = wanted.get(name, 0) + amount
            return -order_by_share(wanted.items(), offered, unfounded=True), account.key

        # One that is called like the rest belongs to it: no series is there twice.
        ranked = sorted(accounts, key=lambda account: (account.key.name == OTHER, *size(account)))
        return ranked[: self._most], ranked[self._most :]

    def _of_declaration(self, account: AccountRecord) -> _Declared:
        known = self._declared.get(account.key)
        if known is None or known.spec is not account.spec or known.parent != _parent(account):
            known = self._declared[account.key] = _Declared(account)
        return known


def _deserved(snapshot: AccountSnapshot, account: AccountRecord) -> Mapping[str, int]:
    if snapshot.deserved is not None and account.key.tree is Tree.QUEUE:
        return snapshot.deserved(account)
    return dict(account.spec.deserved or ()) if account.spec is not None else {}


def _parent(account: AccountRecord) -> str:
    return account.parent.key.name if account.parent is not None else ""


def _share(key: AccountKey, used: Mapping[str, int], offered: Mapping[str, int]) -> str:
    share = order_by_share(used.items(), offered)
    return f'{_SHARE}{{account="{escaped(key.name)}",family="{key.tree}"}} {share:.6g}'


def _sums(accounts: Iterable[AccountRecord]) -> dict[Tree, tuple[Counter[str], Counter[str]]]:
    """What those without children have and wait for, by family."""
    sums: dict[Tree, tuple[Counter[str], Counter[str]]] = {}
    for account in accounts:
        used, pending = sums.setdefault(account.key.tree, (Counter(), Counter()))
        if not account.children:
            used.update(account.allocated)
            pending.update(account.unallocated)
    return sums


class _Declared:
    """The lines that follow from what an account's object says, and from where it stands."""

    __slots__ = ("info", "parent", "spec", "text")

    def __init__(self, account: AccountRecord) -> None:
        self.spec, self.parent = spec, parent = account.spec, _parent(account)
        self.info = f"{_INFO}{labels(account=account.key.name, family=account.key.tree, parent=parent)} 1"
        stated: dict[str, dict[str, int]] = {}
        if spec is not None:
            stated["guarantee"], stated["capability"] = dict(spec.guarantee), dict(spec.capability)
        self.text = "\n".join(_amounts(account.key, stated.items()))


def _amounts(key: AccountKey, known: Iterable[tuple[str, Mapping[str, int]]]) -> Iterator[str]:
    head = f'{_RESOURCE}{{account="{escaped(key.name)}",family="{key.tree}",kind="'
    for kind, amounts in known:
        for resource, amount in amounts.items():
            yield f'{head}{kind}",resource="{escaped(resource)}"}} {amount}'
