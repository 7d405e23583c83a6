"""CompositePodGroups: groups of PodGroups, their trees, and the faults of these."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from phalanx.cluster.pods.records import GangRecord
from phalanx.model.composite import Composite
from phalanx.model.gang import GangKey, Problem

MAX_DEPTH = 4
"""Maximum depth of a tree, with the pod groups at its leaves."""
# Number of changes after which changed gangs are processed even if no tree is read: most clusters have no trees.
_MOST_CHANGES = 10_000

INVALID = "InvalidComposite"
NOT_FOUND = "CompositePodGroupNotFound"


class Composites:
    """Trees of CompositePodGroups by the names of parents; a parent need not exist (yet). Composites and gangs have
    separate names.

    `changed` must be called after a gang may have been added, removed or moved. A key refers to a composite. A tree
    is named by its root: the topmost reachable parent, declared or not, or the first by name of a cycle.
    """

    def __init__(self, gangs: Mapping[GangKey, GangRecord]) -> None:
        self._gangs = gangs
        self.specs: dict[GangKey, Composite] = {}
        self._composites_below: dict[GangKey, set[GangKey]] = {}
        self._gangs_below: dict[GangKey, set[GangKey]] = {}
        self._parent_of: dict[GangKey, GangKey] = {}
        # Gangs by root, until a tree changes.
        self._gangs_of_tree: dict[GangKey, tuple[GangKey, ...]] = {}
        # Incremented with every change of a composite.
        self.version = 0
        self._dirty: dict[GangKey, None] = {}
        self._unread_changes = 0
        self.touched: dict[GangKey, None] = {}

    def put(self, composite: Composite) -> bool:
        """Store a CompositePodGroup. Return whether it differs from the last."""
        last = self.specs.get(composite.key)
        if last == composite:
            return False
        self.version += 1
        self._gangs_of_tree.clear()
        self._detach(last)
        self.specs[composite.key] = composite
        if composite.parent is not None:
            self._composites_below.setdefault(composite.parent, set()).add(composite.key)
        self.touched[composite.key] = None
        return True

    def drop(self, key: GangKey) -> bool:
        last = self.specs.pop(key, None)
        self.version += 1
        self._gangs_of_tree.clear()
        self._detach(last)
        if last is not None:
            self.touched[key] = None
        return last is not None

    def changed(self, gang: GangKey) -> None:
        self._unread_changes += 1
        if self._unread_changes > _MOST_CHANGES:
            self._update_dirty()
        # Added afterwards, as its own change can still be in progress.
        self._dirty[gang] = None

    def moved(self, known: Container[GangKey]) -> list[GangKey]:
        """Return the gangs whose tree has had a changed CompositePodGroup since the last call, except the known
        gangs."""
        touched, self.touched = self.touched, {}
        roots = {self.root_of(key): None for key in touched}
        return [gang.key for root in roots for gang in self.gangs(root) if gang.key not in known]

    # Ancestors

    def above(self, gang: GangRecord) -> list[Composite]:
        """Return the declared CompositePodGroups above a gang, the nearest first."""
        key = gang.spec.composite if gang.spec is not None else None
        return self._upwards(key) if key is not None else []

    def root(self, gang: GangRecord) -> GangKey | None:
        """Return the root of the gang's tree; None for a gang outside CompositePodGroups."""
        key = gang.spec.composite if gang.spec is not None else None
        return self.root_of(key) if key is not None else None

    def root_of(self, key: GangKey) -> GangKey:
        path = [key]
        while (spec := self.specs.get(path[-1])) is not None and spec.parent is not None:
            if spec.parent in path:
                return min(path[path.index(spec.parent) :])
            path.append(spec.parent)
        return path[-1]

    def priority(self, gang: GangRecord) -> int | None:
        """Return the priority of the topmost CompositePodGroup above the gang that states one; it applies to
        everything below."""
        stated = [composite.priority for composite in self.above(gang) if composite.priority is not None]
        return stated[-1] if stated else None

    def preempts(self, gang: GangRecord) -> bool:
        """Return whether all CompositePodGroups above the gang permit it to preempt."""
        return all(composite.preempts for composite in self.above(gang))

    def tied(self, gang: GangRecord) -> list[GangRecord]:
        """Return the gangs that can only be evicted together with this one, itself included, by key; empty if no
        CompositePodGroup above requires it."""
        units = [composite.key for composite in self.above(gang) if composite.unit]
        return self.gangs(units[-1]) if units else []

    def _upwards(self, key: GangKey) -> list[Composite]:
        composites: dict[GangKey, Composite] = {}
        current: GangKey | None = key
        while current is not None and current not in composites and (spec := self.specs.get(current)) is not None:
            composites[current] = spec
            current = spec.parent
        return list(composites.values())

    # Descendants

    def children(self, key: GangKey) -> tuple[list[Composite], list[GangRecord]]:
        """Return the CompositePodGroups and gangs directly below one, the oldest first."""
        self._update_dirty()
        composites = [self.specs[child] for child in self._composites_below.get(key, ())]
        gangs = [self._gangs[child] for child in self._gangs_below.get(key, ())]
        composites.sort(key=lambda composite: (composite.created, composite.key))
        gangs.sort(key=_age)
        return composites, gangs

    def tree(self, root: GangKey) -> list[GangKey]:
        """Return the keys of the CompositePodGroups of a tree, parents first."""
        composites = {root: None}
        queue = [root]
        while queue:
            for child in sorted(self._composites_below.get(queue.pop(0), ())):
                if child not in composites:
                    composites[child] = None
                    queue.append(child)
        return list(composites)

    def gangs(self, root: GangKey) -> list[GangRecord]:
        """Return all gangs below a CompositePodGroup, by key."""
        self._update_dirty()
        keys = {gang for key in self.tree(root) for gang in self._gangs_below.get(key, ())}
        return [self._gangs[key] for key in sorted(keys)]

    def gangs_of_tree(self, gang: GangKey) -> tuple[GangKey, ...]:
        """Return the sorted gangs of a gang's tree; empty for a gang outside CompositePodGroups."""
        record = self._gangs.get(gang)
        root = self.root(record) if record is not None else None
        if root is None:
            return ()
        self._update_dirty()
        gangs = self._gangs_of_tree.get(root)
        if gangs is None:
            gangs = self._gangs_of_tree[root] = tuple([member.key for member in self.gangs(root)])
        return gangs

    # Faults

    def fault(self, root: GangKey) -> Problem | None:
        """Return the problem that blocks all gangs of a CompositePodGroup's tree; None if there is none."""
        return next(self._faults(root), None)

    def _faults(self, root: GangKey) -> Iterator[Problem]:
        name = f"CompositePodGroup {root}"
        if root not in self.specs:
            yield Problem.of(NOT_FOUND, f"waiting for {name}", "create it", waits=True)
            return
        tree = self.tree(root)
        specs = [self.specs[key] for key in tree]
        for spec in specs:
            if spec.problem is not None:
                yield spec.problem
        root_spec = self.specs[root]
        if root_spec.parent is not None:
            cycle = " -> ".join(str(spec.key) for spec in (*self._upwards(root), root_spec))
            yield Problem.of(INVALID, f"{name} is its own ancestor ({cycle})", "remove one of the parents")
        gangs = self.gangs(root)
        for gang in gangs:
            depth = 1 + len(self.above(gang))
            if depth > MAX_DEPTH:
                wrong = f"the tree of {name} is {depth} levels deep at PodGroup {gang.key}"
                yield Problem.of(INVALID, wrong, f"use at most {MAX_DEPTH}")
        workloads = {spec.workload for spec in specs} | {gang.spec.workload for gang in gangs if gang.spec}
        workloads.discard("")
        if len(workloads) > 1:
            named = ", ".join(sorted(workloads))
            wrong = f"the tree of {name} has groups of several Workloads ({named})"
            yield Problem.of(INVALID, wrong, "make one tree from one Workload")

    # Index

    def _detach(self, spec: Composite | None) -> None:
        if spec is not None and spec.parent is not None:
            _discard(self._composites_below, spec.parent, spec.key)

    def _update_dirty(self) -> None:
        dirty, self._dirty, self._unread_changes = self._dirty, {}, 0
        for key in dirty:
            record = self._gangs.get(key)
            spec = record.spec if record is not None else None
            parent, last = spec.composite if spec is not None else None, self._parent_of.get(key)
            if parent == last:
                continue
            self._gangs_of_tree.clear()
            if last is not None:
                _discard(self._gangs_below, last, key)
                del self._parent_of[key]
            if parent is not None:
                self._gangs_below.setdefault(parent, set()).add(key)
                self._parent_of[key] = parent


def _discard(index: dict[GangKey, set[GangKey]], name: GangKey, key: GangKey) -> None:
    index[name].discard(key)
    if not index[name]:
        del index[name]


def _age(gang: GangRecord) -> tuple[int, GangKey]:
    return (gang.spec.created if gang.spec is not None else 0, gang.key)
