"""Many pods on the nodes of one agent: admission, restarts, unconfirmed pods, drains, and status writes."""

from __future__ import annotations

from typing import Any

import msgspec

from phalanx_local.nodeagent.addresses import AddressPool
from phalanx_local.nodeagent.core_v1 import V1Pod
from phalanx_local.nodeagent.kubelet_node import NodeOffer
from phalanx_local.nodeagent.pod_runtime.containers import RestartBackoff
from phalanx_local.nodeagent.pod_runtime.images import ALL_IMAGES, Images
from phalanx_local.nodeagent.pod_runtime.lifecycle import Command, PodLifecycle
from phalanx_local.nodeagent.pod_runtime.script import ScriptDefaults
from phalanx_local.nodeagent.pod_workers import DeleteWrite, PodWorkers, StatusWrite

from .pods import container, manifest

T0 = 1_900_000_000.0
OFFER = {"cpu": 4000, "memory": 2**30, "pods": 5, "nvidia.com/gpu": 4}


class Cluster:
    """A pod set with an API that takes every write at once and shows it back, on a virtual clock."""

    def __init__(
        self, *nodes: str, synced: bool = True, offer: dict[str, int] = OFFER, images: Images = ALL_IMAGES
    ) -> None:
        self.now = T0
        self.queue: dict[str, None] = {}
        self.unconfirmed: dict[str, None] = {}
        self.objects: dict[str, dict[str, Any]] = {}
        self.history: list[tuple[str, str]] = []
        self.offer = offer
        self.labels: dict[str, str] = {}
        self.forgotten: list[str] = []
        self.claimants: list[str] = []
        self.set = PodWorkers(
            self,
            defaults=ScriptDefaults(),
            backoff=RestartBackoff(),
            addresses=AddressPool("10.9.0.0/24"),
            host_ip="127.0.0.1",
            images=images,
        )
        for node in nodes:
            self.set.add_node(node, NodeOffer(offer), self.now)
        if synced:
            self.set.synced(self.now)

    # Outside

    def write(self, uid: str) -> None:
        self.queue[uid] = None

    def wake(self) -> None:
        """The tests ask for the next moment themselves."""

    def confirm(self, node: str) -> None:
        self.unconfirmed[node] = None

    def command(self, life: PodLifecycle, command: Command) -> None:
        raise AssertionError(f"a pretended pod has nothing to command: {command}")

    def ended(self, life: PodLifecycle) -> None:
        assert life.finished

    def forget(self, life: PodLifecycle) -> None:
        self.forgotten.append(life.uid)

    def rejected(self, life: PodLifecycle) -> None:
        assert life.rejection is not None

    def prepare(self, life: PodLifecycle) -> None:
        self.claimants.append(life.uid)

    # The API

    def apply(self, body: dict[str, Any]) -> None:
        uid = body["metadata"]["uid"]
        self.objects[uid] = body
        self.show(uid)

    def show(self, uid: str) -> None:
        raw = msgspec.json.encode(self.objects[uid])
        self.set.upsert(msgspec.json.decode(raw, type=V1Pod), self.now)

    def create(self, name: str, **fields: Any) -> str:
        body = manifest(name, **fields)
        self.apply(body)
        return str(body["metadata"]["uid"])

    def delete(self, uid: str, grace: int = 30) -> None:
        metadata = self.objects[uid]["metadata"]
        metadata |= {"deletionTimestamp": "2030-03-17T18:00:00Z", "deletionGracePeriodSeconds": grace}
        self.show(uid)

    def vanish(self, uid: str) -> None:
        del self.objects[uid]
        self.set.remove(uid)

    def flush(self) -> None:
        while self.queue:
            uid = next(iter(self.queue))
            del self.queue[uid]
            write = self.set.next_write(uid, self.now)
            if isinstance(write, StatusWrite):
                self.objects[uid]["status"] |= write.body["status"]
                self.history.append((uid, write.body["status"]["phase"]))
                self.show(uid)
            elif isinstance(write, DeleteWrite):
                self.history.append((uid, "deleted"))
                del self.objects[uid]
            if write is not None:
                self.set.wrote(uid, write)
                self.queue[uid] = None
            if isinstance(write, DeleteWrite):
                self.set.remove(uid)

    def ask(self) -> None:
        """Answer the unconfirmed from the API's objects."""
        for node in list(self.unconfirmed):
            del self.unconfirmed[node]
            query = self.set.query_node(node)
            present = [uid for uid, body in self.objects.items() if body["spec"]["nodeName"] == node]
            self.set.confirm_admission(query, NodeOffer(self.offer, self.labels), present, self.now)

    def settle(self) -> Cluster:
        while self.queue or self.unconfirmed:
            self.ask()
            self.flush()
        return self

    def run(self, seconds: float) -> Cluster:
        self.settle()
        end = self.now + seconds
        while (at := self.set.next_due()) is not None and at <= end:
            self.now = at
            self.set.advance(at)
            self.settle()
        self.now = end
        return self

    def phase(self, uid: str) -> str:
        return str(self.objects[uid]["status"]["phase"])


