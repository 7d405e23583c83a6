"""Tasks of a gang that prefer to share nodes or to be apart (Volcano's task topology)."""

from __future__ import annotations

import msgspec


class TaskTopology(msgspec.Struct, frozen=True):
    """Task topology of a gang: which tasks to place together or apart.

    `affinity` contains sets of tasks to place together, `anti_affinity` sets to place apart; a set with one task
    is about that task's own pods. `order` lists the tasks in the order of placement.
    """

    affinity: tuple[tuple[str, ...], ...] = ()
    anti_affinity: tuple[tuple[str, ...], ...] = ()
    order: tuple[str, ...] = ()
