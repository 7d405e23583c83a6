"""Claims, classes and slices as the API serves them, and the claims of a pod."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from phalanx.cluster.dra.selectors import Selectors
from phalanx.dialects.core import decode_pod
from phalanx.dialects.devices.claim_objects import read_claim, read_device_class, read_slice, read_taint_rule
from phalanx.dialects.intake import Intake
from phalanx.dialects.kinds import ServedKind
from phalanx.model.devices.claims import (
    AllocatedDevice,
    ClaimNeed,
    ConsumptionPolicy,
    DeviceAsk,
    DeviceAttribute,
    DeviceConstraint,
    DeviceRequest,
    DeviceTaint,
    DeviceToleration,
    NodeAccess,
)
from phalanx.model.events import PodUpdated
from phalanx.model.pod import Pod
from phalanx.model.selectors import NodeSelectorTerm, Requirement

Wire = dict[str, Any]

CLAIMS = ServedKind("resource.k8s.io", "v1", "resourceclaims", "ResourceClaim")
EXACTLY: Wire = {
    "deviceClassName": "gpu",
    "selectors": [{"cel": {"expression": "true"}}],
    "allocationMode": "ExactCount",
    "count": 2,
    "tolerations": [{"key": "broken", "operator": "Exists", "effect": "NoSchedule", "tolerationSeconds": 5}],
    "capacity": {"requests": {"memory": "1Gi"}},
}


def claim(name: str = "c", status: Wire | None = None, owner: Wire | None = None, **devices: Any) -> Wire:
    metadata: Wire = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    if owner is not None:
        metadata["ownerReferences"] = [{"apiVersion": "v1", "kind": "Pod", "controller": True, **owner}]
    requests = devices.pop("requests", [{"name": "gpu", "exactly": EXACTLY}])
    return {"metadata": metadata, "spec": {"devices": {"requests": requests, **devices}}, "status": status or {}}


def test_claim_is_read_with_all_its_requests() -> None:
    alternatives = [{"name": "big", "deviceClassName": "gpu", "allocationMode": "All"}]
    found = read_claim(
        claim(
            requests=[{"name": "a", "exactly": EXACTLY}, {"name": "b", "firstAvailable": alternatives}],
            constraints=[{"requests": ["a"], "matchAttribute": "x.com/numa"}, {"distinctAttribute": "x.com/link"}],
            config=[{"requests": ["a"], "opaque": {"driver": "x.com", "parameters": {"b": 1, "a": 2}}}],
        )
    )
    tolerations = (DeviceToleration("broken", "Exists", "", "NoSchedule", 5),)
    first = DeviceAsk("a", "gpu", ("true",), 2, tolerations=tolerations, capacity=(("memory", "1Gi"),))
    assert found.spec.requests == (
        DeviceRequest("a", (first,)),
        DeviceRequest("b", (DeviceAsk("big", "gpu", count=0),), prioritised=True),
    )
    assert found.spec.constraints == (
        DeviceConstraint(("a",), match="x.com/numa"),
        DeviceConstraint(distinct="x.com/link"),
    )
    (config,) = found.spec.config
    assert config.requests == ("a",)
    assert json.loads(config.body) == {"opaque": {"driver": "x.com", "parameters": {"a": 2, "b": 1}}}


def test_v1beta1_states_the_request_itself() -> None:
    (request,) = read_claim(claim(requests=[{"name": "gpu", **EXACTLY}])).spec.requests
    assert request == read_claim(claim()).spec.requests[0]


@pytest.mark.parametrize(
    ("devices", "complaint"),
    [
        ({"requests": [{"name": "gpu", "future": {}}]}, "request gpu: this version of Phalanx does not support"),
        ({"requests": [{"name": "gpu", "exactly": {**EXACTLY, "allocationMode": "Most"}}]}, "count mode Most"),
        ({"requests": [{"name": "gpu", "exactly": {**EXACTLY, "selectors": [{"sql": ""}]}}]}, "selector #0"),
        ({"constraints": [{"requests": ["gpu"]}]}, "constraint: this version of Phalanx does not support"),
    ],
)
def test_field_unknown_to_this_version_is_never_guessed(devices: Wire, complaint: str) -> None:
    assert complaint in read_claim(claim(**devices)).spec.fault


def test_allocation_is_read_with_its_nodes_and_consumers() -> None:
    result = {"request": "gpu", "driver": "x.com", "pool": "p", "device": "d", "adminAccess": True}
    share = {**result, "adminAccess": None, "shareID": "1", "consumedCapacity": {"memory": "1Gi"}}
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n"]}]}
    allocation = {"devices": {"results": [result, share]}, "nodeSelector": {"nodeSelectorTerms": [term]}}
    found = read_claim(claim(status={"allocation": allocation, "reservedFor": [{"uid": "u"}]}))
    assert found.allocation is not None
    assert found.allocation.devices == (
        AllocatedDevice(("x.com", "p", "d"), admin=True),
        AllocatedDevice(("x.com", "p", "d"), shared=True, consumed=(("memory", "1Gi"),)),
    )
    assert found.allocation.nodes == (NodeSelectorTerm(fields=(Requirement("metadata.name", "In", ("n",)),)),)
    assert found.consumers == ("u",)


def test_unreadable_claim_keeps_its_devices() -> None:
    result = {"request": "gpu", "driver": "x.com", "pool": "p", "device": "d"}
    document = claim(status={"allocation": {"devices": {"results": [result]}}})
    document["spec"]["devices"]["requests"] = "all"
    found = read_claim(document)
    assert "requests" in found.problem
    assert found.allocation is not None
    assert found.allocation.devices[0].id == ("x.com", "p", "d")


def test_slice_is_read_with_all_fields_of_its_devices() -> None:
    device = {
        "name": "d",
        "attributes": {
            "model": {"string": "A"},
            "x.com/v": {"version": "1.0.0"},
            "n": {"int": 1},
            "m": {"ints": [1]},
        },
        "capacity": {
            "memory": {
                "value": "8Gi",
                "requestPolicy": {"default": "1Gi", "validRange": {"min": "1Gi", "max": "4Gi", "step": "1Gi"}},
            }
        },
        "consumesCounters": [{"counterSet": "card", "counters": {"slots": {"value": "2"}}}],
        "taints": [{"key": "broken", "effect": "NoSchedule"}],
        "allowMultipleAllocations": True,
        "bindingConditions": ["Attached"],
    }
    pool = {"name": "p", "generation": 3, "resourceSliceCount": 2}
    spec = {"driver": "x.com", "pool": pool, "nodeName": "n", "devices": [device]}
    found = read_slice({"metadata": {"name": "s"}, "spec": spec})
    assert (found.driver, found.pool, found.generation, found.parts) == ("x.com", "p", 3, 2)
    assert found.access == NodeAccess(node="n")
    (read,) = found.devices
    assert dict(read.attributes) == {
        "model": DeviceAttribute("string", "A"),
        "x.com/v": DeviceAttribute("version", "1.0.0"),
        "n": DeviceAttribute("int", 1),
        "m": DeviceAttribute("ints", (1,)),
    }
    assert dict(read.capacity)["memory"].policy == ConsumptionPolicy("1Gi", (), "1Gi", "4Gi", "1Gi")
    assert read.counters == (("card", "slots", "2"),)
    assert read.taints == (DeviceTaint("broken", "", "NoSchedule"),)
    assert read.shareable
    assert read.conditions == ("Attached",)


def test_devices_of_v1beta1_are_basic() -> None:
    spec = {
        "driver": "x.com",
        "pool": {"name": "p"},
        "allNodes": True,
        "devices": [{"name": "d", "basic": {"attributes": {"model": {"string": "A"}}}}],
    }
    (device,) = read_slice({"metadata": {"name": "s"}, "spec": spec}).devices
    assert device.attributes == (("model", DeviceAttribute("string", "A")),)


def test_unreadable_slice_makes_only_its_pool_unusable() -> None:
    spec = {"driver": "x.com", "pool": {"name": "p", "generation": 2}, "nodeName": "n", "devices": {"d": 1}}
    found = read_slice({"metadata": {"name": "s"}, "spec": spec})
    assert "devices" in found.problem
    assert (found.driver, found.pool, found.generation, found.access) == ("x.com", "p", 2, NodeAccess(node="n"))


def test_unreadable_class_names_the_reason() -> None:
    assert "selectors" in read_device_class({"metadata": {"name": "gpu"}, "spec": {"selectors": 1}}).problem


class Door:
    """Return the pods as the scheduler sees them after any order of arrival."""

    def __init__(self) -> None:
        self.intake = Intake(["phalanx"])
        self.shown: dict[str, Pod] = {}

    def pod(self, name: str, *entries: Wire, made: dict[str, str | None] | None = None, node: str = "") -> None:
        statuses = [{"name": key, "resourceClaimName": value} for key, value in (made or {}).items()]
        document = {
            "metadata": {"name": name, "namespace": "default", "uid": f"uid-{name}"},
            "spec": {
                "schedulerName": "phalanx",
                "containers": [],
                "resourceClaims": list(entries),
                "nodeName": node,
            },
            "status": {"resourceClaimStatuses": statuses},
        }
        self._apply(self.intake.pod(decode_pod(json.dumps(document).encode())))

    def claim(self, document: Wire) -> None:
        self._apply(self.intake.apply(self.intake.enrichers.updated(CLAIMS, document)))

    def malformed(self, name: str) -> None:
        self._apply(
            self.intake.apply(self.intake.enrichers.malformed(CLAIMS, "default", name, f"uid-{name}", "no JSON"))
        )

    def unserved(self) -> None:
        self._apply(self.intake.apply(self.intake.enrichers.unserved(CLAIMS)))

    def needs(self, name: str) -> tuple[ClaimNeed, ...]:
        return self.shown[f"uid-{name}"].pod_class.claims

    def waits(self, name: str) -> list[str]:
        return [need.waits for need in self.needs(name)]

    def _apply(self, events: Any) -> None:
        for event in events:
            if isinstance(event, PodUpdated):
                self.shown[event.pod.uid] = event.pod


TEMPLATE: Wire = {"name": "gpu", "resourceClaimTemplateName": "t"}
NAMED: Wire = {"name": "gpu", "resourceClaimName": "c"}


def test_order_of_arrival_of_pod_and_claim_makes_no_difference() -> None:
    one, other = Door(), Door()
    owned = claim("p-gpu", owner={"name": "p", "uid": "uid-p"})
    one.claim(owned)
    one.pod("p", TEMPLATE, made={"gpu": "p-gpu"})
    other.pod("p", TEMPLATE)
    other.pod("p", TEMPLATE, made={"gpu": "p-gpu"})
    other.claim(owned)
    assert one.needs("p") == other.needs("p") == (ClaimNeed(read_claim(owned).spec),)
    assert one.shown["uid-p"].claims == ("p-gpu",)


def test_allocated_claim_is_named_until_its_pod_has_a_node() -> None:
    door = Door()
    owner = {"name": "p", "uid": "uid-p"}
    door.pod("p", TEMPLATE, made={"gpu": "p-gpu"})
    door.claim(claim("p-gpu", {"allocation": {"devices": {}}}, owner))
    assert [need.claim for need in door.needs("p")] == ["default/p-gpu"]
    door.pod("p", TEMPLATE, made={"gpu": "p-gpu"}, node="n")
    assert [need.claim for need in door.needs("p")] == [""]


@pytest.mark.parametrize("names", [("a", "b", "c"), ("c", "b", "a"), ("b", "c", "a")], ids=" ".join)
def test_shared_claim_is_charged_to_one_pod_in_any_order_of_uids(names: tuple[str, ...]) -> None:
    door = Door()
    door.claim(claim("c"))
    for name in names:
        door.pod(name, NAMED)
        charged = [uid for uid, pod in door.shown.items() if pod.pod_class.beside]
        assert len(charged) == 1


def test_pod_that_no_longer_needs_a_claim_waits_for_none() -> None:
    door = Door()
    door.pod("p", TEMPLATE, made={"gpu": None})
    assert door.needs("p") == ()


def test_verdict_names_the_object_that_a_pod_waits_for() -> None:
    door = Door()
    door.pod("p", NAMED)
    assert door.waits("p") == ["waiting for resource claim c"]
    door.claim(claim())
    assert door.waits("p") == [""]
    leaving = claim()
    leaving["metadata"]["deletionTimestamp"] = "2030-01-01T00:00:00Z"
    door.claim(leaving)
    assert door.waits("p") == ["resource claim c is being deleted"]
    door.malformed("c")
    assert door.waits("p") == ["resource claim c is being deleted"]
    door.unserved()
    assert door.waits("p") == ["waiting for resource claim c"]


def test_undecodable_claim_holds_its_pods() -> None:
    door = Door()
    door.pod("p", NAMED)
    door.malformed("c")
    assert door.waits("p") == ["resource claim c: no JSON"]


def test_examples_of_the_documentation_are_read() -> None:
    text = (Path(__file__).parents[2] / "docs" / "devices-dra.md").read_text(encoding="utf-8")
    objects, rule, _ = re.findall(r"^```yaml\n(.*?)^```", text, re.M | re.S)
    device_class, template = yaml.safe_load_all(objects)
    assert read_device_class(device_class).problem == ""
    spec = read_claim({"metadata": template["metadata"], "spec": template["spec"]["spec"]}).spec
    assert spec.fault == ""
    assert spec.requests[0].asks[0].count == 2
    tainted = read_taint_rule(yaml.safe_load(rule))
    assert tainted.selector is not None
    assert (tainted.taint.effect, tainted.selector.device) == ("NoExecute", "gpu-3")
    for text in (*read_device_class(device_class).selectors, *spec.requests[0].asks[0].selectors):
        Selectors().compiled(text)