def wants(**requests: str) -> list[dict[str, Any]]:
    named = {name.replace("gpu", "nvidia.com/gpu"): amount for name, amount in requests.items()}
    return [container(resources={"requests": named})]


def test_a_pod_costs_two_writes_from_its_binding_to_its_end() -> None:
    cluster = Cluster("n0")
    uid = cluster.create("a", notes={"run-seconds": "5"})
    cluster.run(60)
    assert cluster.history == [(uid, "Running"), (uid, "Succeeded")]


def test_a_steady_cluster_writes_nothing() -> None:
    cluster = Cluster("n0")
    uids = [cluster.create(f"p{i}", policy="Always") for i in range(5)]
    cluster.run(10)
    before = list(cluster.history)
    for uid in uids:
        cluster.show(uid)
    cluster.run(100_000)
    assert cluster.history == before


def test_pod_that_does_not_fit_fails_and_one_that_fits_runs() -> None:
    cluster = Cluster("n0", "n1")
    first = cluster.create("a", containers=wants(gpu="3"))
    second = cluster.create("b", containers=wants(gpu="2"))
    elsewhere = cluster.create("c", containers=wants(gpu="2"), node="n1")
    cluster.settle()
    assert [cluster.phase(uid) for uid in (first, second, elsewhere)] == ["Running", "Failed", "Running"]
    assert cluster.objects[second]["status"]["reason"] == "OutOfnvidia.com/gpu"


def test_room_of_an_ended_pod_is_free_once_its_end_is_published() -> None:
    cluster = Cluster("n0")
    cluster.create("a", containers=wants(gpu="4"), notes={"run-seconds": "5"})
    cluster.run(6)
    assert cluster.phase(cluster.create("b", containers=wants(gpu="4"))) == "Pending"
    cluster.settle()
    assert cluster.phase("uid-b") == "Running"


def test_a_terminating_pod_keeps_its_room_until_it_has_ended() -> None:
    cluster = Cluster("n0")
    old = cluster.create("a", containers=wants(gpu="4"), notes={"terminate-seconds": "9"})
    cluster.settle()
    cluster.delete(old)
    early = cluster.create("b", containers=wants(gpu="4"))
    cluster.run(5)
    assert cluster.phase(early) == "Failed"
    cluster.run(5)
    late = cluster.create("c", containers=wants(gpu="4"))
    cluster.run(1)
    assert cluster.phase(late) == "Running"
    assert old not in cluster.objects


def test_deletion_publishes_the_end_before_the_pod_is_removed() -> None:
    cluster = Cluster("n0")
    uid = cluster.create("a")
    cluster.run(3)
    cluster.delete(uid)
    cluster.run(3)
    assert cluster.history == [(uid, "Running"), (uid, "Failed"), (uid, "deleted")]


def test_a_pod_deleted_before_it_started_is_deleted_without_a_word() -> None:
    cluster = Cluster("n0")
    uid = cluster.create("a", notes={"start-seconds": "0.5"})
    cluster.delete(uid)
    cluster.run(3)
    assert cluster.history == [(uid, "deleted")]


def test_a_finished_pod_that_waits_for_its_deletion_is_deleted() -> None:
    cluster = Cluster("n0")
    body = manifest("a")
    body["status"] = {"phase": "Succeeded", "startTime": "2030-03-17T17:00:00Z"}
    body["metadata"]["deletionTimestamp"] = "2030-03-17T18:00:00Z"
    cluster.apply(body)
    cluster.settle()
    assert cluster.history == [("uid-a", "deleted")]


