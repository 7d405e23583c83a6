"""The allocator of claimed devices: users of each device, from the API and from our own plans, and remaining copies
per node.
"""

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
        ("DeviceTaintRule", "devicetaintrules"),
    )
}


class Desk:
    """A scheduler that observes objects as the API serves them."""

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
        """Return the last verdict of a pod or its gang."""
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
        """Add a node and its devices, if any."""
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

    def taint_rule(self, name: str, effect: str = "NoSchedule", **selector: Any) -> None:
        """Add a rule; without criteria it selects all devices."""
        taint = {"key": "drain", "value": "yes", "effect": effect}
        spec = {"deviceSelector": selector, "taint": taint}
        self.put("DeviceTaintRule", {"metadata": {"name": name}, "spec": spec})

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
        """Add a claim of one GPU; `held` is node/device, `by` the pods for which it is reserved."""
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
        """Add a pod with a claim of its own (created from a template) or with a shared one."""
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
        """Add a pod and the claim that was created for it."""
        self.claim(f"{name}-gpu", owner=name)
        self.pod(name, f"{name}-gpu", **more)

    def gone(self, name: str) -> None:
        self._apply(self.intake.pod_removed("default", name, f"uid-{name}"))

    def namespace(self, **labels: str) -> None:
        document = {"metadata": {"name": "default", "labels": labels}}
        self._apply(self.intake.namespace(decode_namespace(json.dumps(document).encode())))

    def confirm(self, bind: Bind) -> None:
        """Apply the state of the API after the binding of a pod."""
        (preparation,) = bind.preparations
        results = json.loads(preparation.allocation)["devices"]["results"]  # type: ignore[attr-defined]
        self.claim(f"{bind.name}-gpu", bind.name, f"{bind.node}/{results[0]['device']}", (bind.name,))
        self.pod(bind.name, f"{bind.name}-gpu", nodeName=bind.node)

    def free(self) -> dict[str, int]:
        """Return the number of further pods with a claim of one device each that fit, by node."""
        nodes = self.state.nodes
        probe = next(record.pod_class for record in self.state.pods.values() if record.pod.name == "probe")
        counts = self.allocator.copies(probe.spec, slice(None))
        return {nodes.names[row]: int(counts[row]) for row in nodes.rows().tolist()}

    def _apply(self, events: Any) -> None:
        for event in events:
            self.state.apply(event)


def desk(*nodes: int) -> Desk:
    """Nodes n0, n1, ... with these numbers of devices; an unplaceable pod of low priority shows the free
    devices.
    """
    made = Desk()
    made.device_class()
    for number, count in enumerate(nodes):
        made.node(f"n{number}", count)
    return made


def probe(made: Desk) -> None:
    """Add a pod of another scheduler: it only shows the devices that a pod of its class could get."""
    made.own("probe", schedulerName="other")


def test_pods_from_one_template_are_one_class() -> None:
    made = desk(2)
    made.own("a")
    made.own("b")
    assert len({id(record.pod_class) for record in made.state.pods.values()}) == 1


def test_allocated_device_is_in_use_before_the_api_shows_it() -> None:
    made = desk(1)
    made.own("a")
    assert made.binds() == {"a": "n0"}
    made.own("b")
    assert made.binds() == {}
    assert "cannot allocate all claims" in made.why("b")


def test_failed_binding_releases_its_device() -> None:
    made = desk(1)
    made.own("a")
    assert made.binds() == {"a": "n0"}
    made.state.pods.binding_failed("uid-a")
    assert made.binds() == {"a": "n0"}


def test_allocated_devices_are_in_use_whichever_scheduler_allocated_them() -> None:
    made = desk(1)
    made.claim("foreign", held="n0/gpu-0", by=("unknown",))
    made.own("a")
    assert made.binds() == {}
    made.claim("foreign")
    assert made.binds() == {"a": "n0"}


