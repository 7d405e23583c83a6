"""Volumes during placement: assignment, attachment limits, and rollback of failed plans."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.cluster.state import ClusterState
from phalanx.model.events import AllocatorFact, NodeUpdated, PodUpdated
from phalanx.model.node import Node
from phalanx.model.pod import Pod, PodClass
from phalanx.model.selectors import NodeSelectorTerm, Requirement
from phalanx.model.volumes import (
    Attachment,
    BindClaim,
    BoundVolume,
    ClaimAttachment,
    Disk,
    NodeAttachments,
    NodeStorage,
    PodVolumes,
    SoleUse,
    StorageCapacity,
    StorageClass,
    StorageDriver,
    UnboundClaim,
    UnusableVolume,
    Volume,
    VolumeNeed,
)
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.scheduler import Scheduler

from ..cluster.audit import audit
from ..cluster.volume_audit import audit_volumes
from ..extent import examples
from .scenario import Scenario

HOST = "kubernetes.io/hostname"
ONE = UnboundClaim("local", 1)


def at(*nodes: str, key: str = HOST) -> tuple[NodeSelectorTerm, ...]:
    return (NodeSelectorTerm((Requirement(key, "In", nodes),)),)


class Rooms(Scenario):
    """A scenario with storage."""

    def fact(self, allocator: str, fact: object) -> Rooms:
        return self.observe(f"{allocator} {fact!r}", AllocatorFact(allocator, fact))

    def hosts(self, *names: str, **labels: str) -> Rooms:
        for name in names:
            self.node(name, labels={HOST: name, **labels})
        return self

    def user(self, name: str, *needs: VolumeNeed, claims: tuple[str, ...] = (), **fields: object) -> Rooms:
        """A pod with these claims; claim objects have names derived from the pod's."""
        unbound = claims or tuple(f"{name}-{n}" for n, need in enumerate(needs) if isinstance(need, UnboundClaim))
        attached = tuple(
            need.volume or ("", f"ns/{name}-{n}") for n, need in enumerate(needs) if isinstance(need, Attachment)
        )
        names = PodVolumes(unbound, attached)
        more = {"volumes": names}
        self.pod(name, pod_class=PodClass(volumes=needs), cpu=1, more=more, **fields)  # type: ignore[arg-type]
        return self


def test_gang_gets_all_its_volumes_or_none() -> None:
    rooms = Rooms().hosts("n1", "n2", "n3").gang("g", 3)
    for name in ("n1", "n2"):
        rooms.fact("volumes", Volume(f"on-{name}", "local", 5, affinity=at(name)))
    for name in ("a", "b", "c"):
        rooms.user(name, ONE, gang="g")
    rooms.run()
    assert rooms.order == []
    verdict = rooms.why("g")
    assert "3 node(s) didn't find available persistent volumes to bind" in verdict.message
    rooms.fact("volumes", Volume("on-n3", "local", 5, affinity=at("n3"))).work()
    chosen = {bind.node: bind.preparations for plan in rooms.plans for bind in plan.binds}
    assert {node: [step.volume for step in steps] for node, steps in chosen.items()} == {  # type: ignore[attr-defined]
        name: [f"on-{name}"] for name in ("n1", "n2", "n3")
    }
    audit_volumes(rooms.state)


def test_smallest_sufficient_volume_is_assigned_to_each_claim() -> None:
    rooms = Rooms().hosts("n1")
    for name, size in (("tiny", 1), ("big", 9), ("right", 4), ("spare", 20)):
        rooms.fact("volumes", Volume(name, "local", size))
    rooms.user("p", UnboundClaim("local", 3), UnboundClaim("local", 3)).work()
    (bind,) = rooms.plans[0].binds
    assert bind.preparations == (
        BindClaim("ns", "p-0", "n1", "right"),
        BindClaim("ns", "p-1", "n1", "big"),
    )


def test_claim_without_a_free_volume_is_provisioned_where_the_class_allows_it() -> None:
    rooms = Rooms().hosts("n1", zone="a").hosts("n2", zone="b")
    rooms.fact("volumes", StorageClass("local", "csi", ((("zone", ("b",)),),)))
    rooms.user("p", ONE).work()
    (bind,) = rooms.plans[0].binds
    assert bind.preparations == (BindClaim("ns", "p-0", "n2"),)


