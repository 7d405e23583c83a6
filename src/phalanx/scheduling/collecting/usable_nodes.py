"""Nodes on which a gang can collect room now, and the choice among them."""

from __future__ import annotations

import numpy as np

from phalanx.cluster.pods.records import PodRecord
from phalanx.cluster.resource_space import BoolArray
from phalanx.scheduling.collecting.collection import ChosenNodes, Collection
from phalanx.scheduling.collecting.expected_ends import expected_end
from phalanx.scheduling.collecting.node_choice import ExpectedEnd, choose_nodes
from phalanx.scheduling.collecting.run_times import LearnedRunTimes
from phalanx.scheduling.reservations.window import Part
from phalanx.scheduling.session.session import Session
from phalanx.scheduling.start_reservations.plugin import plan_of


def choose_usable_nodes(
    session: Session,
    parts: tuple[Part, ...],
    run_times: LearnedRunTimes,
    start_delay: int,
    former: Collection | None = None,
) -> ChosenNodes | None:
    """Return the nodes on which a gang collects; None if too few pods ever end there.

    With a `former` collection they are its nodes, with room that has come free elsewhere instead of room that is
    still used there.
    """
    plan = plan_of(session)
    closed = plan.reserved_rows if plan is not None else None
    usable: list[BoolArray] = []
    for part in parts:
        # Pods that close a node by affinity rules need not end with those that use its room.
        rows = part.rows & session.placer.open_in_time(part.pod_class)
        rows &= session.placer.open_rows(part.pod_class)
        if closed is not None:
            rows[: len(closed)] &= ~closed[: len(rows)]
        usable.append(rows if former is None else rows & _near(session, former, part, rows))

    def end_of(record: PodRecord) -> ExpectedEnd | None:
        return expected_end(record, session.now, start_delay, run_times.of)

    return choose_nodes(session.state, parts, usable, end_of, session.now)


def _near(session: Session, collection: Collection, part: Part, usable: BoolArray) -> BoolArray:
    """Return bool[N]: the rows of a collection, and the usable rows with free room for a copy of the part, in the
    domain of the collection."""
    idle, pod_class = session.state.nodes.idle, part.pod_class
    inside = np.zeros(len(usable), dtype=np.bool_)
    inside[collection.rows[collection.rows < len(usable)]] = True
    free = np.flatnonzero(usable)
    fits = (idle[pod_class.columns[:, None], free] >= pod_class.amounts[:, None]).all(axis=0)
    near = inside.copy()
    near[free[fits]] = True
    if part.domains is not None:
        near &= np.isin(part.domains[: len(near)], part.domains[: len(near)][inside])
    return near
