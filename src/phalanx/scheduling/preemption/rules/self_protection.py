"""How much of what owners say against the eviction of their pods counts: that is one decision, made here."""

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
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.session.victim_class_arrays import VictimClassArrays

# From the strictest to the laxest.
_STRICTNESS = tuple(SelfProtection)


class ProtectionRule(msgspec.Struct, frozen=True):
    """How far a charge path's pods may protect themselves, by whose `word`; for at most `limit` seconds from their
    binding on (0: without limit), by whose (`limiter`)."""

    reach: SelfProtection
    word: str
    limit: int = 0
    limiter: str = ""


def protection_rule(charge_path: ChargePath, default: SelfProtection) -> ProtectionRule:
    """In every tree the account nearest to the leaf decides that says anything, among trees the strictest word; of
    all limits the shortest holds."""
    nearest: dict[Tree, tuple[SelfProtection, str]] = {}
    limits: list[tuple[int, str]] = []
    for account in charge_path.path:
        spec = account.spec
        if spec is not None and spec.self_protection is not None:
            nearest.setdefault(account.key.tree, (spec.self_protection, account.label))
        if spec is not None and spec.max_protection:
            limits.append((spec.max_protection, account.label))
    stated = min(nearest.values(), key=lambda each: _STRICTNESS.index(each[0]), default=(default, "the policy"))
    return ProtectionRule(*stated, *min(limits, default=(0, "")))


Amounts = Mapping[str, int]
Needs = tuple[tuple[tuple[AccountRecord, str], int, int], ...]
"""((account, resource), amount, what the account has of its own of that)."""


class ProtectedPods:
    """Answers for one session; to be made before anything is tried.

    Where an account says `guaranteed`, pods are covered by what their queues and quotas have of their own, the
    oldest first, every pod whole and in every resource that anybody has a share of. Members that their gang cannot
    do without are covered together or not at all, with what they keep in its place: otherwise one small pod would
    protect a large gang. Against others of the same account everybody is covered where no account on his path
    states anything of its own.
    """

    def __init__(self, session: Session, columns: VictimClassArrays) -> None:
        self._session = session
        self._own: dict[AccountRecord, tuple[Amounts, ...]] = {}
        self._rules: dict[ChargePath, ProtectionRule] = {}
        self._covered: set[str] = set()
        # Why those are not covered that are not.
        self._beyond: dict[str, str] = {}
        self._holding: dict[tuple[AccountRecord, str], int] = {}
        self._needs: dict[tuple[ChargePath, Footprint], Needs | None] = {}
        self._hold: dict[tuple[ChargePath, EvictionReason], bool] = {}
        stated = sorted(self._stated(columns), key=_age)
        self._by_charge_path: dict[ChargePath, list[PodRecord]] = {}
        for record in stated:
            assert record.charge_path is not None
            self._by_charge_path.setdefault(record.charge_path, []).append(record)
        self._cover(stated)

    def veto_that_counts(self, record: PodRecord, veto: EvictVeto, rule: ReclaimRule) -> EvictVeto | None:
        """What a plugin says against an eviction, as far as it counts by this rule."""
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
        """Why what the pod's owner says does not count by this rule; None if it does."""
        charge_path = record.charge_path
        assert charge_path is not None
        protection = self._rule(charge_path)
        if protection.reach is SelfProtection.NONE:
            return f"{protection.word} lets no pod protect itself"
        if protection.limit and bound_at(record.pod) + protection.limit <= self._session.now:
            limit = format_duration(protection.limit)
            return f"{protection.limiter} lets its pods protect themselves for {limit} only"
        if protection.reach is SelfProtection.ALL or record.pod.uid in self._covered:
            return None
        if rule.reason is EvictionReason.PREEMPTED and not any(map(_states, charge_path.path)):
            return None
        return self._beyond.get(record.pod.uid, "no queue or quota guarantees it anything")

    def holds_for_all_pods(self, charge_path: ChargePath, rule: ReclaimRule) -> bool:
        """Whether the owners' word counts for every pod of the charge path, now and later."""
        key = (charge_path, rule.reason)
        if key not in self._hold:
            records = self._by_charge_path.get(charge_path, ())
            self._hold[key] = not self._rule(charge_path).limit and all(
                self.why_overruled(record, rule) is None for record in records
            )
        return self._hold[key]

    def overruled_remark(self, record: PodRecord, rule: ReclaimRule) -> str:
        """What whoever is evicted in spite of his word is told, a clause; "" where that is not so."""
        for veto in self._words(record):
            why = self.why_overruled(record, rule)
            if why is not None:
                return f"; that it {veto.why} does not count: {why}"
        return ""

    def verdict(self, record: PodRecord) -> str:
        """What whoever asks about a pod is told of how far its owner's word counts, a clause; "" if it does, or if
        there is none."""
        against_others = self.overruled_remark(record, ReclaimRule(EvictionReason.RECLAIMED, False))
        if against_others and not self.overruled_remark(record, ReclaimRule(EvictionReason.PREEMPTED, True)):
            return f"{against_others}, where others take back what is theirs"
        return against_others

    def _words(self, record: PodRecord) -> Iterator[EvictVeto]:
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

    # what is covered

    def _stated(self, columns: VictimClassArrays) -> Iterator[PodRecord]:
        """The pods for which their owners say something; only kinds of which any may do so are looked at."""
        session = self._session
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
                if marked or (guards and (pod.cooldown or pod.budgets) and any(self._words(record))):
                    yield record

    def _cover(self, stated: list[PodRecord]) -> None:
        uids = {record.pod.uid for record in stated}
        for core, others in self._blocks(stated, uids):
            if core and not self._charge(core):
                # A member above the minimum that nobody may take would keep the others in their places as well.
                for record in others:
                    self._beyond[record.pod.uid] = self._beyond[core[0].pod.uid]
                continue
            for record in others:
                self._charge([record])

    def _blocks(self, stated: list[PodRecord], uids: set[str]) -> Iterator[tuple[list[PodRecord], list[PodRecord]]]:
        """(members that go together or not at all, those that go singly), the oldest first."""
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
                members = sorted(_active(mate), key=lambda each: (each.pod.uid not in uids, *_age(each)))
                needed = len(members) - max(0, dispensable_members(mate, composites)[0])
                core += members[:needed]
                single += [member for member in members[needed:] if member.pod.uid in uids]
            yield core, sorted(single, key=_age)

    def _charge(self, block: list[PodRecord]) -> bool:
        """Covers the pods, if what they hold is left of their accounts' own."""
        why, holding = "", self._holding
        sums: dict[tuple[AccountRecord, str], int] = {}
        for record in block:
            assert record.charge_path is not None
            needs = self._needs_of(record.charge_path, record.footprint)
            if needs is None:
                why = "no queue or quota guarantees it anything"
            for place, amount, limit in needs or ():
                sums[place] = sums.get(place, 0) + amount
                if not why and holding.get(place, 0) + sums[place] > limit:
                    why = f"it is beyond what {place[0].label} is guaranteed"
        if why:
            self._beyond.update((record.pod.uid, why) for record in block)
            return False
        for place, amount in sums.items():
            holding[place] = holding.get(place, 0) + amount
        self._covered.update(record.pod.uid for record in block)
        return True

    def _needs_of(self, charge_path: ChargePath, footprint: Footprint) -> Needs | None:
        """What a pod takes of what its accounts have of their own; None where they have nothing of their own."""
        key = (charge_path, footprint)
        if key not in self._needs:
            accounts = [account for account in charge_path.path if self._own_of(account)]
            self._needs[key] = (
                tuple(
                    ((account, name), amount, share[name])
                    for account in accounts
                    for share in [_least(self._own_of(account))]
                    for name, amount in footprint.amounts.items()
                    if amount > 0 and name in share
                )
                if accounts
                else None
            )
        return self._needs[key]

    def _own_of(self, account: AccountRecord) -> tuple[Amounts, ...]:
        found = self._own.get(account)
        if found is None:
            found = () if account.spec is not None and account.spec.problem else own_of(self._session, account)
            if not found and _states(account) and account.spec is not None and account.key.tree is Tree.QUEUE:
                spec = account.spec  # no plugin speaks of what queues deserve
                stated = dict(spec.deserved or ())
                found = ({name: max(stated.get(name, 0), n) for name, n in spec.guarantee} | stated,)
            self._own[account] = found
        return found


