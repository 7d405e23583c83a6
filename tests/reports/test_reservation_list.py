"""Reserved room: records of the scheduler, and objects of both kinds."""

from __future__ import annotations

from typing import Any

from phalanx.kube.client import KubeClient
from phalanx.kube.errors import ApiError
from phalanx.model.promise_records import Slip, SlipCause, StoredReservation, StoredShare, encode
from phalanx.reports.reservation_list import ADVANCE, KOORDINATOR, read_reservations

SHARE = StoredShare("k", {"n2": 2, "n1": 1})


class Server:
    """A server of the requests of the list: the ConfigMap, the kinds, the objects."""

    def __init__(self, promises: list[StoredReservation] | None, objects: dict[str, list[dict[str, Any]]]) -> None:
        self.promises = promises
        self.objects = objects

    async def get(self, path: str, params: object = None, *, accept: str = "") -> Any:
        if path.endswith("/configmaps/phalanx-reservations"):
            if self.promises is None:
                raise ApiError(403, "no", "Forbidden")
            return {"data": {"reservations.json": encode(self.promises)}}
        groups = [
            {
                "metadata": {"name": each.group},
                "versions": [
                    {
                        "version": each.version,
                        "resources": [
                            {
                                "resource": each.plural,
                                "responseKind": {"group": each.group, "version": each.version, "kind": each.kind},
                                "scope": "Cluster",
                                "verbs": ["list"],
                            }
                        ],
                    }
                ],
            }
            for each in (ADVANCE, KOORDINATOR)
            if each.path() in self.objects
        ]
        kind = "APIGroupDiscoveryList"
        return {"kind": kind, "apiVersion": "apidiscovery.k8s.io/v2", "items": groups if path == "/apis" else []}

    async def list_all(self, path: str, params: object = None) -> Any:
        return {"items": self.objects[path]}


async def told(server: Server) -> tuple[list[Any], list[str]]:
    client: KubeClient = server  # type: ignore[assignment]
    return await read_reservations(client, "kube-system", 600)


async def test_promises_and_reservations_are_one_list_by_start() -> None:
    late = StoredReservation(
        2000,
        2**62,
        1000,
        2000,
        500,
        [SHARE],
        [("ns", "big", "u")],
        slips=[Slip(1, 1000, 2000, SlipCause.NODE_LOST)],
    )
    early = StoredReservation(900, 1900, 900, 900, 500, [SHARE], pod="uid-1")
    course = {
        "metadata": {"name": "course"},
        "spec": {"queue": "teaching"},
        "status": {
            "phase": "Available",
            "start": "1970-01-01T00:20:00Z",
            "end": "1970-01-01T03:20:00Z",
            "users": 3,
            "nodes": [{"name": "n7", "count": 2}],
        },
    }
    waits = {
        "metadata": {"name": "waits"},
        "status": {"conditions": [{"type": "Scheduled", "status": "False", "reason": "NoRoom", "message": "full"}]},
    }
    koordinator = {
        "metadata": {"name": "k"},
        "status": {"phase": "Available", "nodeName": "n3", "currentOwners": [{}, {}]},
    }
    server = Server([late, early], {ADVANCE.path(): [course, waits], KOORDINATOR.path(): [koordinator]})
    found, warnings = await told(server)
    assert warnings == []
    assert [room.name for room in found] == ["unnamed pod", "course", "ns/big", "k", "waits"]
    assert [room.phase for room in found] == ["Promised", "Available", "Promised", "Available", "Pending"]
    first, second, third, fourth, fifth = found
    assert (first.start, first.end, first.nodes, first.pods) == (
        "1970-01-01T00:15:00Z",
        "1970-01-01T00:31:40Z",
        ("n1", "n2"),
        3,
    )
    assert (second.queue, second.pods, second.nodes) == ("teaching", 3, ("n7",))
    assert (third.end, third.reason, third.message[:8]) == ("", "NodeLost", "moved at")
    assert (fourth.kind, fourth.nodes, fourth.pods) == ("koordinator", ("n3",), 2)
    assert (fifth.reason, fifth.message) == ("NoRoom", "full")


async def test_caller_without_the_right_to_promises_gets_a_warning_and_the_remaining_list() -> None:
    found, warnings = await told(Server(None, {ADVANCE.path(): [{"metadata": {"name": "course"}}]}))
    assert [room.name for room in found] == ["course"]
    assert "promised starts" in warnings[0]


async def test_objects_of_a_wrong_shape_are_as_if_their_fields_were_absent() -> None:
    odd = {"metadata": {"name": "odd"}, "spec": 3, "status": {"nodes": "x", "users": "many", "conditions": 5}}
    found, _ = await told(Server([], {ADVANCE.path(): [odd]}))
    assert [(room.name, room.phase, room.nodes) for room in found] == [("odd", "Pending", ())]
