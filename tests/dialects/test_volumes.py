"""Volumes of pods: requirements, refusals, and shared classes of one template."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.cluster.state import ClusterState
from phalanx.dialects.core import decode_node
from phalanx.dialects.intake import Intake
from phalanx.model.events import PodUpdated
from phalanx.model.pod import Pod
from phalanx.model.volumes import Attachment, BoundVolume, Disk, SoleUse, UnboundClaim, UnusableVolume, VolumeNeed
from tests.dialects.objects import pod
from tests.dialects.storage import (
    Document,
    attachment,
    capacity,
    claim,
    csi_driver,
    csi_node,
    kind_of,
    own,
    storage_class,
    uses,
    volume,
)
from tests.extent import examples

GB = 2**30


class Room:
    """An intake, and its last state of each pod."""

    def __init__(self, *documents: Document) -> None:
        self.intake = Intake(["phalanx"])
        self.state = ClusterState()
        self.take(*documents)

    def take(self, *documents: Document) -> set[str]:
        """Return the names of the updated pods."""
        return {
            name for each in documents for name in self._tell(self.intake.enrichers.updated(kind_of(each), each))
        }

    def remove(self, document: Document) -> set[str]:
        metadata = document["metadata"]
        news = self.intake.enrichers.removed(kind_of(document), metadata.get("namespace", ""), metadata["name"])
        return self._tell(news)

    def pod(self, name: str, **what: Any) -> Pod:
        for event in self.intake.pod(pod(name, **what)):
            self.state.apply(event)
        return self.state.pods[f"uid-{name}"].pod

    def gone(self, name: str) -> None:
        for event in self.intake.pod_removed("default", name, f"uid-{name}"):
            self.state.apply(event)

    def needs(self, name: str) -> tuple[VolumeNeed, ...]:
        return self.state.pods[f"uid-{name}"].pod.pod_class.volumes

    def refusal(self, name: str) -> str:
        return next((need.reason for need in self.needs(name) if isinstance(need, UnusableVolume)), "")

    def _tell(self, news: Any) -> set[str]:
        events = self.intake.apply(news)
        for event in events:
            self.state.apply(event)
        return {event.pod.name for event in events if isinstance(event, PodUpdated)}


def test_pods_with_claims_of_their_own_are_one_class() -> None:
    room = Room(storage_class(), claim("data-0"), claim("data-1"))
    first, second = room.pod("w-0", volumes=uses("data-0")), room.pod("w-1", volumes=uses("data-1"))
    assert first.pod_class is second.pod_class
    need = UnboundClaim("late", GB, ("ReadWriteOnce",))
    assert set(first.pod_class.volumes) == {need, Attachment("csi.example.com")}
    assert (first.volumes.unbound, second.volumes.unbound) == (("data-0",), ("data-1",))


def test_shared_claim_is_named_because_it_is_attached_once() -> None:
    room = Room(storage_class(), claim("shared", volume="v"), volume("v", claimed="shared"))
    room.pod("a", volumes=uses("shared"))
    assert room.needs("a") == (Attachment("csi.example.com"),)
    room.pod("b", volumes=uses("shared"))
    assert room.needs("a") == room.needs("b") == (Attachment("csi.example.com", ("", "default/shared")),)
    room.gone("b")
    assert room.needs("a") == (Attachment("csi.example.com"),)


def test_bound_claim_requires_the_nodes_and_zones_of_its_volume() -> None:
    labels = {"topology.kubernetes.io/zone": "a__b", "failure-domain.beta.kubernetes.io/region": "r"}
    room = Room(claim("data", volume="v"), volume("v", claimed="data", node="n1", labels=labels))
    room.pod("p", volumes=uses("data"))
    (bound,) = (need for need in room.needs("p") if isinstance(need, BoundVolume))
    assert bound.affinity is not None
    assert bound.zones == (
        ("failure-domain.beta.kubernetes.io/region", ("r",)),
        ("topology.kubernetes.io/zone", ("a", "b")),
    )


REFUSALS: dict[str, tuple[list[Document], list[Document], str]] = {
    "missing": ([], uses("data"), 'persistentvolumeclaim "data" not found'),
    "lost": (
        [claim("data", volume="v", phase="Lost")],
        uses("data"),
        'persistentvolumeclaim "data" bound to non-existent persistentvolume "v"',
    ),
    "deleting": (
        [claim("data", volume="v", deleting=True), volume("v", claimed="data")],
        uses("data"),
        'persistentvolumeclaim "data" is being deleted',
    ),
    "immediate": (
        [storage_class("now", mode="Immediate"), claim("data", "now")],
        uses("data"),
        "pod has unbound immediate PersistentVolumeClaims (waits for claim data, which csi.example.com has to "
        "provision)",
    ),
    "no class": (
        [claim("data", "absent")],
        uses("data"),
        'pod has unbound immediate PersistentVolumeClaims (storageclass "absent" not found)',
    ),
    "half bound": (
        [storage_class(), claim("data", volumeName="v")],
        uses("data"),
        "pod has unbound immediate PersistentVolumeClaims",
    ),
    "volume gone": ([claim("data", volume="v")], uses("data"), 'persistentvolume "v" not found'),
    "not made yet": (
        [],
        [own("scratch")],
        'waiting for ephemeral volume controller to create the persistentvolumeclaim "p-scratch"',
    ),
    "somebody else's": (
        [storage_class(), claim("p-scratch", owner="uid-q")],
        [own("scratch")],
        "PVC default/p-scratch was not created for pod default/p (pod is not owner)",
    ),
}


@pytest.mark.parametrize(("documents", "volumes", "words"), REFUSALS.values(), ids=REFUSALS)
def test_claim_that_no_node_can_serve_is_refused_with_kube_schedulers_text(
    documents: list[Document], volumes: list[Document], words: str
) -> None:
    room = Room(*documents)
    room.pod("p", volumes=volumes)
    assert room.refusal("p") == words
    # The result is the same in any other order.
    late = Room()
    late.pod("p", volumes=volumes)
    late.take(*reversed(documents))
    assert late.needs("p") == room.needs("p")


def test_events_of_volumes_reach_exactly_the_waiting_pods() -> None:
    room = Room(storage_class("now", mode="Immediate"), claim("theirs", "now"))
    room.pod("mine", volumes=uses("data"))
    room.pod("theirs", volumes=uses("theirs"))
    room.pod("nobody")
    assert room.take(claim("data", "now")) == {"mine"}
    assert room.take(claim("data", "now", volume="v")) == {"mine"}
    assert room.refusal("mine") == 'persistentvolume "v" not found'
    assert room.take(volume("v", "now", claimed="data")) == {"mine"}
    assert room.refusal("mine") == ""
    assert room.take(claim("data", "now", volume="v")) == set()
    assert room.remove(storage_class("now")) == {"theirs"}


def test_volumes_being_provisioned_come_first_then_the_smallest() -> None:
    room = Room(storage_class(), claim("big", size="9Gi"), claim("small"), claim("going", size="5Gi", node="n1"))
    shown = room.pod("p", volumes=uses("big", "small", "going"))
    assert shown.volumes.unbound == ("going", "small", "big")
    claims = [need for need in shown.pod_class.volumes if isinstance(need, UnboundClaim)]
    assert [(need.node, need.size) for need in claims] == [("n1", 5 * GB), ("", GB), ("", 9 * GB)]


def test_reserved_volume_belongs_to_its_claim() -> None:
    room = Room(storage_class(), claim("data"), volume("v", claimed="data", phase="Available"))
    room.pod("p", volumes=uses("data"))
    (need,) = (need for need in room.needs("p") if isinstance(need, UnboundClaim))
    assert need.volume == "v"
    room.take(volume("v", claimed="data", size="1Mi"))
    (need,) = (need for need in room.needs("p") if isinstance(need, UnboundClaim))
    assert need.volume == ""


def test_single_pod_claims_and_disks_are_named() -> None:
    room = Room(storage_class(), claim("data", accessModes=["ReadWriteOncePod"]))
    disks = [
        {"name": "g", "gcePersistentDisk": {"pdName": "d", "readOnly": True}},
        {"name": "r", "rbd": {"monitors": ["m2", "m1"], "image": "i"}},
    ]
    room.pod("p", volumes=[*uses("data"), *disks])
    needs = room.needs("p")
    assert SoleUse("default/data") in needs
    assert Disk("gce", "d", read_only=True) in needs
    assert Disk("rbd", "rbd/i", monitors=("m1", "m2")) in needs
    # An in-tree disk counts as one of the driver that has replaced it.
    assert Attachment("pd.csi.storage.gke.io") in needs


def test_unreadable_claim_holds_only_its_pods() -> None:
    room = Room(storage_class(), claim("data"), claim("other"))
    room.pod("p", volumes=uses("data"))
    room.pod("q", volumes=uses("other"))
    news = room.intake.enrichers.malformed(kind_of(claim("data")), "default", "data", "uid-data", "no JSON")
    for event in room.intake.apply(news):
        room.state.apply(event)
    assert "cannot be read: no JSON" in room.refusal("p")
    assert room.refusal("q") == ""


def test_finished_pods_use_no_volume() -> None:
    room = Room(claim("shared", volume="v"), volume("v", claimed="shared"))
    room.pod("done", volumes=uses("shared"), phase="Succeeded", node="n1")
    room.pod("next", volumes=uses("shared"))
    assert room.needs("done") == ()
    assert room.needs("next") == (Attachment("csi.example.com"),)


# The same objects in any order

Step = Callable[[Room], object]


@st.composite
def histories(draw: st.DrawFn) -> list[list[Step]]:
    """Return the steps of each object's life; steps of different objects can arrive in any order."""
    lives: list[list[Step]] = []

    def life(*states: Document | None) -> None:
        last: list[Document] = [state for state in states if state is not None]

        def step(state: Document | None) -> Step:
            return lambda room: room.remove(last[0]) if state is None else room.take(state)

        lives.append([step(state) for state in states])

    some = st.sampled_from
    for name in ("a", "b", "p-own"):
        owner = "uid-p" if name == "p-own" and draw(st.booleans()) else ""
        states: list[Document | None] = [claim(name, draw(some(["late", "now"])), owner=owner)]
        if draw(st.booleans()):
            states.append(claim(name, "late", owner=owner, node=draw(some(["", "n1"]))))
        if draw(st.booleans()):
            states.append(claim(name, "late", owner=owner, volume=draw(some(["v", "w"]))))
        if draw(st.integers(0, 4)) == 0:
            states.append(None)
        life(*states)
    for name in ("v", "w"):
        zone = draw(some(["", "z1"]))
        states = [volume(name, size=draw(some(["1Gi", "9Gi"])), zone=zone)]
        if draw(st.booleans()):
            states.append(volume(name, claimed=draw(some(["a", "b"])), zone=zone))
        if draw(st.integers(0, 4)) == 0:
            states.append(None)
        life(*states)
    life(storage_class("late", zones=draw(some([(), ("z1",)]))), *draw(some([[], [None]])))
    life(storage_class("now", mode="Immediate"))
    life(csi_node("n1", draw(some([None, 0, 1]))), csi_node("n1", draw(some([0, 1, 2]))))
    life(csi_driver(storageCapacity=draw(st.booleans())))
    life(capacity("c", "late", draw(some(["1Mi", "5Gi"])), node="n1"), *draw(some([[], [None]])))
    life(attachment("x", "n1", draw(some(["v", "w"]))), *draw(some([[], [None]])))
    for name, volumes in (("p", [*uses("a"), own()]), ("q", uses("a", "b")), ("r", uses("b"))):
        where = draw(some(["", "n1", "n2"]))
        lives.append([lambda room, name=name, volumes=volumes: room.pod(name, volumes=volumes)])  # type: ignore[misc]
        if where:
            lives[-1].append(
                lambda room, name=name, volumes=volumes, where=where: room.pod(  # type: ignore[misc]
                    name, volumes=volumes, node=where
                )
            )
    for name, labels in (("n1", {"kubernetes.io/hostname": "n1", "topology.kubernetes.io/zone": "z1"}), ("n2", {})):
        document = {
            "metadata": {"name": name, "uid": name, "labels": labels},
            "status": {"allocatable": {"cpu": "8", "pods": "10"}},
        }
        lives.append([lambda room, document=document: _node(room, document)])  # type: ignore[misc]
    return lives


