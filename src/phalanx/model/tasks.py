"""Which tasks of a group should share nodes, and which should not (Volcano's task topology)."""

from __future__ import annotations

import msgspec


class TaskTopology(msgspec.Struct, frozen=True):
    """`affinity` names sets of tasks that should be together, `anti_affinity` sets that should be apart; a set of
    one is about the task's own pods. `order` names tasks, those first that go first."""

    affinity: tuple[tuple[str, ...], ...] = ()
    anti_affinity: tuple[tuple[str, ...], ...] = ()
    order: tuple[str, ...] = ()