def protected_pods_of(session: Session) -> ProtectedPods:
    """One for all questions of a session."""
    found = session.protected_pods
    if not isinstance(found, ProtectedPods):
        session.state.ledger.refresh_sums()
        session.state.victim_table()  # all kinds are known
        found = session.protected_pods = ProtectedPods(session, session.victim_classes())
    return found


def evict_veto_on(session: Session, record: PodRecord, rule: ReclaimRule) -> EvictVeto | None:
    """What the first plugin says that objects to the pod's eviction by this rule."""
    return next(evict_vetoes_on(session, record, rule), None)


def evict_vetoes_on(session: Session, record: PodRecord, rule: ReclaimRule | None) -> Iterator[EvictVeto]:
    """What all plugins say; without a rule, whatever owners say counts."""
    for plugin in session.plugin_runtime.plugins("evict_veto"):
        veto = plugin.evict_veto(session, record)
        if veto is not None and rule is not None:
            veto = protected_pods_of(session).veto_that_counts(record, veto, rule)
        if veto is not None:
            yield veto


def _least(shares: Iterable[Amounts]) -> Amounts:
    """Of every resource what the strictest says."""
    least: dict[str, int] = {}
    for share in shares:
        for name, amount in share.items():
            least[name] = min(amount, least.get(name, amount))
    return least


def _states(account: AccountRecord) -> bool:
    """Whether something is said to be the account's own."""
    return account.spec is not None and bool(account.spec.guarantee or account.spec.deserved)


def _active(gang: GangRecord) -> Iterable[PodRecord]:
    return (member for member in gang.members.values() if member.state in ACTIVE and member.charge_path is not None)


def _age(record: PodRecord) -> tuple[int, str, str]:
    return bound_at(record.pod), record.pod.namespace, record.pod.name