def test_stale_news_of_a_finished_pod_does_not_revive_it() -> None:
    cluster = Cluster("n0")
    uid = cluster.create("a", notes={"run-seconds": "5"})
    cluster.run(3)
    running = msgspec.json.decode(msgspec.json.encode(cluster.objects[uid]))
    cluster.now += 10
    cluster.set.advance(cluster.now)
    raw = msgspec.json.encode(running)
    cluster.set.upsert(msgspec.json.decode(raw, type=V1Pod), cluster.now)
    cluster.run(100)
    assert cluster.history == [(uid, "Running"), (uid, "Succeeded")]


def test_pods_that_ran_before_the_agent_came_are_counted_before_new_ones_are_admitted() -> None:
    first = Cluster("n0")
    first.create("z", containers=wants(gpu="4"))
    first.settle()
    second = Cluster("n0", synced=False)
    second.create("a", containers=wants(gpu="4"))
    second.apply(first.objects["uid-z"])
    second.set.synced(second.now)
    second.settle()
    assert second.phase("uid-a") == "Failed"
    assert second.history == [("uid-a", "Failed")]


def test_no_two_pods_share_an_address_even_over_a_restart() -> None:
    first = Cluster("n0", offer=OFFER | {"pods": 50})
    for i in range(20):
        first.create(f"p{i}")
    first.settle()
    second = Cluster("n0", synced=False, offer=OFFER | {"pods": 50})
    for body in first.objects.values():
        second.apply(body)
    second.set.synced(second.now)
    for i in range(20):
        second.create(f"q{i}")
    second.settle()
    assert len({body["status"]["podIP"] for body in second.objects.values()}) == 40


def test_a_pod_in_the_host_network_has_the_nodes_address() -> None:
    cluster = Cluster("n0")
    uid = cluster.create("a", hostNetwork=True)
    cluster.settle()
    assert cluster.objects[uid]["status"]["podIP"] == "127.0.0.1"


def test_an_annotation_that_cannot_be_followed_fails_its_pod_only() -> None:
    cluster = Cluster("n0")
    bad = cluster.create("a", notes={"run-seconds": "soon"}, containers=wants(gpu="4"))
    good = cluster.create("b", containers=wants(gpu="4"))
    cluster.settle()
    assert (cluster.phase(bad), cluster.phase(good)) == ("Failed", "Running")
    assert "phalanx.dev/run-seconds: 'soon'" in cluster.objects[bad]["status"]["message"]


# Doubts


def test_outdated_view_of_other_pods_rejects_no_pod() -> None:
    cluster = Cluster("n0")
    old = cluster.create("a", containers=wants(gpu="4"))
    cluster.settle()
    del cluster.objects[old]  # deleted by force; the watch has not reported it yet
    new = cluster.create("b", containers=wants(gpu="4"))
    cluster.settle()
    assert cluster.phase(new) == "Running"
    assert cluster.forgotten == [old]


def test_outdated_view_of_the_node_rejects_no_pod() -> None:
    cluster = Cluster("n0")
    cluster.offer = OFFER | {"nvidia.com/gpu": 8}  # grown; the watch of nodes lags behind that of pods
    uid = cluster.create("a", containers=wants(gpu="6"))
    cluster.settle()
    assert cluster.phase(uid) == "Running"


def test_pod_that_arrives_during_a_check_is_neither_lost_nor_forgotten() -> None:
    cluster = Cluster("n0")
    first = cluster.create("a", containers=wants(gpu="8"))
    query = cluster.set.query_node("n0")
    meanwhile = cluster.create("b", containers=wants(gpu="4"))
    too_late = cluster.create("c", containers=wants(gpu="1"))
    cluster.set.confirm_admission(query, NodeOffer(OFFER), [first], cluster.now)
    cluster.settle()
    phases = [cluster.phase(uid) for uid in (first, meanwhile, too_late)]
    assert phases == ["Failed", "Running", "Failed"]


def test_unconfirmed_pod_deleted_during_the_check_is_not_rejected() -> None:
    cluster = Cluster("n0")
    uid = cluster.create("a", containers=wants(gpu="8"))
    cluster.vanish(uid)
    cluster.settle()
    assert cluster.history == []


