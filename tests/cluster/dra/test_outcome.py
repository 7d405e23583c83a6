"""Allocations in the form of the API."""

from __future__ import annotations

from typing import Any

import msgspec

from phalanx.cluster.dra.outcome import allocations
from phalanx.cluster.dra.sharing import consumption
from phalanx.model.devices.claims import (
    ClaimResult,
    ClaimSpec,
    ConsumptionPolicy,
    Device,
    DeviceCapacity,
    DeviceConfig,
    DeviceToleration,
    NodeAccess,
)
from phalanx.model.selectors import NodeSelectorTerm, Requirement
from tests.cluster.dra.fleet import CLASSES, DRIVER, Node, ask, claim, device, pool, request


def given(node: Node, spec: ClaimSpec) -> ClaimResult:
    inquiry = node.inquiry(spec)
    laid = inquiry.laid(0)
    picks = inquiry.answer(laid.shelf).copies[0]
    return allocations(inquiry.question, picks, laid.offers, "n1", ["uid-1"])[0]


def document(node: Node, spec: ClaimSpec) -> dict[str, Any]:
    found: dict[str, Any] = msgspec.json.decode(given(node, spec).document)
    return found


def selector(*requirements: dict[str, Any]) -> str:
    return msgspec.json.encode({"nodeSelectorTerms": [{"matchExpressions": list(requirements)}]}).decode()


def rack(*racks: str) -> NodeAccess:
    requirement = {"key": "rack", "operator": "In", "values": list(racks)}
    return NodeAccess(
        terms=(NodeSelectorTerm((Requirement("rack", "In", racks),)),), selector=selector(requirement)
    )


def test_each_device_is_named_with_its_request() -> None:
    spec = claim(request(ask("one", device_class="big"), ask("two", count=2), name="gpu"))
    found = document(Node(pool(device("a"), device("b"), device("c", model="small"))), claim(request(ask("x"))))
    assert found["devices"]["results"] == [{"request": "x", "driver": DRIVER, "pool": "n1", "device": "a"}]
    found = document(Node(pool(device("a", model="small"), device("b", model="small"))), spec)
    assert [(result["request"], result["device"]) for result in found["devices"]["results"]] == [
        ("gpu/two", "a"),
        ("gpu/two", "b"),
    ]


def test_devices_of_a_node_tie_the_claim_to_it() -> None:
    found = given(Node(pool(device("a"))), claim(request(ask())))
    term = NodeSelectorTerm(fields=(Requirement("metadata.name", "In", ("n1",)),))
    assert found.nodes == (term,)
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    wire = msgspec.json.decode(found.document)
    assert wire["nodeSelector"] == {"nodeSelectorTerms": [{"matchFields": [field]}]}


def test_devices_of_a_rack_tie_the_claim_to_the_rack_and_network_devices_to_no_node() -> None:
    everywhere = pool(device("a"), name="all", access=NodeAccess(all=True))
    assert "nodeSelector" not in document(Node(everywhere), claim(request(ask())))

    class Racked(Node):
        def near(self) -> Any:
            return [(each, each.offers) for each in self.supply.pools.values()]

    node = Racked(pool(device("a"), device("b"), name="fabric", access=rack("r1", "r2")))
    found = document(node, claim(request(ask(count=2))))
    requirement = {"key": "rack", "operator": "In", "values": ["r1", "r2"]}
    assert found["nodeSelector"] == {"nodeSelectorTerms": [{"matchExpressions": [requirement]}]}


def test_device_that_binds_to_its_node_ties_the_claim_to_it() -> None:
    node = Node(pool(Device("a", binds_to_node=True), name="all", access=NodeAccess(all=True)))
    fields = document(node, claim(request(ask())))["nodeSelector"]["nodeSelectorTerms"][0]["matchFields"]
    assert fields[0]["values"] == ["n1"]


def test_configuration_of_classes_comes_before_that_of_the_claim() -> None:
    opaque = '{"opaque":{"driver":"gpu.example.com","parameters":{"mode":"%s"}}}'
    node = Node(pool(device("a", model="big"), device("b", model="big")))
    config = (
        DeviceConfig((), opaque % "all"),
        DeviceConfig(("y",), opaque % "second"),
        DeviceConfig(("z",), opaque % "nobody"),
    )
    spec = claim(request(ask("x")), request(ask("y")), config=config)
    inquiry = node.inquiry(spec)
    configured = msgspec.structs.replace(CLASSES["gpu"], config=(DeviceConfig((), opaque % "class"),))
    inquiry.question.classes = {**CLASSES, "gpu": configured}
    laid = inquiry.laid(0)
    (found,) = allocations(inquiry.question, inquiry.answer(laid.shelf).copies[0], laid.offers, "n1", ["uid-1"])
    entries = msgspec.json.decode(found.document)["devices"]["config"]
    assert [(e["source"], e.get("requests"), e["opaque"]["parameters"]["mode"]) for e in entries] == [
        ("FromClass", ["x", "y"], "class"),
        ("FromClaim", None, "all"),
        ("FromClaim", ["y"], "second"),
    ]


def test_fields_for_the_kubelet_and_drivers_are_copied() -> None:
    slow = Device("a", conditions=("Attached",), failures=("Broken",))
    tolerant = ask(tolerations=(DeviceToleration("broken", "Exists", seconds=30),), admin=True)
    (result,) = document(Node(pool(slow)), claim(request(tolerant)))["devices"]["results"]
    assert result["bindingConditions"] == ["Attached"]
    assert result["bindingFailureConditions"] == ["Broken"]
    assert result["adminAccess"] is True
    assert result["tolerations"] == [{"operator": "Exists", "key": "broken", "tolerationSeconds": 30}]


def test_share_of_a_device_has_its_consumed_capacity() -> None:
    node = Node(pool(device("nic", memory="10Gi", shareable=True)))
    spec = claim(request(ask(capacity=(("memory", "4Gi"),))))
    found = given(node, spec)
    (result,) = msgspec.json.decode(found.document)["devices"]["results"]
    assert result["consumedCapacity"] == {"memory": "4Gi"}
    assert len(result["shareID"]) == 36
    assert found.document == given(node, spec).document  # whichever scheduler computed it
    assert found.devices[0].shared


def test_shares_are_rounded_up_by_the_policy_of_the_device() -> None:
    def consumed(wanted: str, policy: ConsumptionPolicy) -> str | None:
        shared = Device("d", capacity=(("memory", DeviceCapacity("10Gi", policy)),), shareable=True)
        found = consumption(ask(capacity=(("memory", wanted),) if wanted else ()), shared)
        return None if found is None else found[0][2]

    steps = ConsumptionPolicy(default="1Gi", low="1Gi", high="8Gi", step="1Gi")
    assert consumed("", steps) == "1Gi"
    assert consumed("1", steps) == "1Gi"
    assert consumed("1500Mi", steps) == str(2 * 2**30)
    assert consumed("9Gi", steps) is None
    values = ConsumptionPolicy(default="2Gi", values=("2Gi", "4Gi"))
    assert consumed("3Gi", values) == "4Gi"
    assert consumed("5Gi", values) is None
    assert consumed("11Gi", ConsumptionPolicy()) is None