def test_capacity_published_by_a_driver_limits_provisioning() -> None:
    rooms = Rooms().hosts("n1", "n2").fact("volumes", StorageClass("local", "csi"))
    rooms.fact("volumes", StorageDriver("csi", tracks_capacity=True))
    rooms.fact("volumes", StorageCapacity("a", "local", 5, (Requirement(HOST, "In", ("n1",)),)))
    rooms.user("p", UnboundClaim("local", 6)).run()
    verdict = rooms.why_pod("p")
    assert "2 node(s) did not have enough free storage" in verdict.message
    rooms.fact("volumes", StorageCapacity("b", "local", 6, (Requirement(HOST, "In", ("n2",)),))).run()
    assert rooms.where("p") == "n2"


def test_driver_attaches_each_volume_once() -> None:
    rooms = Rooms().hosts("n1", "n2")
    for name in ("n1", "n2"):
        rooms.fact("attachments", NodeStorage(name, ("csi",), (("csi", 2),)))
    shared = Attachment("csi", ("csi", "shared"))
    rooms.user("a", shared).run()
    home = rooms.where("a")
    other = "n2" if home == "n1" else "n1"
    rooms.fact("attachments", NodeAttachments(other, (("csi", "left"), ("csi", "behind"))))
    for name in ("b", "c"):
        rooms.user(name, shared)
    rooms.fact("attachments", ClaimAttachment("ns/own-0", "csi", "own")).user("own", Attachment("csi")).run()
    assert {rooms.where(name) for name in ("b", "c", "own")} == {home}
    rooms.user("full", Attachment("csi")).fact("attachments", ClaimAttachment("ns/full-0", "csi", "full")).run()
    verdict = rooms.why_pod("full")
    assert "2 node(s) exceed max volume count" in verdict.message
    rooms.fact("attachments", NodeAttachments(other, (("csi", "left"),))).run()
    assert rooms.where("full") == other
    audit_volumes(rooms.state)


def test_node_without_a_required_driver_is_excluded() -> None:
    rooms = Rooms().hosts("n1", "n2").fact("attachments", StorageDriver("csi", needs_node_plugin=True))
    rooms.fact("attachments", NodeStorage("n2", ("csi",))).user("p", Attachment("csi")).run()
    assert rooms.where("p") == "n2"


def test_disk_and_claim_allow_one_pod_at_a_time() -> None:
    rooms = Rooms().hosts("n1", "n2")
    for name in ("a", "b", "c"):
        rooms.user(name, Disk("gce", "d"))
    rooms.run()
    assert sorted(filter(None, map(rooms.where, "abc"))) == ["n1", "n2"]
    for name in ("x", "y"):
        rooms.user(name, SoleUse("ns/data"))
    rooms.run()
    assert len([name for name in "xy" if rooms.where(name)]) == 1
    audit_volumes(rooms.state)


def test_pod_of_higher_priority_preempts_the_user_of_its_claim() -> None:
    rooms = Rooms().hosts("n1", "n2").user("low", SoleUse("ns/data")).user("other").run()
    rooms.user("high", SoleUse("ns/data"), priority=10).run(20)
    assert rooms.evicted == ["low"]
    assert rooms.where("high")


def test_pod_of_higher_priority_preempts_for_an_attachment() -> None:
    rooms = Rooms().hosts("n1").fact("attachments", NodeStorage("n1", ("csi",), (("csi", 1),)))
    for name in ("low", "high"):
        rooms.fact("attachments", ClaimAttachment(f"ns/{name}-0", "csi", name))
    rooms.user("low", Attachment("csi")).user("idle").run()
    rooms.user("high", Attachment("csi"), priority=10).run(20)
    assert rooms.evicted == ["low"]
    assert rooms.where("high") == "n1"


def test_no_pod_is_evicted_for_a_missing_claim() -> None:
    rooms = Rooms().hosts("n1").user("low").run()
    reason = 'persistentvolumeclaim "x" not found'
    rooms.user("high", UnusableVolume(reason), priority=10).run(20)
    assert rooms.evicted == []
    verdict = rooms.why_pod("high")
    assert verdict.message == f"0/1 nodes are available: {reason}."


def test_volume_switches_of_the_policy_have_effect() -> None:
    policy = """
    tiers: [{plugins: [{name: gang}, {name: predicates, arguments: {%s: false}}]}]
    """

    def placed(switch: str, *needs: VolumeNeed) -> bool:
        rooms = Rooms(policy % switch).hosts("n1", **{"topology.kubernetes.io/zone": "a"})
        rooms.fact("attachments", NodeStorage("n1", ("csi",), (("csi", 0),)))
        rooms.fact("attachments", ClaimAttachment("ns/p-0", "csi", "h"))
        rooms.user("p", *needs).run()
        return bool(rooms.where("p"))

    elsewhere = BoundVolume(zones=(("topology.kubernetes.io/zone", ("b",)),))
    for switch, need in (
        ("predicate.NodeVolumeLimitsEnable", Attachment("csi")),
        ("predicate.VolumeZoneEnable", elsewhere),
        ("predicate.VolumeBindingEnable", ONE),
        ("predicate.VolumeBindingEnable", BoundVolume(affinity=at("n9"))),
        ("predicate.VolumeBindingEnable", UnusableVolume("no")),
    ):
        assert placed(switch, need)
        assert not placed("predicate.NodePortsEnable", need)


