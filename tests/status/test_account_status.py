"""Status of queues and quotas: written exactly when it is outdated."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from typing import Any, cast

import msgspec
import pytest

from phalanx.cluster.state import ClusterState
from phalanx.daemon.controllers.builtin_queues import BuiltinQueues
from phalanx.daemon.custom_kinds import CustomKinds
from phalanx.dialects.core import decode_resource_quota
from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind
from phalanx.execution.writes import WritePool
from phalanx.kube.auth.config import ClusterConfig
from phalanx.kube.auth.credentials import ClientIdentity
from phalanx.kube.client import KubeClient
from phalanx.kube.discovery import Discovery, ServedResource
from phalanx.kube.events import EventRecorder
from phalanx.kube.http.transport import HttpRequest, HttpResponse
from phalanx.kube.paths import Resource
from phalanx.kube.retry import RetryPolicy
from phalanx.model.events import ClusterEvent, GangRemoved, GangUpdated, NodeRemoved, NodeUpdated
from phalanx.model.gang import GangKey
from phalanx.status.account_status import AccountStatuses
from phalanx.status.status_endpoint import StatusEndpoint
from tests.cluster_content import Clock, Recorded, node
from tests.dialects.objects import (
    EPOCH,
    QUOTA,
    QUOTA_TREE,
    SIGS_QUOTA,
    VOLCANO,
    VOLCANO_QUEUE,
    container,
    group,
    pod,
    queue,
    quota,
    quota_tree,
)
from tests.execution.podserver import status

NOTHING = {"cpu": "0", "memory": "0"}


class Api:
    """Objects by path, with merge patches of their status. `answers` are errors for the next patches."""

    def __init__(self) -> None:
        self.objects: dict[str, tuple[ServedKind, dict[str, Any]]] = {}
        self.patches: list[dict[str, Any]] = []
        self.created: list[str] = []
        self.answers: list[int] = []
        # Fields of a queue's spec in the served schema; None if the definition cannot be read.
        self.queue_fields: tuple[str, ...] | None = ("weight", "parent")

    def client(self) -> KubeClient:
        return KubeClient(ClusterConfig("http://objects.invalid"), transports=lambda *_, **__: self)

    def hold(self, kind: ServedKind, document: dict[str, Any]) -> None:
        self.objects[path_of(kind, document)] = (kind, document)

    async def request(self, call: HttpRequest, identity: ClientIdentity) -> HttpResponse:
        path = call.target.partition("?")[0]
        body = msgspec.json.decode(call.body or b"null")
        if self.answers:
            return status(self.answers.pop(0), "injected")
        if call.method == "GET" and path.endswith("/customresourcedefinitions/queues.scheduling.volcano.sh"):
            if self.queue_fields is None:
                return status(403, "no right to read definitions")
            spec: dict[str, Any] = {"properties": {field: {} for field in self.queue_fields}}
            schema = {"openAPIV3Schema": {"properties": {"spec": spec}}}
            definition = {"spec": {"versions": [{"name": "v1beta1", "served": True, "schema": schema}]}}
            return HttpResponse(200, msgspec.json.encode(definition))
        if call.method == "POST":
            self.created.append(body["metadata"]["name"])
            return HttpResponse(201, msgspec.json.encode(body))
        assert (call.method, path.endswith("/status")) == ("PATCH", True)
        _, document = self.objects[path.removesuffix("/status")]
        if body["metadata"]["uid"] != document["metadata"]["uid"]:
            return status(409, "Precondition failed: UID")
        self.patches.append(body["status"])
        document["status"] = merged(document["status"], body["status"])
        return HttpResponse(200, msgspec.json.encode(document))

    def stream(self, *_: Any) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        pass


def path_of(kind: ServedKind, document: dict[str, Any]) -> str:
    metadata = document["metadata"]
    inside = f"/namespaces/{metadata['namespace']}" if metadata["namespace"] else ""
    return f"/apis/{kind.group}/{kind.version}{inside}/{kind.plural}/{metadata['name']}"


def merged(target: dict[str, Any], patch: dict[str, Any]) -> dict[str, Any]:
    result = dict(target)
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name) or {}, value) if isinstance(value, dict) else value
    return result


class World:
    def __init__(self) -> None:
        self.api = Api()
        self.state = ClusterState()
        self.intake = Intake(["phalanx"])
        self.pool = WritePool(concurrency=4)
        self.recorded = Recorded()
        self.refused: list[str] = []
        self.clock = Clock()
        recorder = cast(EventRecorder, self.recorded)
        self.endpoint = StatusEndpoint(self.api.client(), recorder, self.refused.append)
        self.statuses = AccountStatuses(
            self.endpoint,
            self.pool,
            self.state,
            self.intake,
            recorder,
            self.clock,
            RetryPolicy(base=0.001),
        )
        self.apply([NodeUpdated(node("n1", cpu=8))])

    def apply(self, events: list[ClusterEvent]) -> None:
        for event in events:
            self.state.apply(event)
            if isinstance(event, GangUpdated):
                self.statuses.gang_touched(event.gang.key)
            if isinstance(event, GangRemoved):
                self.statuses.gang_touched(event.key)

    def put(self, kind: ServedKind, document: dict[str, Any]) -> None:
        """Create an object as its users do: the API server stores it, the watch delivers it."""
        self.api.hold(kind, document)
        self.apply(self.intake.account(kind, document))

    def pod(self, name: str, namespace: str = "team-a", cpu: str = "1", **details: Any) -> None:
        details.setdefault("node", "n1")
        details.setdefault("phase", "Running")
        containers = [container(cpu=cpu)]
        self.apply(self.intake.pod(pod(name, namespace=namespace, containers=containers, **details)))

    def group(self, name: str, **details: Any) -> None:
        self.apply(self.intake.group(VOLCANO, group(name, **details)))
        self.statuses.gang_touched(GangKey("default", name))

    async def look(self) -> list[dict[str, Any]]:
        """Run one round; return its status patches in order, then deliver the changed objects."""
        self.api.patches.clear()
        self.statuses.write_changed()
        async with asyncio.timeout(5):
            await self.pool.drained()
        for kind, document in self.api.objects.values():
            self.apply(self.intake.account(kind, document))
        return list(self.api.patches)


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World()
    yield made
    await made.pool.close()


async def test_status_of_a_quota_has_the_requests_of_running_pods_and_is_written_once(world: World) -> None:
    world.put(QUOTA, quota(min={"cpu": 2}, max={"nvidia.com/gpu": 1}))
    world.pod("a")
    world.pod("b", phase="Pending")
    world.pod("elsewhere", namespace="other")
    assert await world.look() == [{"used": {"cpu": "1", "nvidia.com/gpu": "0"}}]
    assert await world.look() == []
    world.pod("b")
    assert await world.look() == [{"used": {"cpu": "2"}}]
    assert await world.look() == []
    assert [entry for entry in world.recorded.told if entry[1] == "Synced"] == [("ElasticQuota/q", "Synced")] * 2


async def test_invalid_quota_gets_no_success_in_its_status(world: World) -> None:
    world.put(QUOTA, quota(min={"cpu": "-3"}, max={"cpu": 2}))
    world.pod("a")
    assert len(await world.look()) == 1
    assert [entry for entry in world.recorded.told if entry[1] == "Synced"] == []


async def test_status_of_a_queue_has_its_state_and_usage(world: World) -> None:
    world.put(VOLCANO_QUEUE, queue("q"))
    world.pod("a", annotations={"scheduling.volcano.sh/queue-name": "q"})
    assert await world.look() == [{"state": "Open", "allocated": {"cpu": "1", "memory": "0", "pods": "1"}}]
    assert await world.look() == []
    world.apply(world.intake.pod_removed("team-a", "a", "uid-a"))
    assert await world.look() == [{"allocated": {"cpu": "0", "pods": None}}]
    assert await world.look() == []


async def somebody_else_says(world: World, times: int) -> list[int]:
    """Return the number of our writes after each write of three CPUs by another scheduler."""
    writes = []
    for _ in range(times):
        document = queue("q")
        [held] = [held for _, held in world.api.objects.values()]
        document["status"] = merged(held["status"], {"allocated": {"cpu": "3"}})
        world.put(VOLCANO_QUEUE, document)
        writes.append(len(await world.look()))
        world.clock.now += 1000
    return writes


async def test_queue_without_our_pods_is_written_by_the_scheduler_with_pods(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    world.put(VOLCANO_QUEUE, queue("q"))
    await world.look()
    # Our remainder of deleted pods is withdrawn; a value that is written again is not.
    assert await somebody_else_says(world, 6) == [1, 1, 1, 0, 0, 0]
    [line] = [each for each in caplog.records if "another writer changes the status" in each.getMessage()]
    assert line.levelname == "INFO"
    assert "another scheduler has pods in this queue, and each writes the sum of its own pods" in line.getMessage()
    world.pod("a", annotations={"scheduling.volcano.sh/queue-name": "q"})
    assert await world.look() == [{"allocated": {"cpu": "1", "pods": "1"}}]


async def test_status_of_a_queue_counts_its_groups_by_phase(world: World) -> None:
    world.put(VOLCANO_QUEUE, queue("q"))
    world.group("a", queue="q", status={"phase": "Running"})
    world.group("b", queue="q")
    world.group("c", queue="other")
    assert await world.look() == [{"state": "Open", "running": 1, "pending": 1, "allocated": NOTHING}]
    world.group("b", queue="q", status={"phase": "Inqueue"})
    assert await world.look() == [{"pending": 0, "inqueue": 1}]
    world.apply(world.intake.group_removed(VOLCANO, "default", "b"))
    world.group("a", queue="other", status={"phase": "Running"})
    assert await world.look() == [{"running": 0, "inqueue": 0}]
    assert await world.look() == []


async def test_closing_queue_is_closed_when_its_last_group_is_gone(world: World) -> None:
    world.put(VOLCANO_QUEUE, queue("q", status={"state": "Closing", "allocated": NOTHING}))
    world.group("a", queue="q", status={"phase": "Running"})
    assert await world.look() == [{"running": 1}]
    world.apply(world.intake.group_removed(VOLCANO, "default", "a"))
    assert await world.look() == [{"running": 0, "state": "Closed"}]
    assert await world.look() == []


async def test_state_of_a_queue_is_not_written_where_a_controller_writes_it(world: World) -> None:
    told = queue("q", status={"state": "Closing", "allocated": NOTHING})
    fields: dict[str, Any] = {"f:status": {"f:state": {}}}
    told["metadata"]["managedFields"] = [{"manager": "queue-controller", "operation": "Apply", "fieldsV1": fields}]
    world.put(VOLCANO_QUEUE, told)
    assert await world.look() == []
    told["metadata"]["managedFields"] = [{"manager": "kubectl-patch", "operation": "Update", "fieldsV1": fields}]
    told["status"] = dict(told["status"])
    world.put(VOLCANO_QUEUE, told)
    assert await world.look() == [{"state": "Closed"}]


async def test_counts_are_not_written_where_a_controller_replaces_the_status(world: World) -> None:
    told = queue("q", status={"state": "Open", "allocated": NOTHING})
    fields: dict[str, Any] = {"f:status": {"f:state": {}}}
    told["metadata"]["managedFields"] = [{"manager": "vc-controller", "operation": "Update", "fieldsV1": fields}]
    world.put(VOLCANO_QUEUE, told)
    world.group("a", queue="q", status={"phase": "Completed"})
    world.pod("a", annotations={"scheduling.volcano.sh/queue-name": "q"})
    assert await world.look() == [{"allocated": {"cpu": "1", "pods": "1"}}]


async def test_state_of_a_queue_is_not_written_where_volcanos_controller_handles_commands(world: World) -> None:
    """It applies the state without force: a state by another writer makes every later command fail."""
    world.endpoint.learn(Discovery((ServedResource(Resource("bus.volcano.sh", "v1alpha1", "commands")),)))
    world.put(VOLCANO_QUEUE, queue("q"))
    assert await world.look() == [{"allocated": NOTHING}]


async def test_queue_of_another_scheduler_is_not_written(world: World) -> None:
    world.put(VOLCANO_QUEUE, queue("q", status={"state": "Open", "allocated": {"cpu": "7"}}))
    annotations = {"scheduling.k8s.io/group-name": "a"}
    world.group("a", queue="q", status={"phase": "Running"})
    world.pod("p", namespace="default", annotations=annotations, schedulerName="volcano")
    world.statuses.gang_touched(GangKey("default", "a"))
    assert await world.look() == []
    world.group("b", queue="q")
    assert await world.look() == [{"running": 1, "pending": 1, "allocated": {"cpu": "0"}}]


async def test_fields_of_other_writers_are_preserved_in_a_status(world: World) -> None:
    world.put(VOLCANO_QUEUE, queue("q", status={"reservation": {"nodes": ["n1"]}, "allocated": {"odd/one": "0"}}))
    await world.look()
    _, document = world.api.objects["/apis/scheduling.volcano.sh/v1beta1/queues/q"]
    assert document["status"]["reservation"] == {"nodes": ["n1"]}


async def test_transiently_failed_write_is_retried(world: World) -> None:
    world.put(QUOTA, quota(min={"cpu": 2}))
    world.api.answers = [409, 503]
    assert await world.look() == [{"used": {"cpu": "0"}}]


async def test_write_answered_with_not_found_is_retried_while_the_object_is_known(world: World) -> None:
    """A definition that is created again serves nothing for a moment."""
    world.put(QUOTA, quota(min={"cpu": 2}))
    world.api.answers = [404, 404, 404, 404]
    assert await world.look() == [{"used": {"cpu": "0"}}]
    assert world.refused == []


async def test_rejected_write_is_logged_and_waits_for_a_change(world: World) -> None:
    world.put(QUOTA, quota(min={"cpu": 2}))
    world.api.answers = [403]
    assert await world.look() == []
    (event,) = world.recorded.events
    assert event[:2] == ("ElasticQuota/q", "StatusRefused")
    assert "the API server rejected the status of this ElasticQuota (scheduling.x-k8s.io): 403" in event[2]
    assert world.refused == ["ElasticQuota"]
    assert await world.look() == []
    world.pod("a")
    assert await world.look() == [{"used": {"cpu": "1"}}]


async def test_two_writers_do_not_correct_each_other_forever(world: World) -> None:
    world.put(QUOTA, quota(min={"cpu": 2}))
    await world.look()
    written = 0
    for second in range(600):
        world.clock.now = 1000.0 + second
        world.put(QUOTA, quota(min={"cpu": 2}, status={"used": {"cpu": "7"}}))
        written += len(await world.look())
    assert 2 <= written <= 12
    # A new value is written at once again.
    world.clock.now += 600
    world.pod("a")
    assert await world.look() == [{"used": {"cpu": "1"}}]


async def test_deleted_object_is_forgotten(world: World) -> None:
    world.put(QUOTA, quota(min={"cpu": 2}))
    await world.look()
    world.apply(world.intake.account_removed(QUOTA, "team-a", "q"))
    world.api.objects.clear()
    assert await world.look() == []
    assert len(world.statuses) == 0


async def test_replacement_of_an_object_is_not_written(world: World) -> None:
    world.put(QUOTA, quota(min={"cpu": 2}))
    world.api.hold(QUOTA, quota(min={"cpu": 2}, uid="another"))
    world.statuses.write_changed()
    async with asyncio.timeout(5):
        await world.pool.drained()
    assert world.api.patches == []


# Minima beyond capacity


def oversold(world: World) -> list[tuple[str, str]]:
    found = [(about, note) for about, reason, note in world.recorded.events if reason == "SumMinExceedsCapacity"]
    world.recorded.events.clear()
    return found


async def test_minima_above_the_cluster_are_reported_once_to_the_youngest_quota(world: World) -> None:
    world.put(QUOTA, quota("a", "team-a", min={"cpu": 5}))
    await world.look()
    assert oversold(world) == []
    world.put(QUOTA, quota("b", "team-b", created=EPOCH + 1, min={"cpu": 4, "memory": 0}))
    await world.look()
    ((about, note),) = oversold(world)
    assert about == "ElasticQuota/b"
    assert "cpu 9 of 8" in note
    world.pod("p")
    await world.look()
    assert oversold(world) == []
    world.apply([NodeUpdated(node("n2", cpu=1))])
    await world.look()
    world.apply([NodeRemoved("n2")])
    await world.look()
    assert len(oversold(world)) == 1


KO = "quota.scheduling.koordinator.sh/"


def node_of_tree(name: str, parent: str = "", *, created: int = EPOCH, **spec: Any) -> dict[str, Any]:
    labels = {f"{KO}is-parent": "false", **({f"{KO}parent": parent} if parent else {})}
    return quota(name, "kube-system", created=created, labels=labels, **spec)


async def test_minima_above_their_parent_in_a_tree_are_reported_to_the_youngest_quota(world: World) -> None:
    """The built-in root has the amounts of the nodes; Koordinator's own webhook refuses the like."""
    world.put(SIGS_QUOTA, node_of_tree("research", min={"cpu": 4}))
    world.put(SIGS_QUOTA, node_of_tree("vision", "research", min={"cpu": 3}))
    await world.look()
    assert oversold(world) == []
    world.put(SIGS_QUOTA, node_of_tree("speech", "research", created=EPOCH + 1, min={"cpu": 2}))
    await world.look()
    (told,) = [each for each in world.recorded.events if each[1] == "ChildrenMinExceedsMin"]
    assert told[0] == "ElasticQuota/speech"
    assert "below ElasticQuota kube-system/research together exceed its min: cpu 5 of 4" in told[2]
    world.put(SIGS_QUOTA, node_of_tree("prod", created=EPOCH + 2, min={"cpu": 5}))
    await world.look()
    ((about, note),) = oversold(world)
    assert (about, "cpu 9 of 8" in note) == ("ElasticQuota/prod", True)


