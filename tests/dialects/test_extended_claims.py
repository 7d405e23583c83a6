"""Device requests generated from containers' amounts of extended resources."""

from __future__ import annotations

import json
from typing import Any

import pytest

from phalanx.dialects.core import NodeObject, decode_node, decode_pod
from phalanx.dialects.devices.device_charges import devices_of
from phalanx.dialects.devices.extended_claims import ExtendedResources, extended_requests, is_extended
from phalanx.dialects.pods.decoder import PodDecoder
from phalanx.model.devices.claims import ClaimSpec, DeviceAsk, DeviceRequest

GPU = "example.com/gpu"


def requests(
    *main: dict[str, str], init: tuple[dict[str, Any], ...] = ()
) -> tuple[list[tuple[str, int]], list[str]]:
    """Return (name and count of each request, `container: request` of each mapping)."""
    containers = [{"name": f"c{at}", "resources": {"requests": amounts}} for at, amounts in enumerate(main)]
    before = [
        {"name": f"i{at}", "resources": {"requests": {GPU: each["amount"]}}, "restartPolicy": each.get("restart")}
        for at, each in enumerate(init)
    ]
    document = {"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": containers, "initContainers": before}}
    (found,) = extended_requests(decode_pod(json.dumps(document).encode()).spec, [GPU])
    return list(found.requests), [f"{each.container_name}: {each.request_name}" for each in found.mappings]


def test_each_container_has_a_request_named_by_its_index_and_the_index_of_the_resource() -> None:
    assert requests({"cpu": "1", GPU: "2"}, {GPU: "1"}) == (
        [("container-0-request-1", 2), ("container-1-request-0", 1)],
        ["c0: container-0-request-1", "c1: container-1-request-0"],
    )


def test_init_container_shares_the_devices_of_later_containers() -> None:
    assert requests({GPU: "2"}, init=({"amount": "1"},)) == (
        [("container-1-request-0", 2)],
        ["c0: container-1-request-0", "i0: container-1-request-0"],
    )


def test_largest_excess_of_init_containers_is_requested_once() -> None:
    assert requests({GPU: "1"}, init=({"amount": "2"}, {"amount": "4"})) == (
        [("container-1-request-0", 3), ("container-2-request-0", 1)],
        [
            "c0: container-2-request-0",
            "i0: container-2-request-0",
            "i1: container-2-request-0",
            "i0: container-1-request-0",
            "i1: container-1-request-0",
        ],
    )


def test_sidecar_keeps_its_devices() -> None:
    assert requests({GPU: "1"}, init=({"amount": "1", "restart": "Always"},))[0] == [
        ("container-0-request-0", 1),
        ("container-1-request-0", 1),
    ]


@pytest.mark.parametrize(
    ("name", "extended"),
    [
        (GPU, True),
        ("deviceclass.resource.kubernetes.io/gpu", True),
        ("cpu", False),
        ("kubernetes.io/batteries", False),
        ("hugepages-2Mi", False),
    ],
)
def test_resource_names_that_devices_can_have(name: str, extended: bool) -> None:
    assert is_extended(name) is extended


def test_newest_of_several_classes_applies_and_ties_use_the_name() -> None:
    offers = ExtendedResources()
    offers.offered("b", GPU, "2026-01-01T00:00:00Z")
    offers.offered("a", GPU, "2026-01-01T00:00:00Z")
    assert offers.device_class(GPU) == "a"
    offers.offered("c", GPU, "2026-01-02T00:00:00Z")
    assert offers.device_class(GPU) == "c"
    offers.withdrawn("c")
    assert offers.device_class(GPU) == "a"
    offers.offered("a", "", "2026-01-01T00:00:00Z")
    assert offers.device_class(GPU) == "b"
    assert offers.device_class("deviceclass.resource.kubernetes.io/a") == "a"


def test_accounts_are_charged_for_the_devices_of_a_claim() -> None:
    asks = (DeviceAsk("big", "gpu", count=2, capacity=(("memory", "8Gi"),)), DeviceAsk("small", "gpu", count=4))
    spec = ClaimSpec((DeviceRequest("r", asks, prioritised=True), DeviceRequest("n", (DeviceAsk("n", "nic"),))))
    assert devices_of(spec) == {"deviceclass/gpu": 4, "memory.deviceclass/gpu": 16 * 2**30, "deviceclass/nic": 1}


def test_admin_access_is_charged_to_no_account() -> None:
    assert devices_of(ClaimSpec((DeviceRequest("r", (DeviceAsk("r", "gpu", admin=True),)),))) == {}


class Asking:
    """Pods that request GPUs, as `ExtendedResources` receives them."""

    def __init__(self) -> None:
        self.decoder, self.known = PodDecoder(), ExtendedResources()

    def pod(self, name: str, node: str = "", phase: str = "Pending", amount: str = "2") -> bool:
        document = {
            "metadata": {"name": name, "uid": name},
            "spec": {
                "nodeName": node,
                "containers": [{"name": "c", "resources": {"requests": {GPU: amount}, "limits": {GPU: amount}}}],
            },
            "status": {"phase": phase},
        }
        pod = decode_pod(json.dumps(document).encode())
        self.specs = self.decoder.pod(pod, self.decoder.template(pod), "")
        return self.known.pod(pod, self.specs)

    def needs(self, name: str, node: str = "") -> int:
        """Return the number of devices requested by claims."""
        self.pod(name, node)
        extended, _ = self.known.needs(self.specs)
        return sum(need.amount for need in extended)


def node_with(**offered: str) -> NodeObject:
    raw = {
        "metadata": {"name": "n"},
        "status": {"allocatable": {name.replace("_", "/"): n for name, n in offered.items()}},
    }
    return decode_node(json.dumps(raw).encode())


def test_pods_older_than_the_first_device_class_are_found_when_it_is_added() -> None:
    asking = Asking()
    assert not asking.pod("waits")
    assert not asking.pod("runs", node="n")
    assert not asking.pod("done", phase="Succeeded")
    assert asking.needs("waits") == 0
    assert asking.known.offered("gpus", GPU, "2026-01-01T00:00:00Z") == {"waits", "runs"}
    assert asking.needs("waits") == 2
    # From now on events of a pod, of its node and of the class reach it.
    assert asking.pod("late")
    assert not asking.pod("late")
    assert asking.pod("late", node="n")
    assert asking.known.node(node_with(**{"example.com_gpu": "8"})) == {"late", "runs"}
    assert asking.needs("runs", node="n") == 0  # its kubelet has allocated the GPUs
    assert asking.known.node_gone("n") == {"late", "runs"}
    assert asking.known.pod_gone("late")
    assert not asking.known.pod_gone("late")
    assert asking.known.withdrawn("gpus") == {"waits", "runs"}
    assert asking.needs("waits") == 0


def test_pods_of_one_template_with_other_amounts_are_different_classes() -> None:
    asking = Asking()
    asking.known.offered("gpus", GPU, "")
    assert [asking.needs("a"), asking.needs("b")] == [2, 2]
    asking.pod("c", amount="3")
    assert sum(need.amount for need in asking.known.needs(asking.specs)[0]) == 3
