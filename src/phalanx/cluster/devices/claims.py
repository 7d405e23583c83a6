"""The allocator of devices that pods claim (resource.k8s.io): who has which, and how many more claims each node
serves.

A device belongs to a claim, and the claim to pods. What the API shows as allocated is in use, whoever allocated it
and whether or not its pods are known; what we have decided is in use from that moment on. A claim that was
allocated stays so until the API shows otherwise, also when its last pod is gone: only while others are tried in its
pods' places do its devices count as free.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from phalanx.cluster.allocators.base import UNLIMITED_COPIES, NodeAllocator
from phalanx.cluster.change_log import ChangeLog
from phalanx.cluster.devices.claim_writes import creation, reservation
from phalanx.cluster.devices.entries import Entry, Taken
from phalanx.cluster.devices.extended import ClassStanding, requests_of
from phalanx.cluster.devices.shelves import Inquiry, Near, devices_near
from phalanx.cluster.devices.use import DeviceUse
from phalanx.cluster.dra.outcome import allocations
from phalanx.cluster.dra.question import ClaimQuestion
from phalanx.cluster.dra.selectors import Selectors
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
IN_USE = "resourceclaim in use"

# Kinds of claims whose answers are kept.
_MOST_INQUIRIES = 64


class DeviceClaims(NodeAllocator):
    """Keeps the supply, the use, and a count per row for each kind of claims that pods ask for."""

    name = CLAIMS

    def __init__(self, nodes: NodeRows) -> None:
        self.changes = ChangeLog()
        self._nodes = nodes
        self._supply = Supply()
        self._use = DeviceUse()
        self._classes: dict[str, DeviceClass] = {}
        self._selectors = Selectors()
        self._entries: dict[str, Entry] = {}
        self._inquiries: dict[tuple[ClaimSpec, ...], Inquiry] = {}
        self._near: dict[int, Near] = {}
        # Pod -> the claims that the API shows as allocated and reserved for it.
        self._reserved: dict[str, set[str]] = {}
        # (row, resource) -> what pods that are on their way there will take of an extended resource.
        self._plain: Counter[tuple[int, str]] = Counter()

    def concerns(self, pod_class: PodClass) -> bool:
        return bool(pod_class.claims)

    def shared(self, pod_class: PodClass) -> bool:
        standing = self._standing(pod_class)
        fresh = bool(standing.fresh or standing.extended)
        return standing.joint or standing.limited or (fresh and self._supply.wide)

    def copies(self, pod_class: PodClass, rows: Rows) -> IntArray:
        standing = self._standing(pod_class)
        shape = self._nodes.alive[rows].shape
        if self._complaint(standing):
            return np.zeros(shape, dtype=np.int64)
        found: IntArray = np.full(shape, min(UNLIMITED_COPIES, standing.room), dtype=np.int64)
        if standing.extended:
            np.minimum(found, self._extended_copies(standing, rows), out=found)
        elif standing.fresh:
            np.minimum(found, self._counts(standing.fresh)[rows], out=found)
        if standing.joint:
            np.minimum(found, 1, out=found)
        for terms in standing.nodes:
            found[~self._selected(terms, rows)] = 0
        return found

    def take(self, pod: Pod, row: int) -> object | None:
        pod_class, names = pod.pod_class, pod.claims
        standing = self._standing(pod_class)
        keys = [f"{pod.namespace}/{name}" for name in names]
        given: list[ClaimResult] = []
        fault = self._complaint(standing)
        asked, plain = self._at_row(standing, row)
        if asked and not fault:
            inquiry = self._inquiry(asked)
            laid = inquiry.laid(row)
            found = inquiry.answer(laid.shelf)
            if laid.fault or not found.copies:
                fault = laid.fault or NOT_ALLOCATABLE
            else:
                uids = [
                    self._uid(key)
                    for key, need in zip(keys, pod_class.claims, strict=True)
                    if self._is_fresh(need.claim) and (not need.extended or len(asked) > len(standing.fresh))
                ]
                node = self._nodes.names[row]
                given = list(allocations(inquiry.question, found.copies[0], laid.offers, node, uids))
        fresh = iter(given)
        claims = tuple(
            (key, next(fresh, None) if self._is_fresh(need.claim) else self._decided(key))
            for key, need in zip(keys, pod_class.claims, strict=True)
        )
        allocated = Taken(pod.uid, claims, fault, plain)
        self.book(allocated, row, 1)
        return allocated

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
                entry.away[allocated.uid] = weakref.ref(allocated, partial(self._left, key, allocated.uid))
            owner = entry.fact.owner if entry.fact is not None else ""
            self._recount(key, entry)
            if owner and owner != allocated.uid:
                # Somebody else names the claim that was made for one pod; whoever does so too may follow only here.
                self.changes.note_all(self._nodes.rows().tolist())
        self.changes.note(row)

    def merits(self, pod_class: PodClass, rows: Rows, depth: int) -> FloatArray | None:
        """float[rows, depth]: how early in the class's lists of alternatives (firstAvailable) stands what the j-th
        further pod would get, from 0 to 100; None where the class has no such lists."""
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
            for place, number in enumerate(numbers.tolist()):
                fault = self._fault(standing, number)
                if fault:
                    by_fault.setdefault(fault, []).append(place)
            for fault, places in sorted(by_fault.items()):
                mask = np.zeros(numbers.shape, dtype=np.bool_)
                mask[places] = True
                reasons.append((fault, mask))
        return reasons

    def preparations(self, pod: Pod, allocated: object, gang: Gang | None) -> tuple[Preparation, ...]:
        """A write per claim, unless the API shows all of it already."""
        assert isinstance(allocated, Taken)
        needs = pod.pod_class.claims
        found = (
            creation(pod, need, allocation, allocated.fault)
            if need.extended
            else reservation(self._entries.get(key), pod, gang, key, allocation, allocated.fault)
            for need, (key, allocation) in zip(needs, allocated.claims, strict=True)
        )
        return tuple(preparation for preparation in found if preparation is not None)

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
                return self._rethink(last != fact)
            case DeviceClassGone(name):
                return self._rethink(self._classes.pop(name, None) is not None)
            case DeviceSlice():
                return self._resupplied(self._supply.put(fact))
            case DeviceSliceGone(name):
                return self._resupplied(self._supply.remove(name))
        raise TypeError(f"nobody tells claims {fact!r}")

    # claims

    def _learn_claim(self, key: str, fact: Claim | None) -> bool:
        entry = self._entries.setdefault(key, Entry())
        last, entry.fact = entry.fact, fact
        self._note_consumers(key, last, fact)
        self._recount(key, entry)
        if last is None or last.allocation is None:
            return False  # whoever waited for the claim itself is shown anew
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
        """Whether a pod that has left still has devices, as far as the API shows."""
        return any(uid not in self._entries[key].users for key in self._reserved.get(uid, ()))

    def _recount(self, key: str, entry: Entry) -> None:
        """Counts in or out what changed hands, and tells whoever may go elsewhere now."""
        last, now = entry.counted, entry.holds
        if last != now:
            pools: set[PoolId] = set()
            if last is not None:
                pools |= self._use.book(last, -1)
            if now is not None:
                pools |= self._use.book(now, 1)
            entry.counted = now
            self._note_pools(pools)
            # Pods that name the claim may go where it can be used, and nowhere else.
            self.changes.note_all(self._nodes.rows().tolist() if self._is_joint(entry) else ())
        if entry.idle:
            self._entries.pop(key, None)

    def _left(self, key: str, uid: str, _: object) -> None:
        """Who was away is gone for good: what the API shows as allocated is in use until the API says otherwise."""
        entry = self._entries.get(key)
        if entry is not None and entry.away.pop(uid, None) is not None:
            self._recount(key, entry)

    def _is_fresh(self, claim: str) -> bool:
        return not claim or self._decided(claim, also_known=True) is None

    def _decided(self, key: str, also_known: bool = False) -> ClaimResult | None:
        """What we have decided for a claim that is not allocated in the API yet (or what it has there)."""
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
        extended = tuple(each for need in pod_class.claims for each in need.extended)
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
        """The claims to be allocated on a row, and the amounts that its kubelet offers in place of devices."""
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

    def _left_plain(self, resource: str, row: int) -> int:
        """What is idle of an extended resource that the row's kubelet offers."""
        column = self._nodes.space.find(resource)
        return int(self._nodes.idle[column, row]) - self._plain[row, resource] if column is not None else 0

    def _extended_copies(self, standing: ClassStanding, rows: Rows) -> IntArray:
        found = []
        for row in row_numbers(rows, self._nodes.capacity).tolist():
            asked, plain = self._at_row(standing, row)
            count = int(self._counts(asked)[row]) if asked else UNLIMITED_COPIES
            for resource, amount in plain:
                count = min(count, max(0, self._left_plain(resource, row)) // amount)
            found.append(count)
        return np.array(found, dtype=np.int64).reshape(self._nodes.alive[rows].shape)

    def _fault(self, standing: ClassStanding, row: int) -> str:
        """Why a row takes no copy; "" if it takes one."""
        asked, plain = self._at_row(standing, row)
        for resource, amount in plain:
            if self._left_plain(resource, row) < amount:
                return f"Insufficient {resource}"
        if asked and self._counts(asked)[row] <= 0:
            return self._inquiry(asked).fault(row) or NOT_ALLOCATABLE
        return ""

    # devices

    def _inquiry(self, fresh: tuple[ClaimSpec, ...]) -> Inquiry:
        found = self._inquiries.pop(fresh, None)
        if found is None:
            if len(self._inquiries) >= _MOST_INQUIRIES:
                del self._inquiries[next(iter(self._inquiries))]
            question = ClaimQuestion(fresh, self._classes, self._selectors)
            found = Inquiry(question, self._use, self.changes, self._near_row)
        self._inquiries[fresh] = found  # last in the dict: used last
        return found

    def _counts(self, fresh: tuple[ClaimSpec, ...], inquiry: Inquiry | None = None) -> IntArray:
        inquiry = inquiry or self._inquiry(fresh)
        return inquiry.counts(lambda: self._nodes.rows().tolist(), self._nodes.capacity, UNLIMITED_COPIES)

    def _near_row(self, row: int) -> Near:
        found = self._near.get(row)
        if found is None:
            node = self._nodes.names[row]

            def selected(terms: Sequence[NodeSelectorTerm]) -> bool:
                return bool(self._selected(terms, np.array([row], dtype=np.intp))[0])

            pools = self._supply.near(node, selected) if self._nodes.alive[row] else ()
            found = self._near[row] = tuple((pool, devices_near(pool, node, selected)) for pool in pools)
        return found

    def _selected(self, terms: Sequence[NodeSelectorTerm], rows: Rows) -> BoolArray:
        some = np.zeros(self._nodes.alive[rows].shape, dtype=np.bool_)
        for term in terms:
            some |= term_matches(term, self._nodes.labels, self._nodes.name_column, rows)
        return some

    def _rethink(self, changed: bool) -> bool:
        if changed:
            self._inquiries.clear()
            self.changes.note_all(self._nodes.rows().tolist())
        return changed

    def _resupplied(self, nodes: set[str] | None) -> bool:
        """Something else is offered on these nodes (None: anywhere); whether on any."""
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
        """What fails for one device fails everywhere: all rows answer otherwise once that begins or ends."""
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
        """Those that are known, in a stated order."""
        return [row for row in map(self._nodes.row, sorted(nodes)) if row >= 0]

    @staticmethod
    def _is_joint(entry: Entry) -> bool:
        """Whether classes name the claim: it may have several pods, or it decides where its pod can be."""
        return entry.fact is None or not entry.fact.owner or bool(entry.fact.group)