def hard(world: World, *, namespace: str = "team-a", scopes: list[str] | None = None, **amounts: str) -> None:
    """A ResourceQuota; `requests_cpu` is short for requests.cpu."""
    spec: dict[str, Any] = {"hard": {name.replace("_", "."): amount for name, amount in amounts.items()}}
    if scopes:
        spec["scopes"] = scopes
    document = {"metadata": {"name": "rq", "namespace": namespace, "uid": "uid-rq"}, "spec": spec}
    world.apply(world.intake.resource_quota(decode_resource_quota(json.dumps(document).encode())))


def above_hard(world: World) -> list[tuple[str, str]]:
    found = [
        (about, note) for about, reason, note in world.recorded.events if reason == "QuotaExceedsResourceQuota"
    ]
    world.recorded.events.clear()
    return found


async def test_max_above_the_resource_quota_of_the_namespace_is_reported_once(world: World) -> None:
    world.put(QUOTA, quota(min={"cpu": 2, "memory": "9Gi"}, max={"cpu": 20, "nvidia.com/gpu": 1}))
    hard(world, requests_cpu="20", limits_cpu="1")
    await world.look()
    assert above_hard(world) == []
    hard(world, requests_cpu="10", memory="8Gi")
    await world.look()
    ((about, note),) = above_hard(world)
    assert about == "ElasticQuota/q"
    assert "spec.max is cpu 20, but ResourceQuota team-a/rq allows at most 10" in note
    assert "spec.min is memory 9Gi" in note
    world.pod("p")
    await world.look()
    assert above_hard(world) == []
    hard(world, requests_cpu="20", memory="16Gi")
    await world.look()
    hard(world, requests_cpu="10", memory="16Gi")
    await world.look()
    assert len(above_hard(world)) == 1


