"""Allocator of devices by ResourceClaim (resource.k8s.io): their users, and the number of further claims per node.

A device belongs to a claim, and the claim to pods. An allocation that the API shows is in use, whoever decided it
and whether or not its pods are known; our own decision is in use from that moment on. An allocated claim remains
allocated until the API shows otherwise, also after its last pod is gone. Its devices count as free only while other
pods are tentatively placed instead of its pods.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from phalanx.cluster.allocators.base import NO_ALTERNATIVES, UNLIMITED_COPIES, Alternatives, NodeAllocator
from phalanx.cluster.change_log import ChangeLog
from phalanx.cluster.devices.claim_writes import creation, reservation
from phalanx.cluster.devices.entries import Entry, Taken
from phalanx.cluster.devices.extended import ClassStanding, requests_of
from phalanx.cluster.devices.shelves import Inquiry, Laid, Near, devices_near
from phalanx.cluster.devices.use import DeviceUse
from phalanx.cluster.dra.outcome import allocations
from phalanx.cluster.dra.question import ClaimQuestion
from phalanx.cluster.dra.selectors import Selectors
from phalanx.cluster.dra.solver import Picks
from phalanx.cluster.dra.supply import PoolId, Supply
from phalanx.cluster.nodes.labels import Rows, row_numbers, term_matches
from phalanx.cluster.resource_space import BoolArray, FloatArray, IntArray
from phalanx.model.devices.claims import (
    MOST_CONSUMERS,
    Claim,
    ClaimGone,
    ClaimResult,
    ClaimSpec,
    DeviceClass,
    DeviceClassGone,
    DeviceSlice,
    DeviceSliceGone,
    DeviceTaintRule,
    DeviceTaintRuleGone,
)
from phalanx.model.gang import Gang
from phalanx.model.pod import Pod, PodClass
from phalanx.model.preparations import Preparation
from phalanx.model.selectors import NodeSelectorTerm

if TYPE_CHECKING:
    from phalanx.cluster.nodes.rows import NodeRows

CLAIMS = "claims"
UNAVAILABLE = "resourceclaim not available on the node"
NOT_ALLOCATABLE = "cannot allocate all claims"
#: Follows NOT_ALLOCATABLE, before the names of rules.
TAINTED = " (devices are tainted by DeviceTaintRule "
IN_USE = "resourceclaim in use"

# Limit for the cached kinds of claims.
_MOST_INQUIRIES = 64
_MOST_NAMED = 3


class DeviceClaims(NodeAllocator):
    """Tracks the supply and the use of devices, and a count per row for each kind of ResourceClaims."""

    name = CLAIMS

    def __init__(self, nodes: NodeRows) -> None:
        self.changes = ChangeLog()
        self._nodes = nodes
        self._supply = Supply()
        self._use = DeviceUse()
        self._classes: dict[str, DeviceClass] = {}
        self._taint_rules: dict[str, DeviceTaintRule] = {}
        self._selectors = Selectors()
        self._entries: dict[str, Entry] = {}
        self._inquiries: dict[tuple[ClaimSpec, ...], Inquiry] = {}
        self._near: dict[int, Near] = {}
        # Claims that the API shows as allocated and reserved, by pod.
        self._reserved: dict[str, set[str]] = {}
        # Amounts of extended resources that assumed pods will use, by (row, resource).
        self._plain: Counter[tuple[int, str]] = Counter()

    def concerns(self, pod_class: PodClass) -> bool:
        return bool(pod_class.claims)

    def shared(self, pod_class: PodClass) -> bool:
        standing = self._standing(pod_class)
        fresh = bool(standing.fresh or standing.extended)
        return standing.joint or standing.limited or (fresh and self._supply.wide)

    def undercounts(self, pod_class: PodClass) -> bool:
        return True

    def copies(self, pod_class: PodClass, rows: Rows) -> IntArray:
        return self._copies(pod_class, rows, most=False)

    def most_copies(self, pod_class: PodClass, rows: Rows) -> IntArray:
        return self._copies(pod_class, rows, most=True)

    def _copies(self, pod_class: PodClass, rows: Rows, most: bool) -> IntArray:
        standing = self._standing(pod_class)
        shape = self._nodes.alive[rows].shape
        if self._complaint(standing):
            return np.zeros(shape, dtype=np.int64)
        copies: IntArray = np.full(shape, min(UNLIMITED_COPIES, standing.room), dtype=np.int64)
        if standing.extended:
            np.minimum(copies, self._extended_copies(standing, rows, most), out=copies)
        elif standing.fresh:
            np.minimum(copies, self._counts(standing.fresh, most=most)[rows], out=copies)
        if standing.joint:
            np.minimum(copies, 1, out=copies)
        for terms in standing.nodes:
            copies[~self._selected(terms, rows)] = 0
        return copies

    def take(self, pod: Pod, row: int) -> object | None:
        standing = self._standing(pod.pod_class)
        fault, picks, prepared = self._complaint(standing), None, None
        specs, _ = self._at_row(standing, row)
        if specs and not fault:
            inquiry = self._inquiry(specs)
            prepared = inquiry.laid(row)
            answer = inquiry.answer(prepared.shelf)
            if prepared.fault or not answer.copies:
                fault = prepared.fault or NOT_ALLOCATABLE
            else:
                picks = answer.copies[0]
        allocated = self._allocation(pod, row, standing, prepared, picks, fault)
        self.book(allocated, row, 1)
        return allocated

    def alternatives(self, pod: Pod, row: int, limit: int) -> Alternatives:
        standing = self._standing(pod.pod_class)
        specs, _ = self._at_row(standing, row)
        if not specs or self._complaint(standing):
            return NO_ALTERNATIVES
        inquiry = self._inquiry(specs)
        prepared = inquiry.laid(row)
        if prepared.fault:
            return NO_ALTERNATIVES
        picks, complete = inquiry.alternatives(prepared, tuple(self._inquiries.values()), limit)
        found = [self._allocation(pod, row, standing, prepared, chosen, "") for chosen in picks]
        return Alternatives(found, complete)

    def _allocation(
        self,
        pod: Pod,
        row: int,
        standing: ClassStanding,
        prepared: Laid | None,
        picks: Picks | None,
        fault: str,
    ) -> Taken:
        """Return the allocation of a pod on a row with these devices for its claims that are not allocated yet."""
        needs = pod.pod_class.claims
        keys = [f"{pod.namespace}/{name}" for name in pod.claims]
        specs, plain = self._at_row(standing, row)
        new_allocations: tuple[ClaimResult, ...] = ()
        if prepared is not None and picks is not None:
            uids = [
                self._uid(key)
                for key, need in zip(keys, needs, strict=True)
                if self._is_fresh(need.claim) and (not need.extended or len(specs) > len(standing.fresh))
            ]
            question = self._inquiry(specs).question
            new_allocations = allocations(question, picks, prepared.offers, self._nodes.names[row], uids)
        remaining = iter(new_allocations)
        claims = tuple(
            (key, next(remaining, None) if self._is_fresh(need.claim) else self._decided(key))
            for key, need in zip(keys, needs, strict=True)
        )
        return Taken(pod.uid, claims, fault, plain)

    def observed(self, pod: Pod, row: int) -> object | None:
        allocated = Taken(pod.uid, tuple((f"{pod.namespace}/{name}", None) for name in pod.claims))
        self.book(allocated, row, 1)
        return allocated

    def book(self, allocated: object, row: int, sign: int) -> None:
        assert isinstance(allocated, Taken)
        for resource, amount in allocated.plain:
            self._plain[row, resource] += sign * amount
            if not self._plain[row, resource]:
                del self._plain[row, resource]
        for key, allocation in allocated.claims:
            entry = self._entries.setdefault(key, Entry())
            if sign > 0:
                entry.away.pop(allocated.uid, None)
                entry.users[allocated.uid] = allocation
            else:
                entry.users.pop(allocated.uid, None)
                entry.away[allocated.uid] = weakref.ref(allocated, partial(self._forget_user, key, allocated.uid))
            owner = entry.fact.owner if entry.fact is not None else ""
            self._recount(key, entry)
            if owner and owner != allocated.uid:
                # Another pod names a claim that was created for one pod; further such pods can only be placed here.
                self.changes.note_all(self._nodes.rows().tolist())
        self.changes.note(row)

    def merits(self, pod_class: PodClass, rows: Rows, depth: int) -> FloatArray | None:
        """Return float[rows, depth]: a score from 0 to 100 for the position of the j-th further pod's devices in
        the class's lists of alternatives (firstAvailable); None for a class without such lists."""
        standing = self._standing(pod_class)
        listed = any(request.prioritised for spec in standing.fresh for request in spec.requests)
        if not listed or standing.extended or self._complaint(standing):
            return None
        self._counts(standing.fresh)
        inquiry = self._inquiry(standing.fresh)
        numbers = row_numbers(rows, self._nodes.capacity).tolist()
        return np.array([[inquiry.merit(row, copy) for copy in range(depth)] for row in numbers]).reshape(-1, depth)

    def refuse(self, pod_class: PodClass) -> str | None:
        return self._complaint(self._standing(pod_class)) or None

    def explain(self, pod_class: PodClass, rows: Rows) -> list[tuple[str, BoolArray]]:
        standing = self._standing(pod_class)
        numbers = row_numbers(rows, self._nodes.capacity)
        elsewhere = np.zeros(numbers.shape, dtype=np.bool_)
        for terms in standing.nodes:
            elsewhere |= ~self._selected(terms, rows)
        reasons: list[tuple[str, BoolArray]] = [(UNAVAILABLE, elsewhere)]
        if (standing.fresh or standing.extended) and not self._complaint(standing):
            by_fault: dict[str, list[int]] = {}
            for position, number in enumerate(numbers.tolist()):
                fault = self._fault(standing, number)
                if fault:
                    by_fault.setdefault(fault, []).append(position)
            for fault, positions in sorted(by_fault.items()):
                mask = np.zeros(numbers.shape, dtype=np.bool_)
                mask[positions] = True
                reasons.append((fault, mask))
        return reasons

    def preparations(self, pod: Pod, allocated: object, gang: Gang | None) -> tuple[Preparation, ...]:
        """Return one write per ResourceClaim of the pod, except for claims that the API shows completely."""
        assert isinstance(allocated, Taken)
        needs = pod.pod_class.claims
        writes = (
            creation(pod, need, allocation, allocated.fault)
            if need.extended
            else reservation(self._entries.get(key), pod, gang, key, allocation, allocated.fault)
            for need, (key, allocation) in zip(needs, allocated.claims, strict=True)
        )
        return tuple(preparation for preparation in writes if preparation is not None)

    def node_added(self, row: int) -> None:
        self._near.pop(row, None)
        self.changes.note(row)
        self._note_errors()

    def node_removed(self, row: int) -> None:
        self._near.pop(row, None)
        self.changes.note(row)
        self._note_errors()

    def learn(self, fact: object) -> bool:
        match fact:
            case Claim():
                return self._learn_claim(fact.key, fact)
            case ClaimGone(key):
                return self._learn_claim(key, None)
            case DeviceClass():
                last, self._classes[fact.name] = self._classes.get(fact.name), fact
                return self._classes_changed(last != fact)
            case DeviceClassGone(name):
                return self._classes_changed(self._classes.pop(name, None) is not None)
            case DeviceTaintRule():
                rule, self._taint_rules[fact.name] = self._taint_rules.get(fact.name), fact
                return self._classes_changed(rule != fact)
            case DeviceTaintRuleGone(name):
                return self._classes_changed(self._taint_rules.pop(name, None) is not None)
            case DeviceSlice():
                return self._supply_changed(self._supply.put(fact))
            case DeviceSliceGone(name):
                return self._supply_changed(self._supply.remove(name))
        raise TypeError(f"claims: unexpected fact {fact!r}")

    # claims

    def _learn_claim(self, key: str, fact: Claim | None) -> bool:
        entry = self._entries.setdefault(key, Entry())
        last, entry.fact = entry.fact, fact
        self._note_consumers(key, last, fact)
        self._recount(key, entry)
        if last is None or last.allocation is None:
            return False  # pods that waited for the claim itself are enriched again
        return fact is None or fact.allocation is None or len(fact.consumers) < len(last.consumers)

    def _note_consumers(self, key: str, last: Claim | None, fact: Claim | None) -> None:
        for uid in last.consumers if last is not None and last.allocation is not None else ():
            claims = self._reserved.get(uid, set())
            claims.discard(key)
            if not claims:
                self._reserved.pop(uid, None)
        for uid in fact.consumers if fact is not None and fact.allocation is not None else ():
            self._reserved.setdefault(uid, set()).add(key)

    def lingers(self, uid: str) -> bool:
        """Return whether a removed pod still has devices, as far as the API shows."""
        return any(uid not in self._entries[key].users for key in self._reserved.get(uid, ()))

    def _recount(self, key: str, entry: Entry) -> None:
        """Record a changed allocation in use, and the rows that pods of the ResourceClaim can use now."""
        last, now = entry.counted, entry.holds
        if last != now:
            pools: set[PoolId] = set()
            if last is not None:
                pools |= self._use.book(last, -1)
            if now is not None:
                pools |= self._use.book(now, 1)
            entry.counted = now
            self._note_pools(pools)
            # Pods that name the claim can only run where it is usable.
            self.changes.note_all(self._nodes.rows().tolist() if self._is_joint(entry) else ())
        if entry.idle:
            self._entries.pop(key, None)

    def _forget_user(self, key: str, uid: str, _: object) -> None:
        """Forget a user of a ResourceClaim for good that was removed temporarily: an allocation of the API stays in
        use until the API changes."""
        entry = self._entries.get(key)
        if entry is not None and entry.away.pop(uid, None) is not None:
            self._recount(key, entry)

    def _is_fresh(self, claim: str) -> bool:
        return not claim or self._decided(claim, also_known=True) is None

    def _decided(self, key: str, also_known: bool = False) -> ClaimResult | None:
        """Return the allocation that the scheduler chose for a ResourceClaim that has none in the API yet (with
        `also_known`, also the API's)."""
        entry = self._entries.get(key)
        if entry is None or (not also_known and entry.fact is not None and entry.fact.allocation is not None):
            return None
        return entry.allocation

    def _uid(self, key: str) -> str:
        entry = self._entries.get(key)
        return entry.fact.uid if entry is not None and entry.fact is not None else key

    def _standing(self, pod_class: PodClass) -> ClassStanding:
        fresh: list[ClaimSpec] = []
        nodes: list[tuple[NodeSelectorTerm, ...]] = []
        waits = [need.waits for need in pod_class.claims if need.waits]
        extended = tuple(extended_need for need in pod_class.claims for extended_need in need.extended)
        room, joint, limited = UNLIMITED_COPIES, False, False
        for need in pod_class.claims:
            if need.extended:
                continue
            entry = self._entries.get(need.claim) if need.claim else None
            if entry is None or entry.allocation is None:
                fresh.append(need.spec)
                joint = joint or bool(need.claim)
            elif entry.allocation.nodes is not None:
                nodes.append(entry.allocation.nodes)
            if entry is not None and not need.reserved:
                limited = True
                known = entry.fact.consumers if entry.fact is not None else ()
                room = min(room, MOST_CONSUMERS - len(entry.users.keys() | set(known)))
        why, requests = "; ".join(dict.fromkeys(waits)), requests_of(extended)
        everything = (*fresh, ClaimSpec(requests)) if requests else tuple(fresh)
        return ClassStanding(tuple(fresh), extended, tuple(nodes), max(0, room), joint, limited, why, everything)

    def _complaint(self, standing: ClassStanding) -> str:
        if standing.waits:
            return standing.waits
        if not standing.room:
            return IN_USE
        if not standing.everything:
            return ""
        inquiry = self._inquiry(standing.everything)
        if not inquiry.question.fault:
            self._counts(standing.everything)
        return inquiry.question.fault or inquiry.error

    def _at_row(
        self, standing: ClassStanding, row: int
    ) -> tuple[tuple[ClaimSpec, ...], tuple[tuple[str, int], ...]]:
        """Return the ResourceClaims of a class to allocate on a row, and the extended resources that the row's
        kubelet offers as amounts."""
        plain = tuple(
            (need.resource, need.amount) for need in standing.extended if self._offered(need.resource, row) > 0
        )
        if not plain:
            return standing.everything, ()
        names = {resource for resource, _ in plain}
        requests = requests_of(need for need in standing.extended if need.resource not in names)
        return (*standing.fresh, ClaimSpec(requests)) if requests else standing.fresh, plain

    def _offered(self, resource: str, row: int) -> int:
        column = self._nodes.space.find(resource)
        return int(self._nodes.allocatable[column, row]) if column is not None else 0

    def _idle_plain(self, resource: str, row: int) -> int:
        """Return the idle amount of an extended resource that the row's kubelet offers."""
        column = self._nodes.space.find(resource)
        return int(self._nodes.idle[column, row]) - self._plain[row, resource] if column is not None else 0

    def _extended_copies(self, standing: ClassStanding, rows: Rows, most: bool) -> IntArray:
        counts = []
        for row in row_numbers(rows, self._nodes.capacity).tolist():
            specs, plain = self._at_row(standing, row)
            count = int(self._counts(specs, most=most)[row]) if specs else UNLIMITED_COPIES
            for resource, amount in plain:
                count = min(count, max(0, self._idle_plain(resource, row)) // amount)
            counts.append(count)
        return np.array(counts, dtype=np.int64).reshape(self._nodes.alive[rows].shape)

    def _fault(self, standing: ClassStanding, row: int) -> str:
        """Return the reason why a row admits no pod of the class; "" if it admits one."""
        specs, plain = self._at_row(standing, row)
        for resource, amount in plain:
            if self._idle_plain(resource, row) < amount:
                return f"Insufficient {resource}"
        if specs and self._counts(specs)[row] <= 0:
            inquiry = self._inquiry(specs)
            return inquiry.fault(row) or NOT_ALLOCATABLE + _named(inquiry.taint_rules(row))
        return ""

    # devices

    def _inquiry(self, fresh: tuple[ClaimSpec, ...]) -> Inquiry:
        inquiry = self._inquiries.pop(fresh, None)
        if inquiry is None:
            if len(self._inquiries) >= _MOST_INQUIRIES:
                del self._inquiries[next(iter(self._inquiries))]
            question = ClaimQuestion(fresh, self._classes, self._selectors, tuple(self._taint_rules.values()))
            inquiry = Inquiry(question, self._use, self.changes, self._near_row)
        self._inquiries[fresh] = inquiry  # last in the dict: used last
        return inquiry

    def _counts(self, fresh: tuple[ClaimSpec, ...], inquiry: Inquiry | None = None, most: bool = False) -> IntArray:
        inquiry = inquiry or self._inquiry(fresh)
        counts = inquiry.counts(lambda: self._nodes.rows().tolist(), self._nodes.capacity, UNLIMITED_COPIES)
        return inquiry.most if most else counts

    def _near_row(self, row: int) -> Near:
        near = self._near.get(row)
        if near is None:
            node = self._nodes.names[row]

            def selected(terms: Sequence[NodeSelectorTerm]) -> bool:
                return bool(self._selected(terms, np.array([row], dtype=np.intp))[0])

            pools = self._supply.near(node, selected) if self._nodes.alive[row] else ()
            near = self._near[row] = tuple((pool, devices_near(pool, node, selected)) for pool in pools)
        return near

    def _selected(self, terms: Sequence[NodeSelectorTerm], rows: Rows) -> BoolArray:
        mask = np.zeros(self._nodes.alive[rows].shape, dtype=np.bool_)
        for term in terms:
            mask |= term_matches(term, self._nodes.labels, self._nodes.name_column, rows)
        return mask

    def _classes_changed(self, changed: bool) -> bool:
        """Process a change of classes or taint rules: each question is asked again."""
        if changed:
            self._inquiries.clear()
            self.changes.note_all(self._nodes.rows().tolist())
        return changed

    def _supply_changed(self, nodes: set[str] | None) -> bool:
        """Process changed ResourceSlices of the nodes (None: any node). Return whether any node is affected."""
        if nodes is None:
            rows = self._nodes.rows().tolist()
        else:
            rows = self._rows_of(nodes)
        for row in rows:
            self._near.pop(row, None)
        self.changes.note_all(rows)
        self._note_errors()
        return nodes is None or bool(nodes)

    def _note_errors(self) -> None:
        """Record all rows as changed when an error begins or ends, since an error for one device fails the
        ResourceClaim everywhere."""
        for fresh, inquiry in list(self._inquiries.items()):
            last = inquiry.error
            if not inquiry.question.fault:
                self._counts(fresh, inquiry)
            if bool(last) != bool(inquiry.error):
                self.changes.note_all(self._nodes.rows().tolist())

    def _note_pools(self, pools: Iterable[PoolId]) -> None:
        names: set[str] = set()
        for pool in pools:
            where = self._supply.where(pool)
            if where is None:
                self.changes.note_all(self._nodes.rows().tolist())
                return
            names |= where
        self.changes.note_all(self._rows_of(names))

    def _rows_of(self, nodes: Iterable[str]) -> list[int]:
        """Return the rows of the named nodes that are known, in a deterministic order."""
        return [row for row in map(self._nodes.row, sorted(nodes)) if row >= 0]

    @staticmethod
    def _is_joint(entry: Entry) -> bool:
        """Return whether pod classes name the ResourceClaim: it can have several pods, or restricts the nodes of
        its pod."""
        return entry.fact is None or not entry.fact.owner or bool(entry.fact.group)


def _named(rules: Sequence[str]) -> str:
    """Return the names of DeviceTaintRules for the reason of a node; "" without any."""
    if not rules:
        return ""
    more = f" and {len(rules) - _MOST_NAMED} more" if len(rules) > _MOST_NAMED else ""
    return f"{TAINTED}{', '.join(rules[:_MOST_NAMED])}{more})"