# Nodes that come and go


def test_pods_of_unmanaged_nodes_wait_and_are_started_when_the_node_is_added() -> None:
    cluster = Cluster()
    uid = cluster.create("a", node="late")
    cluster.settle()
    assert cluster.history == []
    assert cluster.set.add_node("late", NodeOffer(OFFER), cluster.now)
    assert not cluster.set.add_node("late", NodeOffer(OFFER), cluster.now)
    cluster.show(uid)
    cluster.settle()
    assert cluster.phase(uid) == "Running"


def test_the_pods_of_a_vanished_node_are_left_as_they_are() -> None:
    cluster = Cluster("n0", "n1")
    here, there = cluster.create("a"), cluster.create("b", node="n1")
    cluster.settle()
    cluster.set.remove_node("n0")
    cluster.delete(here)
    cluster.delete(there)
    cluster.run(5)
    assert here in cluster.objects
    assert there not in cluster.objects
    assert cluster.forgotten[0] == here


def test_a_drained_node_ends_its_pods_and_takes_no_more() -> None:
    cluster = Cluster("n0", "n1")
    here, there = cluster.create("a", policy="Always"), cluster.create("b", policy="Always", node="n1")
    cluster.settle()
    cluster.set.drain("n0", cluster.now)
    assert not cluster.set.drained("n0")
    late = cluster.create("c")
    cluster.run(1)
    assert [cluster.phase(uid) for uid in (here, there, late)] == ["Failed", "Running", "Failed"]
    assert cluster.objects[late]["status"]["reason"] == "NodeShutdown"
    assert cluster.set.drained("n0")


# Selectors and taints


def test_a_pod_is_refused_where_its_selector_does_not_match() -> None:
    cluster = Cluster("n0")
    cluster.create("a", nodeSelector={"zone": "a"})
    cluster.settle()
    assert cluster.objects["uid-a"]["status"]["reason"] == "NodeAffinity"


def test_labels_that_came_before_the_pod_but_were_seen_after_it_count() -> None:
    cluster = Cluster("n0")
    cluster.labels = {"zone": "a"}  # the watch of nodes lags behind that of pods
    uid = cluster.create("a", nodeSelector={"zone": "a"})
    cluster.settle()
    assert cluster.phase(uid) == "Running"


# In-place resize


class Resizing(Cluster):
    def __init__(self) -> None:
        super().__init__("n0")
        self.pod = self.create("a", policy="Always", containers=wants(cpu="2"))
        self.settle()

    def resize(self, cpu: str) -> None:
        resources = self.objects[self.pod]["spec"]["containers"][0]["resources"]
        resources["requests"] = {"cpu": cpu}
        self.show(self.pod)
        self.settle()

    @property
    def given(self) -> str:
        return str(self.objects[self.pod]["status"]["containerStatuses"][0]["allocatedResources"]["cpu"])

    @property
    def pending(self) -> str:
        conditions = self.objects[self.pod]["status"]["conditions"]
        return next((c["reason"] for c in conditions if c["type"] == "PodResizePending" and "status" in c), "")


def test_a_resize_that_fits_is_in_force_at_once() -> None:
    cluster = Resizing()
    cluster.resize("3")
    assert (cluster.given, cluster.pending) == ("3", "")
    assert cluster.set.node_info("n0").used("cpu") == 3000
    cluster.resize("1")
    assert (cluster.given, cluster.set.node_info("n0").used("cpu")) == ("1", 1000)


def test_a_resize_above_the_node_is_infeasible() -> None:
    cluster = Resizing()
    cluster.resize("5")
    assert (cluster.given, cluster.pending) == ("2", "Infeasible")
    assert cluster.set.node_info("n0").used("cpu") == 2000


def test_a_resize_without_room_waits_for_it() -> None:
    cluster = Resizing()
    cluster.create("b", containers=wants(cpu="2"), notes={"run-seconds": "5"})
    cluster.settle()
    cluster.resize("3")
    assert (cluster.given, cluster.pending) == ("2", "Deferred")
    cluster.run(10)
    assert (cluster.given, cluster.pending) == ("3", "")