async def test_resource_quota_of_another_namespace_or_with_a_scope_is_not_reported(world: World) -> None:
    world.put(QUOTA, quota(max={"cpu": 20}))
    hard(world, namespace="team-b", cpu="1")
    hard(world, scopes=["BestEffort"], cpu="1")
    await world.look()
    assert above_hard(world) == []


async def test_min_of_the_root_of_a_quota_tree_is_compared_too(world: World) -> None:
    root = {"name": "root", "min": {"cpu": 9}, "children": [{"name": "a", "min": {"cpu": 9}}]}
    world.put(QUOTA_TREE, quota_tree(root))
    await world.look()
    assert [about for about, _ in oversold(world)] == ["ElasticQuotaTree/tree"]


async def test_guarantees_above_the_cluster_are_reported_to_a_queue_that_claims_too_much(world: World) -> None:
    world.put(VOLCANO_QUEUE, queue("modest", uid="u-m", guarantee={"resource": {"cpu": 2}}))
    await world.look()
    world.put(VOLCANO_QUEUE, queue("typo", uid="u-t", created=EPOCH + 1, guarantee={"resource": {"cpu": 1000}}))
    await world.look()
    told = [(about, note) for about, reason, note in world.recorded.events if reason == "GuaranteesExceedCapacity"]
    ((about, note),) = told
    assert about == "Queue/typo"
    assert "cpu 1002 of 8" in note