def test_device_stays_in_use_until_the_api_releases_it() -> None:
    """The pod is gone; its claim is in use until the controller has freed it."""
    made = desk(1)
    made.own("a")
    (bind,) = made.plan().binds
    made.confirm(bind)
    made.gone("a")
    made.own("b")
    assert made.binds() == {}
    made.drop("ResourceClaim", "a-gpu")
    assert made.binds() == {"b": "n0"}


def test_pod_removed_in_a_transaction_releases_its_device_until_the_rollback() -> None:
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


def test_no_further_pod_is_evicted_while_the_devices_of_the_first_victim_are_in_use() -> None:
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


def test_pod_of_higher_priority_preempts_a_pod_with_a_device() -> None:
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


def test_rolled_back_plan_holds_no_device() -> None:
    made = desk(2, 1)
    for name in "abcd":
        made.own(name, gang=4)
    assert made.binds() == {}
    assert "only 3 of the 4 required pods" in made.why("a")
    probe(made)
    assert made.free() == {"n0": 2, "n1": 1}


def test_first_pod_of_a_shared_claim_determines_the_node_of_the_next() -> None:
    made = desk(1, 1)
    made.claim("shared")
    made.pod("a", shared="shared", gang=2)
    made.pod("b", shared="shared", gang=2)
    plan = made.plan()
    assert len({bind.node for bind in plan.binds}) == 1
    documents = {preparation.allocation for bind in plan.binds for preparation in bind.preparations}  # type: ignore[attr-defined]
    assert len(documents) == 1


def test_allocated_claim_determines_the_nodes_of_its_pod() -> None:
    """The state after a restart between the allocation and the binding."""
    made = desk(1, 1, 1)
    made.claim("a-gpu", owner="a", held="n2/gpu-0", by=("a",))
    made.pod("a", "a-gpu")
    (bind,) = made.plan().binds
    assert bind.node == "n2"
    assert bind.preparations == ()


def test_claim_accepts_256_consumers() -> None:
    made = desk(1)
    others = tuple(f"other-{number}" for number in range(255))
    made.claim("shared", held="n0/gpu-0", by=others)
    made.pod("a", shared="shared")
    made.pod("b", shared="shared")
    assert len(made.binds()) == 1
    made.claim("shared", held="n0/gpu-0", by=(*others, "a"))
    assert made.binds() == {}
    assert "resourceclaim in use" in made.why("b")


def test_missing_object_of_a_claim_is_named_and_waited_for() -> None:
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


def test_admin_access_requires_a_namespace_that_allows_it() -> None:
    made = desk(1)
    made.claim("busy", held="n0/gpu-0", by=("x",))
    made.claim("a-gpu", owner="a", adminAccess=True)
    made.pod("a", "a-gpu")
    assert made.binds() == {}
    assert "admin access needs a namespace labelled" in made.why("a")
    made.namespace(**{"resource.kubernetes.io/admin-access": "true"})
    assert made.binds() == {"a": "n0"}


def test_policy_can_switch_claims_off() -> None:
    made = Desk(
        "actions: allocate\ntiers:\n- plugins:\n  - name: predicates\n    arguments:\n"
        "      predicate.DynamicResourceAllocationEnable: false\n"
    )
    made.device_class()
    made.node("n0", 1)
    made.own("a")
    assert made.binds() == {}
    assert "predicate.DynamicResourceAllocationEnable" in made.why("a")


def test_equal_nodes_share_one_search() -> None:
    """A thousand nodes whose devices differ only in their serial numbers."""
    made = desk(*[4] * 1000)
    probe(made)
    made.claim("busy", held="n7/gpu-1", by=("x",))
    assert sum(made.free().values()) == 3999
    (inquiry,) = made.allocator._inquiries.values()
    assert len(inquiry._answers) == 2


CEL = {"cel": {"expression": f'device.attributes["{DRIVER}"].serial.startsWith("n0/")'}}


