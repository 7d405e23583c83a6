"""HyperNodes as a tree over the node table: for each tier, the HyperNode of each row."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING

import msgspec
import numpy as np
import numpy.typing as npt

from phalanx.cluster.nodes.labels import term_matches
from phalanx.model.selectors import NodeSelectorTerm
from phalanx.model.text.patterns import PatternSet, compile_pattern
from phalanx.model.topology import HyperNode, HyperNodeMember

if TYPE_CHECKING:
    from phalanx.cluster.nodes.rows import NodeRows

Ids = npt.NDArray[np.intp]

# A fault lists this number of nodes or HyperNodes, and counts the remaining ones.
_NAMED = 3


class HyperNodeFault(msgspec.Struct, frozen=True, order=True):
    """Statement of a HyperNode that contradicts another one, and the one that is used instead."""

    hypernode: str
    message: str


class HyperNodeTree:
    """Tree of HyperNodes; each row is in at most one HyperNode of each tier.

    Members have lower tiers than their HyperNode, so there are no cycles: contradicting members are ignored. If
    several HyperNodes claim the same node or HyperNode, and none of them is within another, the one of the lowest
    tier has precedence, then the first by name. `faults` list the ignored statements, which have no further effect.
    `names[number]` are the HyperNodes; 0 is none.
    """

    def __init__(self, nodes: NodeRows) -> None:
        self._nodes = nodes
        self._known: dict[str, HyperNode] = {}
        self.version = 0
        self._built = -1
        self._cursor = -1
        self._order: list[HyperNode] = []
        self._names: list[str] = [""]
        self._parent: list[int] = [0]
        self._faults: list[HyperNodeFault] = []
        self._by_name: dict[str, list[int]] = {}
        self._patterns = PatternSet(())
        self._pattern_numbers: list[int] = []
        self._terms: list[tuple[NodeSelectorTerm, int]] = []
        self._direct: Ids = np.zeros(0, dtype=np.intp)
        self._disputed: dict[int, tuple[int, ...]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def known(self) -> Collection[HyperNode]:
        return self._known.values()

    def put(self, hypernode: HyperNode) -> bool:
        if self._known.get(hypernode.name) == hypernode:
            return False
        self._known[hypernode.name] = hypernode
        self.version += 1
        return True

    def drop(self, name: str) -> bool:
        if self._known.pop(name, None) is None:
            return False
        self.version += 1
        return True

    @property
    def names(self) -> list[str]:
        self._refresh()
        return self._names

    @property
    def tiers(self) -> list[int]:
        """Tiers in ascending order: the closest first."""
        self._refresh()
        return sorted({hypernode.tier for hypernode in self._order})

    def tier_named(self, name: str) -> int | None:
        """Return the highest tier to which HyperNodes give this tier name."""
        return max(
            (hypernode.tier for hypernode in self._known.values() if hypernode.tier_name == name), default=None
        )

    def title(self, tier: int) -> str:
        """Return the name of a HyperNode tier for messages."""
        self._refresh()
        named = sorted(
            {hypernode.tier_name for hypernode in self._order if hypernode.tier == tier and hypernode.tier_name}
        )
        return f"tier {tier} ({named[0]})" if named else f"tier {tier}"

    def ids(self, tier: int) -> Ids:
        """Return int[N]: the HyperNode of that tier for each row, 0 if there is none."""
        self._refresh()
        table = np.zeros(len(self._names), dtype=np.intp)
        for number in range(1, len(self._names)):
            up = number
            while up and self._tier(up) < tier:
                up = self._parent[up]
            table[number] = up if up and self._tier(up) == tier else 0
        numbers: Ids = table[self._direct]
        return numbers

    def around(self, rows: Collection[int]) -> str:
        """Return the closest HyperNode that contains all the node rows; "" if there is none."""
        for tier in self.tiers if rows else ():
            numbers = set(self.ids(tier)[list(rows)].tolist())
            if len(numbers) == 1 and (number := int(numbers.pop())):
                return self._names[number]
        return ""

    def faults(self) -> list[HyperNodeFault]:
        """Return the ignored statements of readable HyperNodes, by HyperNode, then by text."""
        self._refresh()
        disputes: dict[tuple[int, int], list[int]] = {}
        for row, losers in self._disputed.items():
            for loser in losers:
                disputes.setdefault((loser, int(self._direct[row])), []).append(row)
        faults = list(self._faults)
        for (loser, winner), rows in disputes.items():
            names = sorted(self._nodes.names[row] for row in rows)
            faults.append(
                HyperNodeFault(
                    self._names[loser],
                    f"node {_listed(names)} is a member of HyperNode {self._names[winner]} as well, "
                    "which takes precedence; let each node be a member of one HyperNode of the lowest tier",
                )
            )
        return sorted(faults)

    # Construction

    def _tier(self, number: int) -> int:
        return self._order[number - 1].tier

    def _refresh(self) -> None:
        if self._built != self.version:
            self._build()
            self._built, self._cursor = self.version, -1
        nodes = self._nodes
        if self._cursor != nodes.relabelled.end or len(self._direct) != nodes.capacity:
            changed = None
            if self._cursor >= 0 and len(self._direct) == nodes.capacity:
                changed = nodes.relabelled.since(self._cursor, nodes.capacity)
            if changed is None:
                self._direct = np.zeros(nodes.capacity, dtype=np.intp)
                self._disputed = {}
            rows = range(nodes.extent) if changed is None else sorted(set(changed))
            self._assign(rows)
            self._cursor = nodes.relabelled.end

    def _build(self) -> None:
        usable = [hypernode for hypernode in self._known.values() if not hypernode.problem]
        self._order = sorted(usable, key=lambda hypernode: (hypernode.tier, hypernode.name))
        self._names = ["", *(hypernode.name for hypernode in self._order)]
        self._faults = []
        self._by_name, self._terms = {}, []
        patterns: list[tuple[str, int]] = []
        number_of = {name: number for number, name in enumerate(self._names)}
        parents: dict[int, list[int]] = {}
        for number, hypernode in enumerate(self._order, start=1):
            for member in hypernode.members:
                if member.nested:
                    for child in self._children(hypernode, member, number_of):
                        if number not in parents.setdefault(child, []):
                            parents[child].append(number)
                elif member.name:
                    self._by_name.setdefault(member.name, []).append(number)
                elif member.pattern:
                    patterns.append((member.pattern, number))
                else:
                    self._terms.append((NodeSelectorTerm(member.labels), number))
        self._patterns = PatternSet([pattern for pattern, _ in patterns])
        self._pattern_numbers = [number for _, number in patterns]
        self._parent = [0] * len(self._names)
        for child in range(len(self._names) - 1, 0, -1):  # from the highest tier down: ancestors are known
            for place, parent in enumerate(sorted(parents.get(child, ()))):
                if place == 0:
                    self._parent[child] = parent
                elif parent not in self._ancestors(self._parent[child]):
                    self._faults.append(
                        HyperNodeFault(
                            self._names[parent],
                            f"HyperNode {self._names[child]} is a member of HyperNode "
                            f"{self._names[self._parent[child]]} as well, which takes precedence; "
                            "let each HyperNode be a member of one other",
                        )
                    )

    def _children(self, parent: HyperNode, member: HyperNodeMember, numbers: dict[str, int]) -> Iterable[int]:
        if member.name:
            child = numbers.get(member.name)
            if child is None:
                self._faults.append(
                    HyperNodeFault(parent.name, f"there is no HyperNode {member.name} that can be its member")
                )
                return ()
            if self._tier(child) >= parent.tier:
                self._faults.append(
                    HyperNodeFault(
                        parent.name,
                        f"HyperNode {member.name} (tier {self._tier(child)}) cannot be its member: give it a tier "
                        f"below {parent.tier}",
                    )
                )
                return ()
            return (child,)
        pattern = compile_pattern(member.pattern)
        return [
            number
            for name, number in numbers.items()
            if number and self._tier(number) < parent.tier and pattern.found_in(name)
        ]

    def _ancestors(self, number: int) -> set[int]:
        """Return the numbers of a HyperNode and its ancestors."""
        ancestors: set[int] = set()
        while number:
            ancestors.add(number)
            number = self._parent[number]
        return ancestors

    def _assign(self, rows: Iterable[int]) -> None:
        nodes = self._nodes
        rows = [row for row in rows if row < nodes.capacity]
        claims: dict[int, set[int]] = {}
        for row in rows:
            self._direct[row] = 0
            self._disputed.pop(row, None)
            if nodes.alive[row]:
                name = nodes.names[row]
                numbers = set(self._by_name.get(name, ()))
                numbers.update(self._pattern_numbers[place] for place in self._patterns.found_in(name))
                claims[row] = numbers
        alive = np.array(list(claims), dtype=np.intp)
        for term, number in self._terms if len(alive) else ():
            for row in alive[term_matches(term, nodes.labels, nodes.name_column, alive)].tolist():
                claims[row].add(number)
        for row, numbers in claims.items():
            if not numbers:
                continue
            winner = min(numbers)
            self._direct[row] = winner
            losers = numbers - self._ancestors(winner)
            if losers:
                self._disputed[row] = tuple(sorted(losers))


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more