# Queues without a valid parent


async def test_missing_parent_is_reported_once_to_its_child_and_not_further_below(world: World) -> None:
    world.put(VOLCANO_QUEUE, queue("orphan", uid="u-o", parent="nowhere"))
    world.put(VOLCANO_QUEUE, queue("child", uid="u-c", parent="orphan"))
    await world.look()
    world.pod("p")
    await world.look()
    told = [(about, reason) for about, reason, _ in world.recorded.events if reason == "ParentNotFound"]
    assert told == [("Queue/orphan", "ParentNotFound")]


async def test_every_queue_of_a_cycle_gets_a_report(world: World) -> None:
    world.put(VOLCANO_QUEUE, queue("one", uid="u-1", parent="two"))
    world.put(VOLCANO_QUEUE, queue("two", uid="u-2", parent="one"))
    await world.look()
    told = sorted(about for about, reason, _ in world.recorded.events if reason == "ParentCycle")
    assert told == ["Queue/one", "Queue/two"]


# Volcano's own queues


class Served:
    """Substitute for an Observer."""

    def __init__(self) -> None:
        self.queues = False

    def knows_all(self, group: str, plural: str) -> bool:
        assert (group, plural) == ("scheduling.volcano.sh", "queues")
        return self.queues


async def created(world: World, queues: BuiltinQueues) -> list[str]:
    world.api.created.clear()
    queues.check()
    async with asyncio.timeout(5):
        await world.pool.drained()
    return world.api.created