@pytest.mark.parametrize(
    ("selector", "left"),
    [
        ({}, {"n0": 0, "n1": 0}),
        ({"driver": DRIVER}, {"n0": 0, "n1": 0}),
        ({"driver": "other.example.com"}, {"n0": 2, "n1": 1}),
        ({"pool": "n0"}, {"n0": 0, "n1": 1}),
        ({"pool": "n0", "device": "gpu-1"}, {"n0": 1, "n1": 1}),
        ({"device": "gpu-0"}, {"n0": 1, "n1": 0}),
        ({"deviceClassName": "gpu"}, {"n0": 0, "n1": 0}),
        ({"deviceClassName": "absent"}, {"n0": 2, "n1": 1}),
        ({"selectors": [CEL]}, {"n0": 0, "n1": 1}),
        ({"deviceClassName": "gpu", "selectors": [CEL], "device": "gpu-0"}, {"n0": 1, "n1": 1}),
        ({"selectors": [{"cel": {"expression": "device.attributes['no.such'].x == 1"}}]}, {"n0": 2, "n1": 1}),
    ],
)
def test_devices_that_a_taint_rule_selects_are_not_allocated(selector: Wire, left: dict[str, int]) -> None:
    made = desk(2, 1)
    probe(made)
    made.taint_rule("drain", **selector)
    assert made.free() == left
    made.drop("DeviceTaintRule", "drain")
    assert made.free() == {"n0": 2, "n1": 1}


def test_rule_without_a_selector_selects_no_device() -> None:
    made = desk(2)
    probe(made)
    taint = {"key": "drain", "effect": "NoSchedule"}
    made.put("DeviceTaintRule", {"metadata": {"name": "r"}, "spec": {"taint": taint}})
    made.put("DeviceTaintRule", {"metadata": {"name": "odd"}, "spec": {"deviceSelector": 7, "taint": taint}})
    assert made.free() == {"n0": 2}


@pytest.mark.parametrize(("effect", "left"), [("NoSchedule", 0), ("NoExecute", 0), ("None", 2)])
def test_effect_of_a_taint_rule_decides_whether_devices_are_allocated(effect: str, left: int) -> None:
    made = desk(2)
    probe(made)
    made.taint_rule("drain", effect)
    assert made.free() == {"n0": left}


def test_claim_that_tolerates_the_taint_of_a_rule_gets_its_devices() -> None:
    made = desk(1)
    made.taint_rule("drain")
    made.claim("a-gpu", "a", tolerations=[{"key": "drain", "operator": "Equal", "value": "yes"}])
    made.pod("a", "a-gpu")
    assert made.binds() == {"a": "n0"}


def test_verdict_names_the_rule_that_taints_the_devices_and_the_pod_starts_without_it() -> None:
    made = desk(1)
    made.taint_rule("drain-n0", pool="n0")
    made.own("a")
    assert made.binds() == {}
    assert "1 cannot allocate all claims (devices are tainted by DeviceTaintRule drain-n0)" in made.why("a")
    record = next(record for record in made.state.pods.values() if record.pod.name == "a")
    assert record.last_verdict is not None
    assert "delete the named DeviceTaintRule" in record.last_verdict.change
    made.drop("DeviceTaintRule", "drain-n0")
    assert made.binds() == {"a": "n0"}


def test_device_that_its_pod_uses_already_is_not_affected_by_a_rule() -> None:
    made = desk(1)
    made.own("a")
    (bind,) = made.plan().binds
    made.confirm(bind)
    made.taint_rule("drain")
    assert made.plan().evictions == []
    assert made.state.pods["uid-a"].pod.node == "n0"