def _node(room: Room, document: Document) -> None:
    for event in room.intake.node(decode_node(msgspec.json.encode(document))):
        room.state.apply(event)


def told(lives: list[list[Step]], order: list[int]) -> tuple[object, ...]:
    """Return every pod, and the allocators' answer about it on each node, after the steps in an order."""
    room = Room()
    left = [list(life) for life in lives]
    for place in order:
        live = [life for life in left if life]
        if not live:
            break
        live[place % len(live)].pop(0)(room)
    for life in left:
        for step in life:
            step(room)
    nodes = room.state.nodes
    shown = {name: room.state.pods[f"uid-{name}"] for name in ("p", "q", "r")}
    verdicts = {
        (name, allocator.name, node): (
            int(allocator.copies(record.pod_class.spec, slice(None))[nodes.row(node)]),
            sorted(
                reason
                for reason, out in allocator.explain(record.pod_class.spec, slice(None))
                if out[nodes.row(node)]
            ),
        )
        for name, record in shown.items()
        for allocator in record.pod_class.allocators
        for node in ("n1", "n2")
    }
    return {name: record.pod for name, record in shown.items()}, verdicts


@pytest.mark.thorough
@settings(max_examples=examples(50), deadline=None)
@given(histories(), st.lists(st.integers(0, 1000), max_size=60), st.lists(st.integers(0, 1000), max_size=60))
def test_order_of_arrival_of_storage_objects_makes_no_difference(
    lives: list[list[Step]], order: list[int], other: list[int]
) -> None:
    assert told(lives, order) == told(lives, other)
