"""Usage, deserved amounts and demand of queues and quotas at one moment, as quantities for display."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from phalanx.cluster.account_paths import ALL_ELASTIC_QUOTAS
from phalanx.cluster.accounts import AccountRecord
from phalanx.cluster.pods.records import GangRecord
from phalanx.model.account import Account, AccountKey, Tree
from phalanx.model.resources import CPU, PODS
from phalanx.model.text.duration import format_duration, format_moment
from phalanx.model.text.quantity import canonical_quantity
from phalanx.reports.account_entries import (
    NO_COUNTS,
    AccountEntry,
    Amounts,
    BudgetUse,
    Counts,
    LimitEntry,
    QueueEntry,
    QuotaEntry,
    SubqueueEntry,
)
from phalanx.reports.borrowing import Borrower, Loan, borrowed_and_lent
from phalanx.scheduling.ordering.entitlements import ToldShares
from phalanx.scheduling.plugins.queues.budgets import window_end
from phalanx.scheduling.quota.dominant_share import dominant_resource, dominant_share
from phalanx.scheduling.quota.usage_history import MILLISECONDS_PER_HOUR
from phalanx.scheduling.session.session import Session
from phalanx.views.gang_state import GangState, gang_state
from phalanx.views.record_facts import gang_facts

QUOTAS = {Tree.ELASTIC_QUOTA: "ElasticQuota", Tree.KOORDINATOR: "Koordinator", Tree.ACK: "ElasticQuotaTree"}
_RUNTIME = "runtime quota"
_NOTHING: Mapping[str, int] = {}
# States of gangs with a bound or terminating minimum.
_ON_NODES = frozenset({GangState.STARTING, GangState.RUNNING, GangState.EVICTING, GangState.COMPLETING})


class AccountReport:
    """Report of queues and quotas over a session before any placement. Entries keep the amounts of that moment."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._accounts = session.ledger.accounts
        self._records = sorted(self._accounts.values(), key=_key)
        self.totals = {name: offered for name, (offered, _) in session.totals().items() if offered}
        used = {name: amount for name, (_, amount) in session.totals().items()}
        self._idle = {name: max(0, offered - used[name]) for name, offered in self.totals.items()}
        self._busiest = dominant_resource(used.items(), self.totals) or CPU
        self._shares = ToldShares(session, session.plugin_runtime)
        self._gangs = self._count_gangs()
        self._refused = self._refused_demand()
        self._rights: dict[AccountKey, Mapping[str, int]] = {}

    # accounts

    def queues(self) -> list[AccountRecord]:
        """Return all queues of the session, parents first, then children by name."""
        return list(self._walk([record for record in self._records if record.key.tree is Tree.QUEUE]))

    def quotas(self) -> list[AccountRecord]:
        return list(self._walk([record for record in self._records if record.key.tree in QUOTAS]))

    def tenants(self) -> list[AccountRecord]:
        return [record for record in self._records if record.key.tree in (Tree.NAMESPACE, Tree.USER)]

    def _walk(self, records: list[AccountRecord]) -> Iterator[AccountRecord]:
        stack = [root for root in reversed(records) if root.parent is None]
        while stack:
            record = stack.pop()
            yield record
            stack.extend(sorted(record.children.values(), key=_key, reverse=True))

    # entries

    def queue(self, record: AccountRecord) -> QueueEntry:
        spec = record.spec or Account(record.key)
        entitled = self._shares.of("nominal_quota", record)
        entry = QueueEntry(
            name=record.key.name,
            used={},
            state=spec.state.value,
            weight=record.weight,
            priority=spec.priority,
            reclaimable=spec.reclaimable,
            guarantee=amounts(dict(spec.guarantee)),
            deserved=amounts(self._shares.of("deserved", record)),
            entitled=amounts(entitled),
            capability=amounts(dict(spec.capability), zeros=True),
            past=self._past(record),
        )
        self._fill(entry, record, entitled or dict(spec.guarantee))
        return entry

    def quota(self, record: AccountRecord) -> QuotaEntry:
        spec = record.spec or Account(record.key)
        key = record.key
        minimum = dict(spec.deserved or spec.guarantee)
        if key == ALL_ELASTIC_QUOTAS:
            minimum = _sum(
                dict(ceiling.spec.deserved or ()) for ceiling in record.children.values() if ceiling.spec
            )
        entry = QuotaEntry(
            name=quota_name(record),
            used={},
            family=QUOTAS[key.tree],
            tree=key.forest,
            min=amounts(minimum, zeros=True),
            max=amounts(dict(spec.capability), zeros=True),
            lends=spec.lends,
            namespaces=list(spec.namespaces),
        )
        self._fill(entry, record, minimum)
        entry.runtime = next((ceiling.limits for ceiling in entry.ceilings if ceiling.word == _RUNTIME), {})
        return entry

    def tenant(self, record: AccountRecord) -> SubqueueEntry:
        return SubqueueEntry(
            kind=record.key.tree.value,
            name=record.key.name,
            weight=record.weight,
            used=amounts(record.allocated),
            pending=amounts(self._pending(record)),
            share=self._percent(record.allocated),
            past=self._past(record),
        )

    def _budget(self, record: AccountRecord) -> BudgetUse | None:
        budget = record.spec.budget if record.spec is not None else None
        if budget is None:
            return None
        session = self._session
        spent = session.history.spent(record, session.now)
        hours = {name: spent.get(name, 0) // MILLISECONDS_PER_HOUR for name, _ in budget.hours}
        return BudgetUse(
            format_duration(budget.window),
            format_moment(window_end(session.now, budget)),
            amounts(dict(budget.hours), zeros=True),
            amounts(hours, zeros=True),
        )

    def _fill(self, entry: AccountEntry, record: AccountRecord, right: Mapping[str, int]) -> None:
        # Reserved room belongs to the reserving account while the victims terminate.
        pending, used = self._pending(record), record.allocated
        entry.budget = self._budget(record)
        self._rights[record.key] = right
        entry.depth = len(record.lineage()) - 1
        entry.parent = quota_name(record.parent) if record.parent is not None else ""
        entry.used, entry.running, entry.pending = amounts(used), amounts(record.running), amounts(pending)
        # Without usage the largest part of the account's own amounts counts: the usage of other accounts changes
        # neither the resource nor the percentage that an idle account is shown.
        entry.dominant = (
            dominant_resource(used.items(), self.totals)
            or dominant_resource(right.items(), self.totals)
            or self._busiest
        )
        entry.share = self._percent(used)
        entry.own_share = self._percent({entry.dominant: right.get(entry.dominant, 0)})
        entry.gangs = self._gangs.get(record.key, NO_COUNTS)
        entry.pods = Counts(used.get(PODS, 0), pending.get(PODS, 0))
        entry.ceilings = [LimitEntry(word, amounts(limits, zeros=True)) for word, limits in self._limits(record)]
        entry.fault = record.fault.message if record.fault is not None else ""
        spec = record.spec
        if spec is not None:
            entry.min_run_time = format_duration(spec.min_run_time) if spec.min_run_time else ""
            entry.self_protection = spec.self_protection.value if spec.self_protection is not None else ""
            entry.max_protection_time = format_duration(spec.max_protection) if spec.max_protection else ""
            rate = spec.eviction_rate
            entry.eviction_rate = f"{rate.pods}/{format_duration(rate.window)}" if rate is not None else ""
            entry.warnings = [f"{warning.code}: {warning.message}" for warning in spec.warnings]

    # borrowing

    def borrowing(self) -> dict[AccountKey, Loan]:
        """Return the loans of all reported queues and quotas among siblings; partners have the names of their
        entries.

        If a child borrows and no sibling lends, its partners are those of its parent.
        """
        loans: dict[AccountKey, Loan] = {}
        for tree in (Tree.QUEUE, *QUOTAS):
            roots = [sibling for sibling in self._records if sibling.key.tree is tree and sibling.parent is None]
            levels: list[tuple[AccountRecord | None, list[AccountRecord]]] = [(None, roots)]
            while levels:
                parent, siblings = levels.pop()
                named = {quota_name(sibling): sibling for sibling in siblings if sibling.key in self._rights}
                pool = self._pool(_sum(sibling.allocated for sibling in named.values()), parent)
                for name, loan in borrowed_and_lent(
                    [self._party(sibling) for sibling in named.values()], pool
                ).items():
                    loans[named[name].key] = loan
                levels += [
                    (sibling, sorted(sibling.children.values(), key=_key))
                    for sibling in siblings
                    if sibling.children
                ]
        for record in self._records:
            own = loans.get(record.key)
            if own is not None and own.borrowed and not own.partners:
                above = (loans[sibling.key] for sibling in record.lineage()[1:] if sibling.key in loans)
                other = next((loan for loan in above if loan.borrowed and loan.partners), own)
                own.partners, own.further = other.partners, other.further
        return loans

    def _party(self, record: AccountRecord) -> Borrower:
        right, spec = self._rights[record.key], record.spec
        kept: Mapping[str, int] = {}
        if spec is not None:
            kept = dict(spec.guarantee) if spec.lends else right
        return Borrower(quota_name(record), right, record.allocated, kept)

    def _pool(self, used: Mapping[str, int], parent: AccountRecord | None) -> Mapping[str, int]:
        """Return the resources that sibling queues share: their usage, and the idle part of the cluster up to the
        parents' limits."""
        pool = _sum((used, self._idle))
        for _, limits in self._limits(parent) if parent is not None else ():
            pool.update({name: min(amount, pool[name]) for name, amount in limits.items() if name in pool})
        return pool

    # amounts

    def _limits(self, record: AccountRecord) -> list[tuple[str, Mapping[str, int]]]:
        plugins = self._session.plugin_runtime.plugins("limit")
        limits = [plugin.limit(self._session, record) for plugin in plugins]
        return [(limit.word, limit.limits) for limit in limits if limit is not None and limit.limits]

    def _percent(self, held: Mapping[str, int]) -> float:
        return round(100 * float(dominant_share(held.items(), self.totals)), 2)

    def _past(self, record: AccountRecord) -> float | None:
        """Return the decayed average share of a queue in percent; None if the policy keeps no history."""
        session = self._session
        if session.usage_decay.half_life is None:
            return None
        average = session.history.decayed(record, session.now)
        parts = (amount / self.totals[name] for name, amount in average.items() if name in self.totals)
        return round(100 * max(parts, default=0.0), 2)

    def _pending(self, record: AccountRecord) -> dict[str, int]:
        return _sum((record.unallocated, self._refused.get(record.key, _NOTHING)))

    def _refused_demand(self) -> dict[AccountKey, dict[str, int]]:
        """Return the requests of pods that no queue or quota accepts (their queue is closed, for example).

        No account counts them.
        """
        demand: dict[AccountKey, dict[str, int]] = {}
        for charge_path in self._session.ledger.charge_paths:
            if charge_path.fault is not None and (charge_path.pending or charge_path.unplaceable):
                refused = (charge_path.pending, charge_path.unplaceable)
                for account in charge_path.path:
                    demand[account.key] = _sum((demand.get(account.key, _NOTHING), *refused))
        return demand

    def _count_gangs(self) -> dict[AccountKey, Counts]:
        counts_by_account: dict[AccountKey, Counts] = {}
        for gang in self._session.state.gangs.values():
            if gang.spec is None:
                continue
            state = gang_state(gang_facts(gang))
            running, pending = state in _ON_NODES, state.waits
            if not (running or pending):
                continue
            for account in self._paying(gang):
                counts = counts_by_account.get(account.key, NO_COUNTS)
                counts_by_account[account.key] = Counts(counts.running + running, counts.pending + pending)
        return counts_by_account

    def _paying(self, gang: GangRecord) -> Iterable[AccountRecord]:
        """Yield each queue or quota that is charged for a member of the gang, once."""
        charge_paths = dict.fromkeys(
            member.charge_path for member in gang.members.values() if member.charge_path is not None
        )
        if not charge_paths:
            charge_paths[self._session.charge_path(gang)] = None
        return {account.key: account for charge_path in charge_paths for account in charge_path.path}.values()

    def demand_without_queue(self) -> list[str]:
        """Return one message for each missing queue that pods name."""
        pods_by_message: dict[str, int] = {}
        for charge_path in self._session.ledger.charge_paths:
            if charge_path.fault is not None and charge_path.key.queue and charge_path.queue is None:
                waiting = charge_path.pending.get(PODS, 0) + charge_path.unplaceable.get(PODS, 0)
                pods_by_message[charge_path.fault.message] = (
                    pods_by_message.get(charge_path.fault.message, 0) + waiting
                )
        return [
            f"{message}: {count} pod(s) wait for this queue"
            for message, count in sorted(pods_by_message.items())
            if count
        ]


def quota_name(record: AccountRecord) -> str:
    """Return the display name of a quota: namespace and name of an ElasticQuota, else the account's own name."""
    spec, key = record.spec, record.key
    if key == ALL_ELASTIC_QUOTAS:
        return "(all)"
    if key.tree is Tree.ELASTIC_QUOTA and spec is not None and spec.source is not None:
        return f"{spec.source.namespace}/{spec.source.name}"
    return key.name


def amounts(values: Mapping[str, int], *, zeros: bool = False) -> Amounts:
    """Format resource amounts as exact quantities by name. `zeros` keeps zero amounts, which are significant in
    limits."""
    return {name: canonical_quantity(amount, name) for name, amount in sorted(values.items()) if amount or zeros}


def _sum(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for part in parts:
        for name, amount in part.items():
            sums[name] = sums.get(name, 0) + amount
    return sums


def _key(record: AccountRecord) -> AccountKey:
    return record.key