async def test_queues_default_and_root_are_created_once_where_volcanos_kind_is_served(world: World) -> None:
    served = Served()
    queues = BuiltinQueues(world.api.client(), world.pool, cast(CustomKinds, served), world.intake)
    assert await created(world, queues) == []
    served.queues = True
    assert sorted(await created(world, queues)) == ["default", "root"]
    assert await created(world, queues) == []


@pytest.mark.parametrize("fields", [("weight",), (), None], ids=["without-parent", "empty", "unreadable"])
async def test_queue_root_is_not_created_where_the_served_schema_has_no_parent(
    world: World, fields: tuple[str, ...] | None
) -> None:
    served = Served()
    served.queues = True
    world.api.queue_fields = fields
    queues = BuiltinQueues(world.api.client(), world.pool, cast(CustomKinds, served), world.intake)
    assert await created(world, queues) == ["default"]


async def test_existing_queue_is_not_created(world: World) -> None:
    served = Served()
    served.queues = True
    world.put(VOLCANO_QUEUE, queue("default"))
    queues = BuiltinQueues(world.api.client(), world.pool, cast(CustomKinds, served), world.intake)
    assert await created(world, queues) == ["root"]


async def test_guarantees_above_the_capability_of_their_parent_are_reported_to_the_youngest(world: World) -> None:
    world.put(VOLCANO_QUEUE, queue("org", capability={"cpu": "10"}))
    below = {"parent": "org", "guarantee": {"resource": {"cpu": "2"}}}
    world.put(VOLCANO_QUEUE, queue("a", **below))
    await world.look()
    world.recorded.events.clear()
    below = {"parent": "org", "guarantee": {"resource": {"cpu": "9"}}}
    world.put(VOLCANO_QUEUE, queue("b", created=EPOCH + 1, **below))
    await world.look()
    notes = [
        (about, note)
        for about, reason, note in world.recorded.events
        if reason == "GuaranteesExceedCapacity" and "below queue org" in note.lower()
    ]
    ((about, note),) = notes
    assert about == "Queue/b"
    assert "exceed its capability: cpu 11 of 10; lower some, or raise that" in note
