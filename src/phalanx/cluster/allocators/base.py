"""Interface of node allocators: bookkeeping of things beside amounts that pods reserve one by one, such as ports,
volumes, devices."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from phalanx.cluster.change_log import ChangeLog
from phalanx.cluster.nodes.labels import Rows
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.model.gang import Gang
from phalanx.model.pod import Pod, PodClass
from phalanx.model.preparations import Preparation

# More copies than any request; sums over all nodes stay within int64.
UNLIMITED_COPIES = 2**31


class Alternatives(msgspec.Struct, frozen=True):
    """Different allocations of a pod on a row; each can be booked instead of `take`. Without a choice there is one
    or none. Allocations between which no pod can distinguish are listed once. `complete` tells that all are listed.
    """

    allocations: Sequence[object] = ()
    complete: bool = True


NO_ALTERNATIVES = Alternatives()


class NodeAllocator(Protocol):
    """Bookkeeping of one kind of things on nodes; implementations inherit the methods that do not apply to them.

    A placed pod reserves from the allocators that concern its class; the result is stored in `PodRecord.allocated`,
    by the allocator's name, until the pod is gone. Every reservation or release records the affected rows in
    `changes`, and so does every change that makes copies possible on other rows.
    """

    name: str
    changes: ChangeLog

    def concerns(self, pod_class: PodClass) -> bool:
        """Return whether pods of the class need things of this kind; constant for a class."""
        ...

    def shared(self, pod_class: PodClass) -> bool:
        """Return whether a placed pod on one row can change the number of further pods on other rows (then pods are
        placed one by one)."""
        return False

    def copies(self, pod_class: PodClass, rows: Rows) -> IntArray:
        """Return int64[rows]: the number of further pods of the class that each row admits; UNLIMITED_COPIES means
        no limit."""
        ...

    def undercounts(self, pod_class: PodClass) -> bool:
        """Return whether `copies` can be less than the maximum over all `alternatives`; constant for a class."""
        return False

    def most_copies(self, pod_class: PodClass, rows: Rows) -> IntArray:
        """Return int64[rows]: an upper bound on the copies per row over all `alternatives`."""
        return self.copies(pod_class, rows)

    def take(self, pod: Pod, row: int) -> object | None:
        """Choose and reserve the things of a pod on a feasible row; None for nothing. Without a choice, the result
        is that of `observed`."""
        return self.observed(pod, row)

    @property
    def chooses(self) -> bool:
        """Whether the allocation is chosen at placement; else the pod itself determines it."""
        return type(self).take is not NodeAllocator.take

    @property
    def depends_on_order(self) -> bool:
        """Whether the allocations of later pods depend on the order of the earlier ones, although `alternatives`
        lists all allocations of each pod."""
        return False

    def alternatives(self, pod: Pod, row: int, limit: int) -> Alternatives:
        """Return the different allocations of a pod on a feasible row, at most `limit`."""
        return NO_ALTERNATIVES

    def observed(self, pod: Pod, row: int) -> object | None:
        """Record the things that a pod on a row holds, as the API shows them; None for nothing."""
        ...

    def book(self, allocated: object, row: int, sign: int) -> None:
        """Record exactly this allocation on a row (sign 1), or release it (sign -1)."""
        ...

    def refuse(self, pod_class: PodClass) -> str | None:
        """Return the reason why pods of the class fit no node, whatever its state; None if they can fit."""
        return None

    def explain(self, pod_class: PodClass, rows: Rows) -> list[tuple[str, BoolArray]]:
        """Return the reasons of kube-scheduler why rows are infeasible for the class, each with bool[rows] that it
        excludes."""
        ...

    def preparations(self, pod: Pod, allocated: object, gang: Gang | None) -> tuple[Preparation, ...]:
        """Return the writes that must precede the binding of the pod, a member of this gang."""
        return ()

    def annotations(self, pod: Pod, allocated: object, row: int, now: float) -> tuple[tuple[str, str], ...]:
        """Return the annotations that the binding adds to the pod; `now` is in seconds since the epoch."""
        return ()

    def lingers(self, uid: str) -> bool:
        """Return whether a removed pod still holds things of this kind, as far as the API shows."""
        return False

    def node_added(self, row: int) -> None:
        """Process a new node on a row, or a change of its labels or resources."""
        self.changes.note(row)

    def node_removed(self, row: int) -> None:
        """Process the removal of a row's node; its pods have released their things before."""
        self.changes.note(row)

    def learn(self, fact: object) -> bool:
        """Process a change of supply or use that the intake reports (`AllocatorFact`). Return whether any pod can
        fit now that did not before."""
        raise TypeError(f"{self.name}: unexpected fact {fact!r}")
