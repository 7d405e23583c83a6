"""Things on nodes that pods take one by one, beside amounts: ports, volumes, devices."""

from __future__ import annotations

from typing import Protocol

from phalanx.cluster.change_log import ChangeLog
from phalanx.cluster.nodes.labels import Rows
from phalanx.cluster.resource_space import BoolArray, IntArray
from phalanx.model.gang import Gang
from phalanx.model.pod import Pod, PodClass
from phalanx.model.preparations import Preparation

# As many copies as anybody may ask for; sums over all nodes stay inside int64.
UNLIMITED_COPIES = 2**31


class NodeAllocator(Protocol):
    """The books of one kind of thing; a class that keeps them inherits what it has nothing to say about.

    A pod that is placed takes from the allocators that concern its class; what it got is kept in
    `PodRecord.allocated`, by the allocator's name, until it leaves. Whatever takes or gives back notes the rows on
    which something is different now in `changes`; and whatever makes copies possible on other rows notes those as
    well.
    """

    name: str
    changes: ChangeLog

    def concerns(self, pod_class: PodClass) -> bool:
        """Whether pods of the class take anything of this kind; for ever the same."""
        ...

    def shared(self, pod_class: PodClass) -> bool:
        """Whether a copy on one row may change what others offer the class (then they are placed one by one)."""
        return False

    def copies(self, pod_class: PodClass, rows: Rows) -> IntArray:
        """int64[rows]: how many more copies each row takes if nothing else changes; UNLIMITED_COPIES: no limit."""
        ...

    def take(self, pod: Pod, row: int) -> object | None:
        """Decides what a pod gets on a row that has it, and books it; None if that is nothing. Where there is no
        choice it is what the API would tell."""
        return self.observed(pod, row)

    @property
    def chooses(self) -> bool:
        """Whether what a pod gets is decided when it is placed; else the pod itself tells it."""
        return type(self).take is not NodeAllocator.take

    def observed(self, pod: Pod, row: int) -> object | None:
        """Books what a pod that occupies a row holds there, as the API tells; None if that is nothing."""
        ...

    def book(self, allocated: object, row: int, sign: int) -> None:
        """Books exactly this (sign 1), or gives it back (sign -1)."""
        ...

    def refuse(self, pod_class: PodClass) -> str | None:
        """Why the class can go nowhere whatever the nodes are like; None if it can."""
        return None

    def explain(self, pod_class: PodClass, rows: Rows) -> list[tuple[str, BoolArray]]:
        """(reason in kube-scheduler's words, bool[rows] kept out for it)."""
        ...

    def preparations(self, pod: Pod, allocated: object, gang: Gang | None) -> tuple[Preparation, ...]:
        """What must be written before the pod, of this gang, may be bound."""
        return ()

    def annotations(self, pod: Pod, allocated: object, row: int, now: float) -> tuple[tuple[str, str], ...]:
        """What the binding tells the pod about what it got; `now` is in seconds since the epoch."""
        return ()

    def lingers(self, uid: str) -> bool:
        """Whether a pod that has left still has something, as far as the API shows."""
        return False

    def node_added(self, row: int) -> None:
        """A row has a node now, or the node's labels or what it offers have changed."""
        self.changes.note(row)

    def node_removed(self, row: int) -> None:
        """The row's node is gone; its pods have given back what they held before."""
        self.changes.note(row)

    def learn(self, fact: object) -> bool:
        """Takes in an `AllocatorFact`; whether room or permission may have grown for anybody."""
        raise TypeError(f"nobody tells {self.name} {fact!r}")
