"""The allocator of claimed devices: who has which, from the API and from our own plans, and how many more fit
where."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from phalanx.cluster.devices.claims import DeviceClaims
from phalanx.cluster.state import ClusterState
from phalanx.dialects.core import decode_namespace, decode_node, decode_pod
from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind
from phalanx.model.account import Account, AccountKey, Tree
from phalanx.model.decisions import Bind, Plan
from phalanx.model.devices.claims import AllocateClaim
from phalanx.model.events import AccountUpdated
from phalanx.scheduling.policy.loader import load_policy
from phalanx.scheduling.scheduler import Scheduler

Wire = dict[str, Any]

DRIVER = "gpu.example.com"
KINDS = {
    kind: ServedKind("resource.k8s.io", "v1", plural, kind)
    for kind, plural in (
        ("DeviceClass", "deviceclasses"),
        ("ResourceSlice", "resourceslices"),
        ("ResourceClaim", "resourceclaims"),
    )
}


class Desk:
    """A scheduler that is told objects as the API serves them."""

    def __init__(self, policy: str = "") -> None:
        self.intake = Intake(["phalanx"])
        self.state = ClusterState()
        self.scheduler = Scheduler(self.state, load_policy(policy) if policy else load_policy())
        self.now = 1_000_000.0

    @property
    def allocator(self) -> DeviceClaims:
        found = self.state.nodes.allocators["claims"]
        assert isinstance(found, DeviceClaims)
        return found

    def plan(self) -> Plan:
        self.now += 1
        return self.scheduler.cycle(self.now)

    def binds(self) -> dict[str, str]:
        return {bind.name: bind.node for bind in self.plan().binds}

    def why(self, name: str) -> str:
        """What was said last about a pod or its gang."""
        record = next(record for record in self.state.pods.values() if record.pod.name == name)
        if (
            record.gang is not None
            and record.gang.last_verdict is not None
            and record.gang.last_verdict[0] is not None
        ):
            return record.gang.last_verdict[0].message
        return record.last_verdict.message if record.last_verdict else ""

    def put(self, kind: str, document: Wire) -> None:
        raw = json.loads(json.dumps(document))
        self._apply(self.intake.apply(self.intake.enrichers.updated(KINDS[kind], raw)))

    def drop(self, kind: str, name: str) -> None:
        namespace = "default" if kind == "ResourceClaim" else ""
        self._apply(self.intake.apply(self.intake.enrichers.removed(KINDS[kind], namespace, name)))

    def node(
        self, name: str, count: int = 0, generation: int = 1, offers: Wire | None = None, **labels: str
    ) -> None:
        """A node and, if there are any, its devices."""
        status = {"allocatable": {"cpu": "64", "memory": "64Gi", "pods": "110", **(offers or {})}}
        document = {"metadata": {"name": name, "uid": name, "labels": labels}, "spec": {}, "status": status}
        self._apply(self.intake.node(decode_node(json.dumps(document).encode())))
        if count:
            self.slice(name, count, generation)

    def slice(self, node: str, count: int, generation: int = 1) -> None:
        devices = [
            {"name": f"gpu-{at}", "attributes": {"serial": {"string": f"{node}/{at}"}}} for at in range(count)
        ]
        spec = {
            "driver": DRIVER,
            "nodeName": node,
            "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
            "devices": devices,
        }
        self.put("ResourceSlice", {"metadata": {"name": node}, "spec": spec})

    def device_class(self, name: str = "gpu") -> None:
        selector = {"cel": {"expression": f'device.driver == "{DRIVER}"'}}
        self.put("DeviceClass", {"metadata": {"name": name}, "spec": {"selectors": [selector]}})

    def claim(
        self,
        name: str,
        owner: str = "",
        held: str = "",
        by: tuple[str, ...] = (),
        extended: bool = False,
        **exactly: Any,
    ) -> None:
        """A claim of one GPU; `held` is node/device, `by` the pods for which it is reserved."""
        metadata: Wire = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
        if extended:
            metadata["annotations"] = {"resource.kubernetes.io/extended-resource-claim": "true"}
        if owner:
            reference = {
                "apiVersion": "v1",
                "kind": "Pod",
                "name": owner,
                "uid": f"uid-{owner}",
                "controller": True,
            }
            metadata["ownerReferences"] = [reference]
        asked = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1, **exactly}
        document: Wire = {
            "metadata": metadata,
            "spec": {"devices": {"requests": [{"name": "gpu", "exactly": asked}]}},
        }
        if held:
            node, device = held.split("/")
            field = {"key": "metadata.name", "operator": "In", "values": [node]}
            result = {"request": "gpu", "driver": DRIVER, "pool": node, "device": device}
            document["status"] = {
                "allocation": {
                    "devices": {"results": [result]},
                    "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
                },
                "reservedFor": [{"resource": "pods", "name": pod, "uid": f"uid-{pod}"} for pod in by],
            }
        self.put("ResourceClaim", document)

    def pod(self, name: str, claim: str = "", *, shared: str = "", gang: int = 0, **more: Any) -> None:
        """A pod with a claim of its own (made from a template) or with one that it shares."""
        prefix = "pod-group.scheduling.sigs.k8s.io"
        labels = {f"{prefix}/name": "g", f"{prefix}/min-available": str(gang)} if gang else {}
        entry = {"name": "gpu", "resourceClaimName": shared} if shared else {"name": "gpu"}
        if not shared:
            entry["resourceClaimTemplateName"] = "one-gpu"
        status = {"phase": more.pop("phase", "Pending")}
        if claim:
            status["resourceClaimStatuses"] = [{"name": "gpu", "resourceClaimName": claim}]
        document = {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}", "labels": labels},
            "spec": {
                "schedulerName": "phalanx",
                "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
                "resourceClaims": [entry],
                **more,
            },
            "status": status,
        }
        self._apply(self.intake.pod(decode_pod(json.dumps(document).encode())))

    def own(self, name: str, **more: Any) -> None:
        """A pod and the claim that was made for it."""
        self.claim(f"{name}-gpu", owner=name)
        self.pod(name, f"{name}-gpu", **more)

    def gone(self, name: str) -> None:
        self._apply(self.intake.pod_removed("default", name, f"uid-{name}"))

    def namespace(self, **labels: str) -> None:
        document = {"metadata": {"name": "default", "labels": labels}}
        self._apply(self.intake.namespace(decode_namespace(json.dumps(document).encode())))

    def confirm(self, bind: Bind) -> None:
        """What the API shows when a pod has been bound."""
        (preparation,) = bind.preparations
        results = json.loads(preparation.allocation)["devices"]["results"]  # type: ignore[attr-defined]
        self.claim(f"{bind.name}-gpu", bind.name, f"{bind.node}/{results[0]['device']}", (bind.name,))
        self.pod(bind.name, f"{bind.name}-gpu", nodeName=bind.node)

    def free(self) -> dict[str, int]:
        """node -> how many more pods with a claim of one device each it takes."""
        nodes = self.state.nodes
        probe = next(record.pod_class for record in self.state.pods.values() if record.pod.name == "probe")
        counts = self.allocator.copies(probe.spec, slice(None))
        return {nodes.names[row]: int(counts[row]) for row in nodes.rows().tolist()}

    def _apply(self, events: Any) -> None:
        for event in events:
            self.state.apply(event)


def desk(*nodes: int) -> Desk:
    """Nodes n0, n1, ... with so many devices; a pod that waits in vain for its priority shows what is free."""
    made = Desk()
    made.device_class()
    for number, count in enumerate(nodes):
        made.node(f"n{number}", count)
    return made


def probe(made: Desk) -> None:
    """A pod of another scheduler: it only shows what one like it could get."""
    made.own("probe", schedulerName="other")


def test_pods_from_one_template_are_one_class() -> None:
    made = desk(2)
    made.own("a")
    made.own("b")
    assert len({id(record.pod_class) for record in made.state.pods.values()}) == 1


def test_a_device_that_was_given_is_in_use_before_the_api_shows_it() -> None:
    made = desk(1)
    made.own("a")
    assert made.binds() == {"a": "n0"}
    made.own("b")
    assert made.binds() == {}
    assert "cannot allocate all claims" in made.why("b")


def test_a_binding_that_fails_gives_its_device_back() -> None:
    made = desk(1)
    made.own("a")
    assert made.binds() == {"a": "n0"}
    made.state.pods.binding_failed("uid-a")
    assert made.binds() == {"a": "n0"}


def test_allocated_devices_are_in_use_whoever_has_them() -> None:
    made = desk(1)
    made.claim("foreign", held="n0/gpu-0", by=("unknown",))
    made.own("a")
    assert made.binds() == {}
    made.claim("foreign")
    assert made.binds() == {"a": "n0"}


def test_a_device_stays_in_use_until_the_api_says_otherwise() -> None:
    """The pod is gone; its claim is not free before the controller has freed it."""
    made = desk(1)
    made.own("a")
    (bind,) = made.plan().binds
    made.confirm(bind)
    made.gone("a")
    made.own("b")
    assert made.binds() == {}
    made.drop("ResourceClaim", "a-gpu")
    assert made.binds() == {"b": "n0"}


def test_a_pod_that_is_tried_elsewhere_leaves_its_device_to_others_for_that_time() -> None:
    made = desk(1)
    made.own("a")
    (bind,) = made.plan().binds
    made.confirm(bind)
    probe(made)
    transaction = made.state.transaction()
    assert made.free() == {"n0": 0}
    transaction.remove([made.state.pods["uid-a"]])
    assert made.free() == {"n0": 1}
    transaction.rollback()
    assert made.free() == {"n0": 0}


def test_nobody_else_is_evicted_while_the_devices_of_the_first_victim_are_not_free_yet() -> None:
    made = desk(1, 1)
    for name in ("low-0", "low-1"):
        made.own(name, priority=0)
        (bind,) = made.plan().binds
        made.confirm(bind)
    made.own("high", priority=10)
    (eviction,) = made.plan().evictions
    made.gone(eviction.name)
    for _ in range(3):
        plan = made.plan()
        assert not plan.evictions
        assert not plan.binds
        assert not plan.nominations
    assert "waits for 1 evicted pod to terminate" in made.why("high")
    made.drop("ResourceClaim", f"{eviction.name}-gpu")
    assert [(bind.name, bind.node) for bind in made.plan().binds] == [("high", eviction.node)]


def test_a_more_important_pod_takes_the_place_of_one_that_has_a_device() -> None:
    made = desk(1)
    made.own("low", priority=0)
    (bind,) = made.plan().binds
    made.confirm(bind)
    made.own("high", priority=10)
    plan = made.plan()
    assert [eviction.name for eviction in plan.evictions] == ["low"]
    assert [(nomination.name, nomination.node) for nomination in plan.nominations] == [("high", "n0")]
    made.gone("low")
    made.drop("ResourceClaim", "low-gpu")
    assert made.binds() == {"high": "n0"}


def test_a_plan_that_is_rolled_back_leaves_nothing_behind() -> None:
    made = desk(2, 1)
    for name in "abcd":
        made.own(name, gang=4)
    assert made.binds() == {}
    assert "only 3 of the 4 required pods" in made.why("a")
    probe(made)
    assert made.free() == {"n0": 2, "n1": 1}


def test_the_first_pod_of_a_shared_claim_decides_for_the_others() -> None:
    made = desk(1, 1)
    made.claim("shared")
    made.pod("a", shared="shared", gang=2)
    made.pod("b", shared="shared", gang=2)
    plan = made.plan()
    assert len({bind.node for bind in plan.binds}) == 1
    documents = {preparation.allocation for bind in plan.binds for preparation in bind.preparations}  # type: ignore[attr-defined]
    assert len(documents) == 1


def test_a_claim_that_is_allocated_decides_where_its_pod_can_be() -> None:
    """As after a restart between the allocation and the binding."""
    made = desk(1, 1, 1)
    made.claim("a-gpu", owner="a", held="n2/gpu-0", by=("a",))
    made.pod("a", "a-gpu")
    (bind,) = made.plan().binds
    assert bind.node == "n2"
    assert bind.preparations == ()


def test_a_claim_takes_256_consumers() -> None:
    made = desk(1)
    others = tuple(f"other-{number}" for number in range(255))
    made.claim("shared", held="n0/gpu-0", by=others)
    made.pod("a", shared="shared")
    made.pod("b", shared="shared")
    assert len(made.binds()) == 1
    made.claim("shared", held="n0/gpu-0", by=(*others, "a"))
    assert made.binds() == {}
    assert "resourceclaim in use" in made.why("b")


def test_what_is_missing_is_named_and_waited_for() -> None:
    made = Desk()
    made.node("n0", 1)
    made.pod("a")
    made.plan()
    assert "waiting for resource claim gpu of template one-gpu" in made.why("a")
    made.pod("a", "a-gpu")
    made.plan()
    assert "waiting for resource claim a-gpu" in made.why("a")
    made.claim("a-gpu", owner="somebody")
    made.plan()
    assert "resource claim a-gpu was not created for this pod" in made.why("a")
    made.claim("a-gpu", owner="a")
    made.plan()
    assert "request gpu: device class gpu does not exist" in made.why("a")
    made.device_class()
    assert made.binds() == {"a": "n0"}


def test_administrators_need_a_namespace_that_allows_it() -> None:
    made = desk(1)
    made.claim("busy", held="n0/gpu-0", by=("x",))
    made.claim("a-gpu", owner="a", adminAccess=True)
    made.pod("a", "a-gpu")
    assert made.binds() == {}
    assert "admin access needs a namespace labelled" in made.why("a")
    made.namespace(**{"resource.kubernetes.io/admin-access": "true"})
    assert made.binds() == {"a": "n0"}


def test_a_policy_may_switch_claims_off() -> None:
    made = Desk(
        "actions: allocate\ntiers:\n- plugins:\n  - name: predicates\n    arguments:\n"
        "      predicate.DynamicResourceAllocationEnable: false\n"
    )
    made.device_class()
    made.node("n0", 1)
    made.own("a")
    assert made.binds() == {}
    assert "predicate.DynamicResourceAllocationEnable" in made.why("a")


def test_equal_nodes_share_one_answer() -> None:
    """A thousand nodes whose devices differ by their serial numbers only."""
    made = desk(*[4] * 1000)
    probe(made)
    made.claim("busy", held="n7/gpu-1", by=("x",))
    assert sum(made.free().values()) == 3999
    (inquiry,) = made.allocator._inquiries.values()
    assert len(inquiry._answers) == 2


def test_shared_devices_of_the_network_are_given_once() -> None:
    made = desk(0, 0)
    devices = [{"name": "fpga-0"}, {"name": "fpga-1"}]
    pool = {"name": "fabric", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "allNodes": True, "pool": pool, "devices": devices}
    made.put("ResourceSlice", {"metadata": {"name": "fabric"}, "spec": spec})
    for name in "abc":
        made.own(name)
    assert sorted(made.binds()) == ["a", "b"]
    assert "cannot allocate all claims" in made.why("c")


def test_a_node_that_serves_the_first_alternative_is_preferred() -> None:
    """Although it is the fuller one; the next pods take what is left of each list."""
    made = desk(2, 1)
    made.device_class("any")
    first, second = (
        {"name": name, "deviceClassName": "gpu", "count": count} for name, count in (("two", 2), ("one", 1))
    )
    document: Wire = {"spec": {"devices": {"requests": [{"name": "gpu", "firstAvailable": [first, second]}]}}}
    for name in ("a", "b", "c"):
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": f"uid-{name}", "controller": True}
        metadata = {
            "name": f"{name}-gpu",
            "namespace": "default",
            "uid": f"uid-{name}-gpu",
            "ownerReferences": [owner],
        }
        made.put("ResourceClaim", {**document, "metadata": metadata})
    made.pod(
        "busy",
        containers=[{"name": "c", "resources": {"requests": {"cpu": "16"}}}],
        nodeName="n0",
        resourceClaims=[],
    )
    for name in ("a", "b", "c"):
        made.pod(name, f"{name}-gpu")
    assert made.binds() == {"a": "n0", "b": "n1"}


def test_an_expression_that_fails_for_one_device_keeps_the_pod_from_every_node() -> None:
    """As in kube-scheduler: were it placed where it happens to work, nobody would see that something is wrong."""
    made = desk(1)
    made.node("odd")
    spec = {
        "driver": DRIVER,
        "nodeName": "odd",
        "pool": {"name": "odd", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "gpu-0"}],
    }
    made.put("ResourceSlice", {"metadata": {"name": "odd"}, "spec": spec})
    selector = {"cel": {"expression": f'device.attributes["{DRIVER}"].serial != ""'}}
    made.claim("a-gpu", owner="a", selectors=[selector])
    made.pod("a", "a-gpu")
    assert made.binds() == {}
    assert "request gpu: selector #0: CEL runtime error: " in made.why("a")
    made.drop("ResourceSlice", "odd")
    assert made.binds() == {"a": "n0"}


EXTENDED, IMPLICIT = "example.com/gpu", "deviceclass.resource.kubernetes.io/gpu"


def extended_desk(*counts: int) -> Desk:
    made = desk(*counts)
    made.put("DeviceClass", {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": EXTENDED}})
    return made


def ask_for(made: Desk, name: str, resource: str = EXTENDED, amount: int = 1, **spec: Any) -> None:
    containers = [{"name": "c", "resources": {"requests": {resource: str(amount)}}}]
    made.pod(name, containers=containers, resourceClaims=[], **spec)


class TestExtendedResources:
    """A device class stands for an amount, by the name that it states or by its own."""

    @pytest.mark.parametrize("resource", [EXTENDED, IMPLICIT])
    def test_devices_are_allocated_by_a_claim_that_the_scheduler_makes(self, resource: str) -> None:
        made = extended_desk(0, 1)
        ask_for(made, "a", resource)
        (bind,) = made.plan().binds
        assert bind.node == "n1"
        (preparation,) = bind.preparations
        assert isinstance(preparation, AllocateClaim)
        asked = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
        assert json.loads(preparation.create) == {
            "devices": {"requests": [{"name": "container-0-request-0", "exactly": asked}]}
        }
        assert json.loads(preparation.mappings) == [
            {"containerName": "c", "resourceName": resource, "requestName": "container-0-request-0"}
        ]
        (result,) = json.loads(preparation.allocation)["devices"]["results"]
        assert (result["request"], result["pool"]) == ("container-0-request-0", "n1")

    def test_a_node_that_offers_the_amount_itself_needs_no_claim(self) -> None:
        made = extended_desk(0)
        made.node("plugin", offers={EXTENDED: "2"})
        ask_for(made, "a")
        ask_for(made, "b")
        ask_for(made, "c")
        binds = made.plan().binds
        assert [(bind.node, bind.preparations) for bind in binds] == [("plugin", ())] * 2
        assert (
            made.why("c")
            == "0/2 nodes are available: 1 Insufficient example.com/gpu, 1 cannot allocate all claims."
        )

    def test_what_a_bound_pod_takes_of_the_amount_is_not_offered_again(self) -> None:
        made = extended_desk()
        made.node("plugin", offers={EXTENDED: "2"})
        ask_for(made, "a", amount=2, nodeName="plugin")
        ask_for(made, "b")
        assert made.binds() == {}

    def test_the_devices_of_pods_that_are_on_their_way_are_not_offered_again(self) -> None:
        made = extended_desk(1, 1)
        for name in "abc":
            ask_for(made, name)
        assert sorted(made.binds().values()) == ["n0", "n1"]
        assert "cannot allocate all claims" in made.why("c")

    def test_a_class_that_comes_or_goes_is_noticed(self) -> None:
        made = desk(1)
        ask_for(made, "a")
        assert made.binds() == {}
        made.put("DeviceClass", {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": EXTENDED}})
        made.drop("DeviceClass", "gpu")
        assert made.binds() == {}
        made.put("DeviceClass", {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": EXTENDED}})
        assert made.binds() == {"a": "n0"}

    @pytest.mark.parametrize("name", ["deviceclass/gpu", EXTENDED])
    def test_queues_count_them_as_devices_of_the_class_and_by_their_own_name(self, name: str) -> None:
        made = extended_desk(4)
        queue = Account(AccountKey(Tree.QUEUE, "default"), label="queue default", capability=((name, 1),))
        made._apply([AccountUpdated(queue)])
        ask_for(made, "a")
        ask_for(made, "b")
        assert made.binds() == {"a": "n0"}
        assert made.why("b") == f"queue default: 1 {name} in use, capability 1; 1 more would exceed it"

    def test_what_was_allocated_before_a_restart_says_where_the_pod_goes(self) -> None:
        made = extended_desk(1, 1)
        made.claim("a-extended-resources-x", owner="a", held="n1/gpu-0", by=("a",), extended=True)
        ask_for(made, "a")
        (bind,) = made.plan().binds
        assert (bind.node, bind.preparations) == ("n1", ())


class TestAccounts:
    """Claims are charged to the queue of those for whom they were made."""

    def capped(self, devices: int) -> Desk:
        made = desk(8)
        limit = (("deviceclass/gpu", devices),)
        made._apply([AccountUpdated(Account(AccountKey(Tree.QUEUE, "default"), capability=limit))])
        return made

    def test_a_claim_of_its_own_counts_for_each_pod(self) -> None:
        made = self.capped(2)
        for name in "abc":
            made.own(name)
        assert len(made.binds()) == 2

    def test_a_claim_that_several_pods_share_counts_once(self) -> None:
        made = self.capped(1)
        made.claim("shared")
        for name in "abc":
            made.pod(name, resourceClaims=[{"name": "gpu", "resourceClaimName": "shared"}])
        assert len(made.binds()) == 3


# kept current, or computed anew

STEPS = st.lists(
    st.tuples(
        st.sampled_from(
            ["allocate", "free", "drop", "slice", "renew", "unslice", "node", "unnode", "class", "unclass"]
        ),
        st.integers(0, 3),
        st.integers(0, 2),
    ),
    max_size=25,
)


@pytest.mark.slow
@pytest.mark.thorough
@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_counts_that_are_kept_current_are_those_that_are_computed_anew(steps: list[tuple[str, int, int]]) -> None:
    made = desk(2, 1)
    probe(made)
    history: list[tuple[str, int, int]] = []
    for step in steps:
        _play(made, step)
        history.append(step)
        made.free()
    again = desk(2, 1)
    probe(again)
    for step in history:
        _play(again, step)
    assert made.free() == again.free()
    for name, row in ((name, made.state.nodes.row(name)) for name in made.free()):
        rows = np.array([row], dtype=np.intp)
        cls = made.state.pods["uid-probe"].pod_class
        made.allocator._inquiries.clear()
        assert int(made.allocator.copies(cls.spec, rows)[0]) == again.free()[name]


def _play(made: Desk, step: tuple[str, int, int]) -> None:
    action, where, which = step
    node, claim = f"n{where}", f"c{which}"
    match action:
        case "allocate":
            made.claim(claim, held=f"{node}/gpu-{which}", by=("x",))
        case "free":
            made.claim(claim)
        case "drop":
            made.drop("ResourceClaim", claim)
        case "slice":
            made.slice(node, which)
        case "renew":
            made.slice(node, which + 1, generation=2)
        case "unslice":
            made.drop("ResourceSlice", node)
        case "node":
            made.node(node)
        case "unnode":
            made._apply(made.intake.node_removed(node))
        case "class":
            made.device_class()
        case "unclass":
            made.drop("DeviceClass", "gpu")
