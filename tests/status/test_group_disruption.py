"""Status of groups while their members are evicted: the condition of native groups, the phases of other
dialects.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest

from phalanx.cluster.state import ClusterState
from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind
from phalanx.dialects.options import DialectOptions
from phalanx.execution.writes import WritePool
from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.auth.credentials import ClientIdentity
from phalanx.kube.client import KubeClient, PatchType
from phalanx.kube.events import EventRecorder
from phalanx.kube.http.transport import HttpRequest, HttpResponse
from phalanx.kube.retry import RetryPolicy
from phalanx.model.events import NodeUpdated
from phalanx.model.gang import GangKey
from phalanx.status.group_status import GroupStatuses
from phalanx.status.status_endpoint import StatusEndpoint
from tests.cluster_content import Recorded, node
from tests.dialects.objects import KUBE_BATCH, NATIVE, NATIVE_1_36, VOLCANO, X_K8S, container, group, pod
from tests.status.conftest import GATHER

G = GangKey("default", "g")
WHY = "gang default/train goes first"
GANG_OF_TWO = {"schedulingPolicy": {"gang": {"minCount": 2}}}


class Api:
    """One group object that accepts patches of its status; conditions of strategic patches are merged by type."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.uid = "uid-g"
        self.patches: list[dict[str, Any]] = []

    async def request(self, call: HttpRequest, identity: ClientIdentity) -> HttpResponse:
        assert (call.method, call.target.endswith("/podgroups/g/status")) == ("PATCH", True)
        body = msgspec.json.decode(call.body or b"null")
        assert body["metadata"] == {"uid": self.uid}
        self.patches.append(body["status"])
        status = self.document["status"]
        if call.content_type == PatchType.STRATEGIC.value:
            merged = {entry["type"]: entry for entry in status.get("conditions", [])}
            merged |= {entry["type"]: entry for entry in body["status"]["conditions"]}
            body["status"]["conditions"] = list(merged.values())
        self.document["status"] = {**status, **body["status"]}
        return HttpResponse(200, msgspec.json.encode(self.document))

    def stream(self, *_: Any) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        pass


class World:
    """A group with two running members, and its status as the scheduler writes it."""

    def __init__(self, kind: ServedKind, **spec: Any) -> None:
        self.kind = kind
        self.api = Api(group(**spec))
        self.state = ClusterState()
        self.intake = Intake(["phalanx"])
        self.pool = WritePool(concurrency=1)
        self.now = 1_900_000_000
        client = KubeClient(ClusterConfig("http://groups.invalid"), transports=lambda *_, **__: self.api)
        self.statuses = GroupStatuses(
            StatusEndpoint(client, cast(EventRecorder, Recorded())),
            self.pool,
            self.state,
            self.intake,
            lambda key: None,
            lambda: self.now,
            DialectOptions(),
            RetryPolicy(base=0.001),
        )
        self.state.apply(NodeUpdated(node("n1")))
        self.member("a", phase="Running")
        self.member("b", phase="Running")

    def member(self, name: str, **details: Any) -> None:
        if self.kind.group == NATIVE.group:
            details["schedulingGroup"] = {"podGroupName": "g"}
        elif self.kind == X_K8S:
            details["labels"] = {"scheduling.x-k8s.io/pod-group": "g"}
        else:
            details["annotations"] = {"scheduling.k8s.io/group-name": "g"}
        details = {"node": "n1", **details}
        for event in self.intake.pod(pod(name, containers=[container(cpu="1")], **details)):
            self.state.apply(event)

    def remove(self, name: str) -> None:
        for event in self.intake.pod_removed("default", name, f"uid-{name}"):
            self.state.apply(event)

    def doom(self, *names: str) -> None:
        for name in names:
            self.state.pods.mark_evicting(self.state.pods[f"uid-{name}"])

    async def look(self) -> dict[str, Any]:
        """Return the status after all writes, as the watch shows it then."""
        for event in self.intake.group(self.kind, self.api.document):
            self.state.apply(event)
        self.statuses.touch(G)
        await asyncio.sleep(2 * GATHER)
        async with asyncio.timeout(5):
            await self.pool.drained()
        status: dict[str, Any] = self.api.document["status"]
        return status

    async def target(self) -> dict[str, Any]:
        """Return the condition DisruptionTarget."""
        conditions = (await self.look()).get("conditions", [])
        return next((entry for entry in conditions if entry["type"] == "DisruptionTarget"), {})

    async def phase(self) -> str:
        return str((await self.look()).get("phase", ""))


