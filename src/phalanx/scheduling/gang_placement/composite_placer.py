"""Placement of a composite: each child as a whole or not at all, until enough children are placed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from phalanx.cluster.pods.records import GangRecord
from phalanx.cluster.transaction import Transaction
from phalanx.scheduling.diagnosis.shortage import Spot
from phalanx.scheduling.gang_placement.composite_tree import CompositeTree
from phalanx.scheduling.gang_placement.composite_verdicts import TooFewGroups, Waits
from phalanx.scheduling.gang_placement.domain_trials import together, try_domains
from phalanx.scheduling.gang_placement.pod_sets import GangPlacement, demand_of
from phalanx.scheduling.gang_placement.quorum_placement import place_gangs
from phalanx.scheduling.gang_placement.search_placement import search_composite
from phalanx.scheduling.placement.topology_domains import Area, area_of
from phalanx.scheduling.refusals.refusal import Refusal
from phalanx.scheduling.session.session import Session


class CompositePlacer:
    """One attempt to place a composite. `placements` are the gangs that can take part, including satisfied ones;
    `lacks` are the refusals of the other gangs. Afterwards `placed` of each placement lists its pods and rows, and
    `lacks` has a refusal for every open gang. A tree with a topology is placed in the smallest domain that fits it.
    """

    def __init__(
        self,
        session: Session,
        placements: Mapping[GangRecord, GangPlacement],
        lacks: Mapping[GangRecord, Refusal],
        transaction: Transaction,
    ) -> None:
        self._session = session
        self._placements = placements
        self._transaction = transaction
        self.lacks: dict[GangRecord, Refusal] = dict(lacks)
        self._failed: dict[CompositeTree, list[CompositeTree | GangRecord]] = {}
        # Whether the children of the tree depend on each other.
        self._joint = False

    def run(self, tree: CompositeTree) -> bool:
        """Place the tree; return whether it reaches its minimum. If not, nothing of it is placed.

        A small tree that the usual order of choices does not place is searched.
        """
        self._joint = any(subtree.least or subtree.topology is not None for subtree in tree.trees())
        if self._place_tree(tree):
            return True
        if not any(lack.of_nodes for lack in self.lacks.values()) or not could_hold(tree, self._placements):
            return False
        result = search_composite(self._session, self._transaction, tree, self._placements)
        if result.placed:
            for gang in [gang for gang in self.lacks if gang in self._placements]:
                del self.lacks[gang]
            return self._place_tree(tree)
        for gang, lack in self.lacks.items():
            self.lacks[gang] = lack.not_found(result.tries)
        return False

    def _place_tree(self, tree: CompositeTree, spot: Spot | None = None) -> bool:
        mark = self._transaction.mark()
        placed = {gang: list(self._placements[gang].placed) for gang in tree.gangs() if gang in self._placements}
        facts = self._place_children(tree, spot) if tree.topology is None else self._place_in_domain(tree, spot)
        if facts is None:
            return True
        self._transaction.back_to(mark)
        for gang, before in placed.items():
            self._placements[gang].placed = before
        failed = self._failed.get(tree, list(tree.children))
        note_waiting(tree, failed, self._placements, self.lacks)
        return False

    def _place_in_domain(self, tree: CompositeTree, outer: Spot | None) -> Refusal | None:
        """Place the tree in a domain that fits all children, else in one that fits the required number."""
        session, placements = (
            self._session,
            {gang: self._placements[gang] for gang in tree.gangs() if gang in self._placements},
        )
        members = [member for gang in tree.gangs() for member in gang.members.values()]
        area = area_of(tree.topology, members)
        assert area is not None
        rows = {row for placement in placements.values() for _, row in placement.placed}
        area = Area(area.rule, tuple(sorted({*area.pins, *rows})))
        asking = [
            placement.demand() for placement in placements.values() if not (placement.satisfied or placement.placed)
        ]
        holding = len(placements) - len(asking)
        if not asking:
            return self._place_children(tree, outer)
        before = {gang: list(placement.placed) for gang, placement in placements.items()}

        def undone() -> None:
            for gang, placement in placements.items():
                placement.placed = list(before[gang])

        mark, facts = self._transaction.mark(), None
        for count in dict.fromkeys((len(asking), max(1, tree.least - holding))):
            want = together(asking, count)
            facts = try_domains(
                session,
                self._transaction,
                area,
                want,
                lambda _, spot: self._place_children(tree, spot or outer),
                undone,
            )
            if facts is None:
                return None
            self._transaction.back_to(mark)
            undone()
        assert facts is not None
        if facts.of_nodes or facts.of_account:
            # No domain has this room; the gangs have not been tried one by one.
            asks = (
                gang
                for gang, placement in placements.items()
                if not placement.satisfied and facts.may_be_about(gang)
            )
            first = next(asks, None)
            if first is not None and _waits_for_mates_only(self.lacks.get(first)):
                self.lacks[first] = facts
        return facts

    def _place_children(self, tree: CompositeTree, spot: Spot | None) -> Refusal | None:
        """Place every child that fits; return the refusal of the first other child if too few fit."""
        failed = self._failed[tree] = [child for child in tree.children if not self._place_child(child, spot)]
        placeable = len(tree.children) - len(failed)
        if placeable >= max(1, tree.least):
            return None
        lacks = (self.lacks[gang] for gang in tree.gangs() if gang in self.lacks)
        return next(lacks, None) or TooFewGroups()

    def _place_child(self, child: CompositeTree | GangRecord, spot: Spot | None) -> bool:
        if isinstance(child, CompositeTree):
            return self._place_tree(child, spot)
        placement = self._placements.get(child)
        if placement is None:
            return False
        if placement.satisfied or placement.placed:
            return True
        mark = self._transaction.mark()
        # The search for the whole tree includes its gangs.
        alone = not self._joint
        facts = place_gangs(self._session, [placement], demand_of([placement]), self._transaction, spot, alone)
        if facts is None:
            self.lacks.pop(child, None)
            return True
        self._transaction.back_to(mark)
        placement.placed = []
        self.lacks[child] = facts
        return False


def _waits_for_mates_only(lack: Refusal | None) -> bool:
    """Return whether a gang waits only for other gangs of its composite."""
    return lack is None or lack.of_mates


def note_waiting(
    tree: CompositeTree,
    failed: Sequence[CompositeTree | GangRecord],
    placements: Mapping[GangRecord, GangPlacement],
    lacks: dict[GangRecord, Refusal],
) -> None:
    """Record that the open gangs of an unplaced tree wait for it, unless they have their own refusal.

    The reported cause is the first gang with a refusal of its own among the `failed` children.
    """
    below = (gang for child in failed for gang in (child.gangs() if isinstance(child, CompositeTree) else (child,)))
    culprit = next((gang for gang in below if not _waits_for_mates_only(lacks.get(gang))), None)
    key, title = (culprit.key, culprit.title) if culprit is not None else (None, "")
    waits = Waits(tree.key, max(1, tree.least), len(tree.children) - len(failed), key, title)
    for gang in tree.gangs():
        if gang in placements and not placements[gang].satisfied:
            lacks.setdefault(gang, waits)


def hold_up(
    tree: CompositeTree, placements: Mapping[GangRecord, GangPlacement], lacks: dict[GangRecord, Refusal]
) -> bool:
    """Return whether too few children can take part; then all gangs of the tree wait for them."""

    def fails(child: CompositeTree | GangRecord) -> bool:
        return hold_up(child, placements, lacks) if isinstance(child, CompositeTree) else child not in placements

    failed = [child for child in tree.children if fails(child)]
    if len(tree.children) - len(failed) >= max(1, tree.least):
        return False
    note_waiting(tree, failed, placements, lacks)
    return True


def core(tree: CompositeTree, placements: Mapping[GangRecord, GangPlacement]) -> list[GangRecord]:
    """Return the gangs that must be placed to reach the minimum: the first that can take part.

    For a tree with independent children: the gangs of the first open child. Empty if the minimum is reached, or if
    too few children can take part.
    """
    holding, open_children = 0, list[list[GangRecord]]()
    for child in tree.children:
        if isinstance(child, CompositeTree):
            if could_hold(child, placements, asked=True):
                holding += 1
            elif could_hold(child, placements):
                open_children.append(core(child, placements))
        elif child in placements:
            if placements[child].satisfied:
                holding += 1
            else:
                open_children.append([child])
    wanted = tree.least - holding if tree.least else 1
    if wanted <= 0 or len(open_children) < wanted:
        return []
    return [gang for gangs in open_children[:wanted] for gang in gangs]


def could_hold(tree: CompositeTree, placements: Mapping[GangRecord, GangPlacement], asked: bool = False) -> bool:
    """Return whether enough children can take part; with `asked`, only satisfied gangs count."""

    def holds(child: CompositeTree | GangRecord) -> bool:
        if isinstance(child, CompositeTree):
            return could_hold(child, placements, asked)
        return child in placements and (not asked or placements[child].satisfied)

    return sum(map(holds, tree.children)) >= max(1, tree.least)