# Any number at once

_NODES = ("n1", "n2", "n3")


@st.composite
def supplies(draw: st.DrawFn) -> tuple[list[AllocatorFact], tuple[VolumeNeed, ...]]:
    some = st.sampled_from
    facts: list[AllocatorFact] = []
    for number in range(draw(st.integers(0, 8))):
        affinity = draw(some([None, at("n1"), at("n2"), at("n3"), at("n1", "n2"), at("z", key="zone")]))
        facts.append(
            AllocatorFact("volumes", Volume(f"v{number}", "local", draw(some([1, 2, 3])), affinity=affinity))
        )
    if draw(st.integers(0, 3)) == 0:
        facts.append(
            AllocatorFact("volumes", StorageClass("local", "csi", draw(some([(), ((("zone", ("z",)),),)]))))
        )
    for name in _NODES:
        limit = draw(some([None, 1, 2, 4]))
        if limit is not None:
            facts.append(AllocatorFact("attachments", NodeStorage(name, ("csi",), (("csi", limit),))))
    claims = [UnboundClaim("local", draw(some([1, 2, 3]))) for _ in range(draw(st.integers(0, 2)))]
    needs: list[VolumeNeed] = [*sorted(claims, key=lambda claim: claim.size)]
    if draw(st.booleans()):
        needs.append(Attachment("csi", draw(some([None, ("csi", "shared")]))))
    if draw(st.integers(0, 3)) == 0:
        needs.append(Disk("gce", "d", read_only=draw(st.booleans())))
    return facts, tuple(needs)


def _world(facts: list[AllocatorFact], needs: tuple[VolumeNeed, ...], pods: int) -> tuple[ClusterState, Scheduler]:
    state = ClusterState()
    for number, name in enumerate(_NODES):
        labels = ((HOST, name), ("zone", "z" if number else "y"))
        state.apply(NodeUpdated(Node(name, name, (("cpu", 64000), ("pods", 110)), labels)))
    for fact in facts:
        state.apply(fact)
    unbound = sum(isinstance(need, UnboundClaim) for need in needs)
    own = any(isinstance(need, Attachment) and need.volume is None for need in needs)
    shared = any(isinstance(need, Attachment) and need.volume is not None for need in needs)
    pod_class = PodClass(requests=(("cpu", 1),), volumes=needs)
    for number in range(pods):
        if own:
            state.apply(AllocatorFact("attachments", ClaimAttachment(f"ns/p{number}", "csi", f"h{number}")))
        attached = ((("", f"ns/p{number}"),) if own else ()) + ((("csi", "shared"),) if shared else ())
        names = PodVolumes(tuple(f"p{number}-{n}" for n in range(unbound)), attached)
        pod = Pod("ns", f"p{number}", f"p{number}", pod_class, scheduler="phalanx", volumes=names)
        state.apply(PodUpdated(pod))
    return state, Scheduler(state, load_policy())


@pytest.mark.thorough
@settings(max_examples=examples(40), deadline=None)
@given(supplies(), st.integers(1, 8))
def test_many_pods_with_volumes_are_placed_as_one_by_one(
    supply: tuple[list[AllocatorFact], tuple[VolumeNeed, ...]], pods: int
) -> None:
    facts, needs = supply
    state, scheduler = _world(facts, needs, pods)
    together = {bind.name for bind in scheduler.cycle(0.0).binds}
    audit(state)
    audit_volumes(state)
    taken: set[str] = set()
    for record in state.pods.values():
        volumes = getattr(record.allocated.get("volumes"), "volumes", ())
        chosen = [name for name in volumes if name]
        assert len(chosen) == len(set(chosen))
        assert not taken & set(chosen)
        taken |= set(chosen)
    # One by one, each in a cycle of its own.
    state, scheduler = _world(facts, needs, 0)
    alone = 0
    full, _ = _world(facts, needs, pods)
    for fact in (AllocatorFact("attachments", ClaimAttachment(f"ns/p{n}", "csi", f"h{n}")) for n in range(pods)):
        state.apply(fact)
    for uid in sorted(full.pods):
        state.apply(PodUpdated(msgspec.structs.replace(full.pods[uid].pod, uid=uid)))
        alone += len(scheduler.cycle(0.0).binds)
    assert alone == len(together)
