"""Status of an advance reservation whose nodes close for maintenance."""

from __future__ import annotations

import pytest

from phalanx.daemon.controllers.advance_reservations import conditions_of_grant
from phalanx.model.advance_reservation import AdvanceReservation
from phalanx.scheduling.reservations.advance_grant import AdvanceGrant, GrantedNode, GrantPhase


def granted(**fields: object) -> AdvanceGrant:
    grant = AdvanceGrant(AdvanceReservation("course"))
    grant.phase, grant.start, grant.end = GrantPhase.WAITING, 2000, 3000
    grant.nodes = {"n1": GrantedNode({"cpu": 1000}), "n2": GrantedNode({"cpu": 1000})}
    for name, value in fields.items():
        setattr(grant, name, value)
    return grant


@pytest.mark.parametrize(
    ("fields", "reason", "message"),
    [
        ({}, "Waiting", "the reservation starts at 1970-01-01T00:33:20Z"),
        (
            {"closed": {"n1": "MaintenanceWindow w"}, "lost": ("n1",)},
            "Maintenance",
            "node(s) n1 close before its end (MaintenanceWindow w), and no other node has free resources for this"
            " part",
        ),
        (
            {"closed": {"n1": "MaintenanceWindow w"}},
            "Maintenance",
            "node(s) n1 close before its end (MaintenanceWindow w)",
        ),
        (
            {"lost": ("n2",)},
            "NodeLost",
            "node(s) n2 are lost, and no other node has free resources for the lost part",
        ),
    ],
)
def test_condition_names_the_nodes_and_the_maintenance(
    fields: dict[str, object], reason: str, message: str
) -> None:
    _, ready = conditions_of_grant(granted(**fields))
    assert ready == ("Ready", "False", reason, message)