def test_shared_network_devices_are_allocated_once() -> None:
    made = desk(0, 0)
    devices = [{"name": "fpga-0"}, {"name": "fpga-1"}]
    pool = {"name": "fabric", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "allNodes": True, "pool": pool, "devices": devices}
    made.put("ResourceSlice", {"metadata": {"name": "fabric"}, "spec": spec})
    for name in "abc":
        made.own(name)
    assert sorted(made.binds()) == ["a", "b"]
    assert "cannot allocate all claims" in made.why("c")


def test_node_that_offers_the_first_alternative_is_preferred() -> None:
    """It is preferred although it is fuller; the next pods get the remaining alternatives."""
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


def test_expression_that_fails_for_one_device_excludes_the_pod_from_every_node() -> None:
    """As in kube-scheduler: a placement where the expression happens to work would hide the error."""
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
    """A device class provides an extended resource, by its stated or its implicit name."""

    @pytest.mark.parametrize("resource", [EXTENDED, IMPLICIT])
    def test_extended_resource_is_allocated_by_a_claim_that_the_scheduler_creates(self, resource: str) -> None:
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

    def test_node_that_offers_the_extended_resource_itself_needs_no_claim(self) -> None:
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

    def test_amount_used_by_a_bound_pod_is_not_offered_again(self) -> None:
        made = extended_desk()
        made.node("plugin", offers={EXTENDED: "2"})
        ask_for(made, "a", amount=2, nodeName="plugin")
        ask_for(made, "b")
        assert made.binds() == {}

    def test_devices_of_assumed_pods_are_not_offered_again(self) -> None:
        made = extended_desk(1, 1)
        for name in "abc":
            ask_for(made, name)
        assert sorted(made.binds().values()) == ["n0", "n1"]
        assert "cannot allocate all claims" in made.why("c")

    def test_added_or_removed_device_class_is_noticed(self) -> None:
        made = desk(1)
        ask_for(made, "a")
        assert made.binds() == {}
        made.put("DeviceClass", {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": EXTENDED}})
        made.drop("DeviceClass", "gpu")
        assert made.binds() == {}
        made.put("DeviceClass", {"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": EXTENDED}})
        assert made.binds() == {"a": "n0"}

    @pytest.mark.parametrize("name", ["deviceclass/gpu", EXTENDED])
    def test_queues_count_claimed_devices_by_class_and_by_resource_name(self, name: str) -> None:
        made = extended_desk(4)
        queue = Account(AccountKey(Tree.QUEUE, "default"), label="queue default", capability=((name, 1),))
        made._apply([AccountUpdated(queue)])
        ask_for(made, "a")
        ask_for(made, "b")
        assert made.binds() == {"a": "n0"}
        assert made.why("b") == f"queue default: 1 {name} in use, capability 1; 1 more would exceed it"

    def test_allocation_from_before_a_restart_determines_the_node(self) -> None:
        made = extended_desk(1, 1)
        made.claim("a-extended-resources-x", owner="a", held="n1/gpu-0", by=("a",), extended=True)
        ask_for(made, "a")
        (bind,) = made.plan().binds
        assert (bind.node, bind.preparations) == ("n1", ())


class TestAccounts:
    """Claims are charged to the queue of the pods for which they were created."""

    def capped(self, devices: int) -> Desk:
        made = desk(8)
        limit = (("deviceclass/gpu", devices),)
        made._apply([AccountUpdated(Account(AccountKey(Tree.QUEUE, "default"), capability=limit))])
        return made

    def test_own_claim_counts_for_each_pod(self) -> None:
        made = self.capped(2)
        for name in "abc":
            made.own(name)
        assert len(made.binds()) == 2

    def test_claim_shared_by_several_pods_counts_once(self) -> None:
        made = self.capped(1)
        made.claim("shared")
        for name in "abc":
            made.pod(name, resourceClaims=[{"name": "gpu", "resourceClaimName": "shared"}])
        assert len(made.binds()) == 3


# incremental counts against recomputed ones

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
def test_incremental_counts_equal_recomputed_counts(steps: list[tuple[str, int, int]]) -> None:
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
