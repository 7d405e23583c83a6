"""Owners' protection of their pods against eviction: one place decides how far it counts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec
import numpy as np

from phalanx.cluster.accounts import AccountRecord, ChargePath
from phalanx.cluster.classes import Footprint
from phalanx.cluster.pods.records import GangRecord, PodRecord
from phalanx.model.account import SelfProtection, Tree
from phalanx.model.decisions import EvictionReason
from phalanx.model.gang import GangKey
from phalanx.model.pod import ACTIVE, bound_at
from phalanx.model.text.duration import format_duration
from phalanx.scheduling.framework.extension_points import EvictVeto
from phalanx.scheduling.ordering.entitlements import own_of
from phalanx.scheduling.preemption.rules.min_available import dispensable_members, gang_group_of
from phalanx.scheduling.preemption.rules.rule import ReclaimRule
from phalanx.scheduling.session.session import Session, reference_to
from phalanx.scheduling.session.victim_class_arrays import VictimClassArrays

# Order: from the strictest to the laxest.
_STRICTNESS = tuple(SelfProtection)


class ProtectionRule(msgspec.Struct, frozen=True):
    """Reach of the protection of a charge path's pods, and the account that defines it (`word`).

    It lasts at most `limit` seconds from the binding (0: no limit), by the account `limiter`.
    """

    reach: SelfProtection
    word: str
    limit: int = 0
    limiter: str = ""


def protection_rule(charge_path: ChargePath, default: SelfProtection) -> ProtectionRule:
    """Return the protection rule of a charge path.

    In each tree the nearest account to the leaf decides; among trees the strictest one; the shortest of all limits
    holds.
    """
    nearest: dict[Tree, tuple[SelfProtection, str]] = {}
    limits: list[tuple[int, str]] = []
    for account in charge_path.path:
        spec = account.spec
        if spec is not None and spec.self_protection is not None:
            nearest.setdefault(account.key.tree, (spec.self_protection, account.label))
        if spec is not None and spec.max_protection:
            limits.append((spec.max_protection, account.label))
    stated = min(nearest.values(), key=lambda entry: _STRICTNESS.index(entry[0]), default=(default, "the policy"))
    return ProtectionRule(*stated, *min(limits, default=(0, "")))


Amounts = Mapping[str, int]
Needs = tuple[tuple[tuple[AccountRecord, str], int, int], ...]
"""((account, resource), amount, the account's own share of it)."""


class ProtectedPods:
    """Pods with a protection that counts, for one session.

    With the reach `guaranteed`, an account covers pods by its own share, the oldest first, each pod whole and in
    every resource of which any account has a share. Members of a quorum are covered together or not at all, as one
    small pod would otherwise protect a large gang. Against preemptors of the same account all pods are covered
    where no account on the charge path states a share. Pods are read only for rules that depend on the cover.
    """

    def __init__(self, session: Session, columns: VictimClassArrays) -> None:
        self._get_session = reference_to(session)
        self._own: dict[AccountRecord, tuple[Amounts, ...]] = {}
        self._rules: dict[ChargePath, ProtectionRule] = {}
        self._covered: set[str] = set()
        # Reasons why uncovered pods are not covered, by uid.
        self._beyond: dict[str, str] = {}
        self._holding: dict[tuple[AccountRecord, str], int] = {}
        self._needs: dict[tuple[ChargePath, Footprint], Needs | None] = {}
        self._hold: dict[tuple[ChargePath, EvictionReason], bool] = {}
        self._columns = columns
        self._by_charge_path: dict[ChargePath, list[PodRecord]] | None = None

    def prepare(self, charge_path: ChargePath, rule: ReclaimRule) -> None:
        """Read which pods are covered if this rule depends on it; call it before a search removes pods."""
        if self._by_charge_path is None and self._depends_on_cover(charge_path, rule):
            self._by_charge_path = {}
            stated = sorted(self._protected_by_owner(), key=_age)
            for record in stated:
                assert record.charge_path is not None
                self._by_charge_path.setdefault(record.charge_path, []).append(record)
            self._cover(stated)

    @property
    def _session(self) -> Session:
        return self._get_session()

    def veto_that_counts(self, record: PodRecord, veto: EvictVeto, rule: ReclaimRule) -> EvictVeto | None:
        """Return a plugin's veto as far as it counts against this rule."""
        if not veto.own:
            return veto
        if self.why_overruled(record, rule) is not None:
            return None
        assert record.charge_path is not None
        limit = self._rule(record.charge_path).limit
        until = float(bound_at(record.pod) + limit)
        if not limit or (veto.until is not None and veto.until <= until):
            return veto
        return msgspec.structs.replace(veto, until=until)

    def why_overruled(self, record: PodRecord, rule: ReclaimRule) -> str | None:
        """Return the reason why the owner's protection does not count against this rule; None if it does."""
        charge_path = record.charge_path
        assert charge_path is not None
        protection = self._rule(charge_path)
        if protection.reach is SelfProtection.NONE:
            return f"{protection.word} lets no pod protect itself"
        if protection.limit and bound_at(record.pod) + protection.limit <= self._session.now:
            limit = format_duration(protection.limit)
            return f"{protection.limiter} lets its pods protect themselves for {limit} only"
        if not self._depends_on_cover(charge_path, rule):
            return None
        self.prepare(charge_path, rule)
        if record.pod.uid in self._covered:
            return None
        return self._beyond.get(record.pod.uid, "no queue or quota guarantees its resources")

    def holds_for_all_pods(self, charge_path: ChargePath, rule: ReclaimRule) -> bool:
        """Return whether the owners' protection counts for every pod of the charge path, now and later."""
        key = (charge_path, rule.reason)
        if key not in self._hold:
            protection = self._rule(charge_path)
            holds = not protection.limit and protection.reach is not SelfProtection.NONE
            if holds and self._depends_on_cover(charge_path, rule):
                self.prepare(charge_path, rule)
                records = (self._by_charge_path or {}).get(charge_path, ())
                holds = all(self.why_overruled(record, rule) is None for record in records)
            self._hold[key] = holds
        return self._hold[key]

    def overruled_remark(self, record: PodRecord, rule: ReclaimRule) -> str:
        """Return a clause for a pod that is evicted in spite of its protection; "" for other pods."""
        for veto in self._owner_vetoes(record):
            why = self.why_overruled(record, rule)
            if why is not None:
                return f"; that it {veto.why} does not count: {why}"
        return ""

    def verdict(self, record: PodRecord) -> str:
        """Return a clause on how far a pod's protection counts; "" if it counts fully or there is none."""
        against_others = self.overruled_remark(record, ReclaimRule(EvictionReason.RECLAIMED, False))
        if against_others and not self.overruled_remark(record, ReclaimRule(EvictionReason.PREEMPTED, True)):
            return f"{against_others}, when other accounts reclaim"
        return against_others

    def _owner_vetoes(self, record: PodRecord) -> Iterator[EvictVeto]:
        for plugin in self._session.plugin_runtime.plugins("evict_veto"):
            veto = plugin.evict_veto(self._session, record)
            if veto is not None and veto.own:
                yield veto

    def _rule(self, charge_path: ChargePath) -> ProtectionRule:
        found = self._rules.get(charge_path)
        if found is None:
            default = self._session.plugin_runtime.policy.self_protection
            found = self._rules[charge_path] = protection_rule(charge_path, default)
        return found

    def _depends_on_cover(self, charge_path: ChargePath, rule: ReclaimRule) -> bool:
        """Return whether the rule counts the protection of covered pods only."""
        if self._rule(charge_path).reach is not SelfProtection.GUARANTEED:
            return False
        return rule.reason is not EvictionReason.PREEMPTED or any(map(_states_share, charge_path.path))

    # Cover pods by guaranteed shares

    def _protected_by_owner(self) -> Iterator[PodRecord]:
        """Yield the pods that their owners protect. Only victim classes that can have a protection are examined."""
        session, columns = self._session, self._columns
        guards = any(plugin.honours_owners for plugin in session.plugin_runtime.plugins("evict_veto"))
        table = session.state.victim_table()
        chosen = columns.self_protected | (columns.limited if guards else False)
        for row in np.unique(table.rows[chosen[table.kinds]]).tolist():
            for record in session.state.pods.on(row):
                if record.charge_path is None or record.state not in ACTIVE:
                    continue
                pod, gang = record.pod, record.gang
                marked = not pod.preemptable or pod.firm
                marked = marked or (gang is not None and gang.spec is not None and not gang.spec.preemptable)
                if marked or (guards and (pod.cooldown or pod.budgets) and any(self._owner_vetoes(record))):
                    yield record

    def _cover(self, stated: list[PodRecord]) -> None:
        uids = {record.pod.uid for record in stated}
        for core, others in self._blocks(stated, uids):
            if core and not self._charge(core):
                # A protected surplus member of an uncovered quorum would keep the whole gang in place.
                for record in others:
                    self._beyond[record.pod.uid] = self._beyond[core[0].pod.uid]
                continue
            for record in others:
                self._charge([record])

    def _blocks(self, stated: list[PodRecord], uids: set[str]) -> Iterator[tuple[list[PodRecord], list[PodRecord]]]:
        """Yield (members that are covered together or not at all, members that are covered singly), the oldest
        first."""
        composites = self._session.state.gangs.composites
        seen: set[GangKey] = set()
        for record in stated:
            if record.gang is None:
                yield [], [record]
                continue
            if record.gang.key in seen:
                continue
            core, single = list[PodRecord](), list[PodRecord]()
            mates = gang_group_of(record.gang, self._session.state.gangs, composites)
            seen.update(mate.key for mate in mates)
            for mate in mates:
                members = sorted(_active(mate), key=lambda member: (member.pod.uid not in uids, *_age(member)))
                needed = len(members) - max(0, dispensable_members(mate, composites)[0])
                core += members[:needed]
                single += [member for member in members[needed:] if member.pod.uid in uids]
            yield core, sorted(single, key=_age)

    def _charge(self, block: list[PodRecord]) -> bool:
        """Cover the pods if the remaining shares of their accounts suffice. Return whether they do."""
        reason, holding = "", self._holding
        sums: dict[tuple[AccountRecord, str], int] = {}
        for record in block:
            assert record.charge_path is not None
            needs = self._needs_of(record.charge_path, record.footprint)
            if needs is None:
                reason = "no queue or quota guarantees its resources"
            for place, amount, limit in needs or ():
                sums[place] = sums.get(place, 0) + amount
                if not reason and holding.get(place, 0) + sums[place] > limit:
                    reason = f"it exceeds the guarantee of {place[0].label}"
        if reason:
            self._beyond.update((record.pod.uid, reason) for record in block)
            return False
        for place, amount in sums.items():
            holding[place] = holding.get(place, 0) + amount
        self._covered.update(record.pod.uid for record in block)
        return True

    def _needs_of(self, charge_path: ChargePath, footprint: Footprint) -> Needs | None:
        """Return the amounts that a pod takes of its accounts' own shares; None where no account has one."""
        key = (charge_path, footprint)
        if key not in self._needs:
            accounts = [account for account in charge_path.path if self._own_of(account)]
            self._needs[key] = (
                tuple(
                    ((account, name), amount, share[name])
                    for account in accounts
                    for share in [_smallest(self._own_of(account))]
                    for name, amount in footprint.amounts.items()
                    if amount > 0 and name in share
                )
                if accounts
                else None
            )
        return self._needs[key]

    def _own_of(self, account: AccountRecord) -> tuple[Amounts, ...]:
        shares = self._own.get(account)
        if shares is None:
            shares = () if account.spec is not None and account.spec.problem else own_of(self._session, account)
            if (
                not shares
                and _states_share(account)
                and account.spec is not None
                and account.key.tree is Tree.QUEUE
            ):
                spec = account.spec  # no plugin of the policy computes deserved shares
                stated = dict(spec.deserved or ())
                shares = ({name: max(stated.get(name, 0), n) for name, n in spec.guarantee} | stated,)
            self._own[account] = shares
        return shares


def protected_pods_of(session: Session) -> ProtectedPods:
    """Return the one set of protected pods of a session."""
    protected = session.protected_pods
    if not isinstance(protected, ProtectedPods):
        session.state.ledger.refresh_sums()
        session.state.victim_table()  # registers all victim classes
        protected = session.protected_pods = ProtectedPods(session, session.victim_classes())
    return protected


def evict_veto_on(session: Session, record: PodRecord, rule: ReclaimRule) -> EvictVeto | None:
    """Return the first plugin's veto against the pod's eviction by this rule."""
    return next(evict_vetoes_on(session, record, rule), None)


def evict_vetoes_on(session: Session, record: PodRecord, rule: ReclaimRule | None) -> Iterator[EvictVeto]:
    """Yield the vetoes of all plugins; without a rule, every owner's protection counts."""
    for plugin in session.plugin_runtime.plugins("evict_veto"):
        veto = plugin.evict_veto(session, record)
        if veto is not None and rule is not None:
            veto = protected_pods_of(session).veto_that_counts(record, veto, rule)
        if veto is not None:
            yield veto


def _smallest(shares: Iterable[Amounts]) -> Amounts:
    """Return the smallest amount of each resource over all shares."""
    smallest: dict[str, int] = {}
    for share in shares:
        for name, amount in share.items():
            smallest[name] = min(amount, smallest.get(name, amount))
    return smallest


def _states_share(account: AccountRecord) -> bool:
    """Return whether the account states a share of its own."""
    return account.spec is not None and bool(account.spec.guarantee or account.spec.deserved)


def _active(gang: GangRecord) -> Iterable[PodRecord]:
    return (member for member in gang.members.values() if member.state in ACTIVE and member.charge_path is not None)


def _age(record: PodRecord) -> tuple[int, str, str]:
    return bound_at(record.pod), record.pod.namespace, record.pod.name