@pytest.fixture(params=[NATIVE, NATIVE_1_36], ids=["v1beta1", "v1alpha2"])
async def native(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    made = World(request.param, **GANG_OF_TWO)
    await made.look()
    yield made
    await made.pool.close()


async def test_group_evicted_as_a_whole_gets_the_condition(native: World) -> None:
    native.doom("a", "b")
    native.statuses.disrupted(G, WHY)
    assert await native.target() == {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "PreemptionByScheduler",
        "message": WHY,
        "lastTransitionTime": "2030-03-17T17:46:40Z",
    }
    kinds = [entry["type"] for entry in native.api.document["status"]["conditions"]]
    assert len(kinds) == 2, "that its first quorum was placed once stays true"


async def test_condition_of_a_disrupted_group_is_written_once(native: World) -> None:
    native.doom("a", "b")
    native.statuses.disrupted(G, WHY)
    for _ in range(3):
        await native.look()
        native.now += 60
    native.remove("a")
    await native.look()
    assert len(native.api.patches) == 2


async def test_group_that_was_placed_again_loses_the_condition(native: World) -> None:
    native.doom("a", "b")
    native.statuses.disrupted(G, WHY)
    await native.look()
    for name in "ab":
        native.remove(name)
        native.member(f"next-{name}")
    native.now += 60
    target = await native.target()
    assert (target["status"], target["reason"]) == ("False", "Scheduled")
    assert target["lastTransitionTime"] == "2030-03-17T17:47:40Z"
    patches = len(native.api.patches)
    await native.look()
    assert len(native.api.patches) == patches


async def test_restarted_scheduler_withdraws_the_condition_of_its_predecessor(native: World) -> None:
    said = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler", "message": WHY}
    native.api.document["status"]["conditions"].append(said)
    assert (await native.target())["status"] == "False"


async def test_conditions_of_other_writers_on_a_group_are_preserved(native: World) -> None:
    said = {"type": "DisruptionTarget", "status": "True", "reason": "NodeDrain", "message": "by another"}
    native.api.document["status"]["conditions"].append(said)
    assert await native.target() == said


async def test_cancelled_eviction_leaves_no_condition(native: World) -> None:
    native.doom("a", "b")
    native.statuses.disrupted(G, WHY)
    for name in "ab":
        native.state.pods.eviction_refused(f"uid-{name}", 0)
    assert await native.target() == {}


async def test_group_preempted_before_its_first_status_counts_as_scheduled() -> None:
    world = World(NATIVE, schedulingPolicy={"gang": {"minCount": 1}})
    for event in world.intake.group(NATIVE, world.api.document):
        world.state.apply(event)
    world.statuses.touch(G)
    world.doom("a", "b")
    world.statuses.disrupted(G, WHY)
    assert (await world.target())["status"] == "True"
    told = {entry["type"]: entry["status"] for entry in world.api.document["status"]["conditions"]}
    assert told["PodGroupInitiallyScheduled"] == "True"
    await world.pool.close()


async def test_namesake_does_not_get_the_condition_of_the_former_group(native: World) -> None:
    native.doom("a", "b")
    native.statuses.disrupted(G, WHY)
    native.api.document["metadata"]["uid"] = native.api.uid = "another"
    native.api.document["status"] = {}
    assert await native.target() == {}


async def test_group_of_a_dialect_without_the_condition_does_not_get_it() -> None:
    world = World(X_K8S, minMember=2)
    before = await world.look()
    world.statuses.disrupted(G, WHY)
    assert await world.target() == {}
    assert (await world.look()).get("conditions") == before.get("conditions")
    await world.pool.close()


@pytest.mark.parametrize(
    ("kind", "while_they_leave", "then"),
    # Volcano counts members that still have a node as scheduled, kube-batch does not; its groups never fall back.
    [(VOLCANO, "Running", "Inqueue"), (KUBE_BATCH, "Pending", "Pending"), (X_K8S, "Pending", "Pending")],
    ids=["volcano", "kube-batch", "scheduler-plugins"],
)
async def test_phase_of_a_group_with_all_members_evicted_follows_its_dialect(
    kind: ServedKind, while_they_leave: str, then: str
) -> None:
    world = World(kind, minMember=2)
    assert await world.phase() == "Running"
    world.doom("a", "b")
    assert await world.phase() == while_they_leave
    for name in "ab":
        world.member(name, phase="Running", terminating=True)
    assert await world.phase() == while_they_leave
    for name in "ab":
        world.remove(name)
    assert await world.phase() == then
    await world.pool.close()


@pytest.mark.parametrize(
    ("kind", "terminating", "then"),
    # Volcano counts members until they are deleted, also where others remain.
    [(VOLCANO, "Running", "Inqueue"), (KUBE_BATCH, "Unknown", "Pending")],
    ids=["volcano", "kube-batch"],
)
async def test_phase_of_a_group_below_its_minimum_follows_its_dialect(
    kind: ServedKind, terminating: str, then: str
) -> None:
    world = World(kind, minMember=2)
    assert await world.phase() == "Running"
    world.doom("a")
    assert await world.phase() == terminating
    world.remove("a")
    assert await world.phase() == "Unknown"
    world.member("a2", node="", phase="Pending")
    world.state.pods.eviction_refused("uid-b", 0)
    assert await world.phase() == then
    world.member("a2", phase="Running")
    assert await world.phase() == "Running"
    await world.pool.close()


@pytest.mark.parametrize("kind", [VOLCANO, KUBE_BATCH, X_K8S], ids=["volcano", "kube-batch", "scheduler-plugins"])
async def test_group_that_loses_only_surplus_remains_running(kind: ServedKind) -> None:
    world = World(kind, minMember=1)
    await world.look()
    world.doom("a")
    assert await world.phase() == "Running"
    world.remove("a")
    assert await world.phase() == "Running"
    await world.pool.close()