def test_a_resize_that_is_taken_back_waits_no_longer() -> None:
    cluster = Resizing()
    cluster.create("b", containers=wants(cpu="2"), notes={"run-seconds": "5"})
    cluster.settle()
    cluster.resize("4")
    cluster.resize("2")
    assert (cluster.given, cluster.pending) == ("2", "")
    cluster.run(10)
    assert cluster.set.node_info("n0").used("cpu") == 2000


def test_restarted_agent_preserves_allocations_and_finishes_the_resize() -> None:
    first = Resizing()
    first.resize("5")
    second = Cluster("n0", synced=False)
    body = first.objects[first.pod]
    body["spec"]["containers"][0]["resources"]["requests"] = {"cpu": "4"}
    second.apply(body)
    second.set.synced(second.now)
    second.settle()
    assert second.objects[first.pod]["status"]["containerStatuses"][0]["allocatedResources"] == {"cpu": "4"}
    assert second.set.node_info("n0").used("cpu") == 4000


CLAIM = {"resourceClaims": [{"name": "gpu", "resourceClaimName": "one"}]}


def test_a_pod_with_claims_starts_when_they_are_prepared() -> None:
    cluster = Cluster("n0")
    uid = cluster.create("a", **CLAIM)
    cluster.settle()
    assert cluster.claimants == [uid]
    assert cluster.phase(uid) == "Pending"
    assert cluster.objects[uid]["status"].get("containerStatuses") is None  # no status to publish during the check
    assert cluster.set.unprepared(uid, cluster.now)
    cluster.settle()
    waiting = cluster.objects[uid]["status"]["containerStatuses"][0]["state"]["waiting"]
    assert waiting["reason"] == "ContainerCreating"
    assert not cluster.set.unprepared(uid, cluster.now)  # published once
    cluster.set.prepared(uid, cluster.now)
    cluster.settle()
    assert cluster.phase(uid) == "Running"


def test_a_pod_that_waits_for_its_claims_can_be_deleted() -> None:
    cluster = Cluster("n0")
    uid = cluster.create("a", **CLAIM)
    cluster.settle()
    cluster.delete(uid)
    cluster.run(1)
    assert uid not in cluster.objects


def test_claims_of_a_running_pod_are_not_checked_again() -> None:
    cluster = Cluster("n0")
    uid = cluster.create("a", **CLAIM)
    cluster.set.prepared(uid, cluster.now)
    cluster.settle()
    cluster.set.remove_node("n0")
    cluster.claimants.clear()
    cluster.set.add_node("n0", NodeOffer(OFFER), cluster.now)
    cluster.show(uid)
    assert cluster.claimants == []


def test_devices_of_a_claim_are_not_amounts_of_the_node() -> None:
    cluster = Cluster("n0", offer={"cpu": 4000, "memory": 2**30, "pods": 5})
    amounts = {"nvidia.com/gpu": "2"}
    containers = [container(resources={"requests": amounts, "limits": amounts})]
    body = manifest("a", containers=containers)
    mapping = {"containerName": "main", "resourceName": "nvidia.com/gpu", "requestName": "r0"}
    body["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": "made", "requestMappings": [mapping]}
    cluster.apply(body)
    uid = body["metadata"]["uid"]
    assert cluster.claimants == [uid]
    cluster.set.prepared(uid, cluster.now)
    cluster.settle()
    assert cluster.phase(uid) == "Running"


def test_missing_image_is_reported_in_the_words_of_a_kubelet() -> None:
    cluster = Cluster("n0", images=Images(("registry.invalid/*",)))
    uid = cluster.create("a", containers=[container(image="registry.invalid/x:1"), container("other")])

    def waiting() -> tuple[str, str]:
        state = cluster.objects[uid]["status"]["containerStatuses"][0]["state"]["waiting"]
        return state["reason"], state["message"]

    cluster.settle()
    assert waiting() == ("ErrImagePull", 'failed to pull image "registry.invalid/x:1": not found')
    cluster.run(10)
    reason, message = waiting()
    assert reason == "ImagePullBackOff"
    assert message.startswith('Back-off pulling image "registry.invalid/x:1": ErrImagePull: failed to pull')
    assert "running" in cluster.objects[uid]["status"]["containerStatuses"][1]["state"]
    assert cluster.phase(uid) == "Pending"
    assert cluster.set.next_due() is None  # nothing more is written about it
    cluster.delete(uid)
    cluster.run(1)
    assert uid not in cluster.objects
