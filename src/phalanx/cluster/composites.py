"""Which groups of groups there are, what is below them, and what is wrong with their trees."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping

from phalanx.cluster.pods.records import GangRecord
from phalanx.model.composite import Composite
from phalanx.model.gang import GangKey, Problem

MAX_DEPTH = 4
"""Levels of a tree, the groups of pods at its leaves included."""

INVALID = "InvalidComposite"
NOT_FOUND = "CompositePodGroupNotFound"


class Composites:
    """Trees by the names of parents; a parent need not exist (yet). Composites and gangs have names of their own.

    `changed` is to be called whenever a gang may have come, gone or moved. A key stands for a composite; a tree is
    named by its root: the topmost key that is reached by going up, declared or not, the first by name of a cycle.
    """

    def __init__(self, gangs: Mapping[GangKey, GangRecord]) -> None:
        self._gangs = gangs
        self.specs: dict[GangKey, Composite] = {}
        self._composites_below: dict[GangKey, set[GangKey]] = {}
        self._gangs_below: dict[GangKey, set[GangKey]] = {}
        self._parent_of: dict[GangKey, GangKey] = {}
        # By root, until a tree changes.
        self._gangs_of_tree: dict[GangKey, tuple[GangKey, ...]] = {}
        # Grows with every change of a composite.
        self.version = 0
        self._dirty: dict[GangKey, None] = {}
        self._touched: dict[GangKey, None] = {}

    def put(self, composite: Composite) -> bool:
        """Whether that is news."""
        last = self.specs.get(composite.key)
        if last == composite:
            return False
        self.version += 1
        self._gangs_of_tree.clear()
        self._unhang(last)
        self.specs[composite.key] = composite
        if composite.parent is not None:
            self._composites_below.setdefault(composite.parent, set()).add(composite.key)
        self._touched[composite.key] = None
        return True

    def drop(self, key: GangKey) -> bool:
        last = self.specs.pop(key, None)
        self.version += 1
        self._gangs_of_tree.clear()
        self._unhang(last)
        if last is not None:
            self._touched[key] = None
        return last is not None

    def changed(self, gang: GangKey) -> None:
        self._dirty[gang] = None

    def moved(self, known: Container[GangKey]) -> list[GangKey]:
        """The gangs of trees of which a composite has changed since the last call, but for those known."""
        touched, self._touched = self._touched, {}
        roots = {self.root_of(key): None for key in touched}
        return [gang.key for root in roots for gang in self.gangs(root) if gang.key not in known]

    # up

    def above(self, gang: GangRecord) -> list[Composite]:
        """The composites that a gang is a part of, the nearest first, as far as they are declared."""
        key = gang.spec.composite if gang.spec is not None else None
        return self._upwards(key) if key is not None else []

    def root(self, gang: GangRecord) -> GangKey | None:
        """The root of the tree that a gang is in; None of a gang on its own."""
        key = gang.spec.composite if gang.spec is not None else None
        return self.root_of(key) if key is not None else None

    def root_of(self, key: GangKey) -> GangKey:
        way = [key]
        while (spec := self.specs.get(way[-1])) is not None and spec.parent is not None:
            if spec.parent in way:
                return min(way[way.index(spec.parent) :])
            way.append(spec.parent)
        return way[-1]

    def priority(self, gang: GangRecord) -> int | None:
        """What the topmost composite that states a priority says for everything below."""
        stated = [each.priority for each in self.above(gang) if each.priority is not None]
        return stated[-1] if stated else None

    def preempts(self, gang: GangRecord) -> bool:
        """Whether the composites above let others go for the gang."""
        return all(each.preempts for each in self.above(gang))

    def tied(self, gang: GangRecord) -> list[GangRecord]:
        """The gangs that may only be disrupted together with this one, itself included, by key; empty where no
        composite above says so."""
        units = [each.key for each in self.above(gang) if each.unit]
        return self.gangs(units[-1]) if units else []

    def _upwards(self, key: GangKey) -> list[Composite]:
        found: dict[GangKey, Composite] = {}
        at: GangKey | None = key
        while at is not None and at not in found and (spec := self.specs.get(at)) is not None:
            found[at] = spec
            at = spec.parent
        return list(found.values())

    # down

    def children(self, key: GangKey) -> tuple[list[Composite], list[GangRecord]]:
        """What names the composite as its parent, the oldest first."""
        self._update_dirty()
        composites = [self.specs[each] for each in self._composites_below.get(key, ())]
        gangs = [self._gangs[each] for each in self._gangs_below.get(key, ())]
        composites.sort(key=lambda each: (each.created, each.key))
        gangs.sort(key=_age)
        return composites, gangs

    def tree(self, root: GangKey) -> list[GangKey]:
        """The keys of the composites of a tree, parents first."""
        found = {root: None}
        ask = [root]
        while ask:
            for below in sorted(self._composites_below.get(ask.pop(0), ())):
                if below not in found:
                    found[below] = None
                    ask.append(below)
        return list(found)

    def gangs(self, root: GangKey) -> list[GangRecord]:
        """All gangs below, by key."""
        self._update_dirty()
        keys = {gang for key in self.tree(root) for gang in self._gangs_below.get(key, ())}
        return [self._gangs[key] for key in sorted(keys)]

    def gangs_of_tree(self, gang: GangKey) -> tuple[GangKey, ...]:
        """All gangs of the tree that a gang is in, sorted; empty for one on its own."""
        record = self._gangs.get(gang)
        root = self.root(record) if record is not None else None
        if root is None:
            return ()
        self._update_dirty()
        found = self._gangs_of_tree.get(root)
        if found is None:
            found = self._gangs_of_tree[root] = tuple([each.key for each in self.gangs(root)])
        return found

    # what is wrong

    def fault(self, root: GangKey) -> Problem | None:
        """What keeps everything in the tree from being placed, in words for whoever waits."""
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
        top = self.specs[root]
        if top.parent is not None:
            cycle = " -> ".join(str(spec.key) for spec in (*self._upwards(root), top))
            yield Problem.of(INVALID, f"{name} is above itself ({cycle})", "take one of the parents away")
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
            wrong = f"what is in the tree of {name} comes from several Workloads ({named})"
            yield Problem.of(INVALID, wrong, "make one tree from one Workload")

    # the index

    def _unhang(self, spec: Composite | None) -> None:
        if spec is not None and spec.parent is not None:
            _discard(self._composites_below, spec.parent, spec.key)

    def _update_dirty(self) -> None:
        dirty, self._dirty = self._dirty, {}
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
