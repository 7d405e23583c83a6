"""Warnings about composites whose groups have different priorities."""

from __future__ import annotations

from collections.abc import Callable

from phalanx.cluster.state import ClusterState
from phalanx.dialects.warnings import ObjectRef, ObjectWarning
from phalanx.model.gang import GangKey

# Upstream will require one priority for all groups of a tree (KEP-6012).
CODE = "CompositePriorityMismatch"
_MOST_NAMED = 4


class CompositePriorities:
    """Warns once per change of the priorities in a tree, on its topmost composite.

    `is_ours` returns whether a gang has a member of this scheduler; other trees are ignored.
    """

    def __init__(self, state: ClusterState, is_ours: Callable[[GangKey], bool]) -> None:
        self._gangs = state.gangs
        self._composites = state.gangs.composites
        self._is_ours = is_ours
        self._version = 0
        self._touched: dict[GangKey, None] = {}
        self._told: dict[GangKey, str] = {}

    def touch(self, gang: GangKey) -> None:
        """Examine the tree of a gang again at the next call of `new_warnings`."""
        record = self._gangs.get(gang)
        root = self._composites.root(record) if record is not None else None
        if root is not None:
            self._touched[root] = None

    def new_warnings(self) -> list[ObjectWarning]:
        """Return the warnings since the last call. Cheap unless a composite or one of its gangs has changed."""
        if self._version != self._composites.version:
            self._version = self._composites.version
            self._touched |= {self._composites.root_of(key): None for key in self._composites.specs}
            self._told = {key: text for key, text in self._told.items() if key in self._composites.specs}
        touched, self._touched = self._touched, {}
        warnings = []
        for root in touched:
            text, spec = self._mismatch(root), self._composites.specs.get(root)
            if spec is None or not text:
                self._told.pop(root, None)
            elif self._told.get(root) != text:
                self._told[root] = text
                ref = spec.ref
                about = ObjectRef(f"{ref.group}/{ref.version}", ref.kind, ref.namespace, ref.name, ref.uid)
                warnings.append(ObjectWarning(about, "Warning", CODE, text))
        return warnings

    def _mismatch(self, root: GangKey) -> str:
        """Return which priorities the tree states and which of them applies; "" if it states one or none."""
        gangs = self._composites.gangs(root)
        if not any(self._is_ours(gang.key) for gang in gangs):
            return ""
        stated = [
            (f"CompositePodGroup {key.name}", spec.priority)
            for key in self._composites.tree(root)
            if (spec := self._composites.specs.get(key)) is not None and spec.priority is not None
        ]
        of_composites = len(stated)
        stated += [
            (f"PodGroup {gang.key.name}", gang.spec.priority)
            for gang in gangs
            if gang.spec is not None and gang.spec.priority is not None
        ]
        if len({priority for _, priority in stated}) < 2:
            return ""
        # One example of each priority, the topmost first.
        examples = list({priority: f"{name}: {priority}" for name, priority in reversed(stated)}.values())[::-1]
        named = ", ".join(examples[:_MOST_NAMED]) + (", …" if len(examples) > _MOST_NAMED else "")
        effect = (
            "the topmost priority applies to everything below it"
            if of_composites
            else "each group is ordered by its own priority"
        )
        state = f"its tree states {len(examples)} priorities ({named}); {effect}"
        return f"{state}; state one priority in the whole tree"
