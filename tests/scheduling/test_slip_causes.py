"""Causes of slips of promised starts."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from phalanx.cluster.state import ClusterState
from phalanx.model.events import NodeRemoved, NodeUpdated
from phalanx.model.node import Node
from phalanx.model.promise_records import SlipCause
from phalanx.scheduling.reservations.reservation import Reservation
from phalanx.scheduling.reservations.slip_causes import cause_on

RESERVATION = cast(Reservation, SimpleNamespace(start=100, window=SimpleNamespace(end=200), made=0))


def test_slip_without_a_known_cause_is_unknown_and_names_no_node() -> None:
    state = ClusterState(("phalanx",))
    state.apply(NodeUpdated(Node("n")))
    row = state.nodes.row("n")
    assert cause_on(state, [row], RESERVATION, 50, 30) == (SlipCause.UNKNOWN, "")


def test_slip_on_a_deleted_node_is_node_lost() -> None:
    state = ClusterState(("phalanx",))
    state.apply(NodeUpdated(Node("n")))
    row = state.nodes.row("n")
    state.apply(NodeRemoved("n"))
    assert cause_on(state, [row], RESERVATION, 50, 30) == (SlipCause.NODE_LOST, "")
